// Logits to tokens, greedy, with top_p and with top_k, and to the best tokens.

#include <algorithm>

#include "apps/bench_ops/cases.h"
#include "ops/sample.h"
#include "ops/top_k.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

struct Sampling {
  const char* name;
  float temperature, top_p;
  int32_t top_k;
};

// Everything but logits; all rows are of one slot. `up` uploads a vector with a shape.
template <class Upload>
ops::SampleArgs sample_args(int64_t rows, const Sampling& sampling, Upload up) {
  const auto all = [&](auto value) {
    return up(std::vector<decltype(value)>(static_cast<size_t>(rows), value), {rows});
  };
  const auto one = [&](auto value) { return up(std::vector<decltype(value)>{value}, {1}); };
  ops::SampleArgs args;
  args.slots = {.temperature = one(sampling.temperature),
                .top_k = one(sampling.top_k),
                .top_p = one(sampling.top_p),
                .min_p = one(0.0f),
                .repetition = one(1.0f),
                .frequency = one(0.0f),
                .presence = one(0.0f),
                .seed = one(uint64_t{7}),
                .num_top = one(int32_t{0}),
                .penalty_row = one(int32_t{-1}),
                .counts = {},
                .bias_start = one(int32_t{0}),
                .ban_start = one(int32_t{0}),
                .ban_end = one(int32_t{0}),
                .ban_until = one(int32_t{0}),
                .bias_ids = up(std::vector<int32_t>(), {0}),
                .bias_values = up(std::vector<float>(), {0})};
  args.slot = all(int32_t{0});
  args.position = all(int32_t{100});
  args.forced = all(int32_t{-1});
  args.tokens = all(int32_t{-1});
  args.logprobs = all(0.0f);
  args.top_ids = up(std::vector<int32_t>(static_cast<size_t>(rows)), {rows, 1});
  args.top_logprobs = up(std::vector<float>(static_cast<size_t>(rows)), {rows, 1});
  args.failed = all(uint8_t{0});
  return args;
}

std::vector<float> joined(std::vector<float> values, const std::vector<float>& more) {
  values.insert(values.end(), more.begin(), more.end());
  return values;
}

OpCall sample_call(Operands& operands, int64_t vocab_size, const Sampling& sampling,
                   int64_t tokens) {
  ops::SampleArgs args =
      sample_args(tokens, sampling, [&](const auto& values, std::initializer_list<int64_t> shape) {
        return operands.upload(values, shape);
      });
  args.logits = operands.random(DType::kF32, {tokens, vocab_size}, -8, 8);
  return {.bytes = bytes_of({args.logits}),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::sample(args, stream); },
          .expected =
              [=](OnReference& on_reference) {
                const Tensor logits = on_reference.copy(checked(args.logits));
                ops::SampleArgs cut =
                    sample_args(logits.dim(0), sampling,
                                [&](const auto& values, std::initializer_list<int64_t> shape) {
                                  return on_reference.upload(values, shape);
                                });
                cut.logits = logits;
                ops::sample(cut, on_reference.stream());
                return joined(values_of(cut.tokens), values_of(cut.logprobs));
              },
          .actual =
              [=](OnReference& on_reference) {
                return joined(on_reference.values(checked(args.tokens)),
                              on_reference.values(checked(args.logprobs)));
              }};
}

OpCall top_k_call(Operands& operands, int64_t vocab_size, int64_t k, int64_t tokens) {
  const ops::TopKArgs args{.logits = operands.random(DType::kF32, {tokens, vocab_size}, -8, 8),
                           .ids = operands.empty(DType::kI32, {tokens, k}),
                           .logprobs = operands.empty(DType::kF32, {tokens, k})};
  return {.bytes = bytes_of({args.logits, args.ids, args.logprobs}),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::top_k(args, stream); },
          .expected =
              [=](OnReference& on_reference) {
                const Tensor logits = on_reference.copy(checked(args.logits));
                const int64_t rows = logits.dim(0);
                const ops::TopKArgs cut{.logits = logits,
                                        .ids = on_reference.empty(DType::kI32, {rows, k}),
                                        .logprobs = on_reference.empty(DType::kF32, {rows, k})};
                ops::top_k(cut, on_reference.stream());
                return joined(values_of(cut.ids), values_of(cut.logprobs));
              },
          .actual =
              [=](OnReference& on_reference) {
                return joined(on_reference.values(checked(args.ids)),
                              on_reference.values(checked(args.logprobs)));
              }};
}

}  // namespace

std::vector<OpCase> sample_cases(const OpShapes& shapes) {
  const int64_t vocab_size = shapes.config.vocab_size;
  const auto sample_case = [&](const Sampling& sampling) -> OpCase {
    return {
        .op = "sample",
        .what = sampling.name,
        .dtype = shapes.backend->act,
        .make = [=](Operands& operands,
                    int64_t tokens) { return sample_call(operands, vocab_size, sampling, tokens); },
        .max_tokens = kMaxDecodeTokens};
  };
  return {sample_case({.name = "greedy", .temperature = 0, .top_p = 1, .top_k = 0}),
          sample_case({.name = "top_p 0.95", .temperature = 0.6f, .top_p = 0.95f, .top_k = 0}),
          sample_case({.name = "top_k 40", .temperature = 0.6f, .top_p = 1, .top_k = 40}),
          {.op = "top_k",
           .what = "best 8",
           .dtype = shapes.backend->act,
           .make = [=](Operands& operands,
                       int64_t tokens) { return top_k_call(operands, vocab_size, 8, tokens); },
           .max_tokens = kMaxDecodeTokens}};
}

}  // namespace fathom::apps
