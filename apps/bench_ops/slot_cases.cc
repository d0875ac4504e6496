// What a step does around the model: inputs from slots, sampled tokens into slots, changes of slots between steps.

#include "apps/bench_ops/exact.h"
#include "apps/bench_ops/paged_cache.h"
#include "ops/step.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// Slices of so many query tokens each, over as many slots in random order.
OpCall step_inputs_call(Operands& operands, const OpShapes& shapes, int64_t slices,
                        int64_t per_slice) {
  const int64_t tokens = slices * per_slice, context = shapes.contexts.front();
  const int64_t blocks = (context + per_slice - 1) / kBenchedBlockTokens + 1;
  const std::vector<int64_t> slots = operands.permutation(slices),
                             order = operands.permutation(slices * blocks);
  const bool is_decode = per_slice == 1;
  const auto id = [&](int64_t) {
    return static_cast<int32_t>(operands.draw(shapes.config.vocab_size));
  };
  std::vector<int32_t> tables(order.begin(), order.end());
  const ops::StepInputsArgs args{
      .last_token = made(operands, slices, id),
      .length = filled(operands, slices, static_cast<int32_t>(context)),
      .block_tables = operands.upload(tables, {slices, blocks}),
      .slice_slot =
          made(operands, slices,
               [&](int64_t i) { return static_cast<int32_t>(slots[static_cast<size_t>(i)]); }),
      .query_start = made(operands, slices + 1,
                          [&](int64_t i) { return static_cast<int32_t>(i * per_slice); }),
      .given_token = made(operands, tokens, [&](int64_t i) { return is_decode ? -1 : id(i); }),
      .relative =
          made(operands, tokens, [&](int64_t i) { return static_cast<int32_t>(i % per_slice); }),
      .block_tokens = kBenchedBlockTokens,
      .token_ids = operands.empty(DType::kI32, {tokens}),
      .positions = operands.empty(DType::kI32, {tokens}),
      .kv_rows = operands.empty(DType::kI64, {tokens}),
      .kv_len = operands.empty(DType::kI32, {slices}),
      .tables = operands.empty(DType::kI32, {slices, blocks})};
  const auto all = [](auto& a, const auto& each) {
    for (auto* tensor :
         {&a.last_token, &a.length, &a.block_tables, &a.slice_slot, &a.query_start, &a.given_token,
          &a.relative, &a.token_ids, &a.positions, &a.kv_rows, &a.kv_len, &a.tables})
      each(*tensor);
  };
  return exact_call(args, all, ops::step_inputs, bytes_of_arguments(args, all));
}

OpCall commit_tokens_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const std::vector<int64_t> slots = operands.permutation(tokens);
  const auto index = [](int64_t i) { return static_cast<int32_t>(i); };
  const auto id = [&](int64_t) {
    return static_cast<int32_t>(operands.draw(shapes.config.vocab_size));
  };
  const ops::CommitTokensArgs args{
      .last_token = made(operands, tokens, id),
      .length = filled(operands, tokens, static_cast<int32_t>(shapes.contexts.front())),
      .slice_slot =
          made(operands, tokens,
               [&](int64_t i) { return static_cast<int32_t>(slots[static_cast<size_t>(i)]); }),
      .query_start = made(operands, tokens + 1, index),
      .sampled = made(operands, tokens, id),
      .commit_row = made(operands, tokens, index),
      .penalty_row = filled(operands, tokens, int32_t{-1}),
      .counts = {}};
  const auto all = [](auto& a, const auto& each) {
    for (auto* tensor : {&a.last_token, &a.length, &a.slice_slot, &a.query_start, &a.sampled,
                         &a.commit_row, &a.penalty_row})
      each(*tensor);
  };
  // Lengths are read and written.
  return exact_call(args, all, ops::commit_tokens,
                    bytes_of_arguments(args, all) + bytes_of({args.length}));
}

// Words here and there in an array of four times as many.
OpCall write_words_call(Operands& operands, const OpShapes&, int64_t words) {
  const Tensor array = filled(operands, 4 * words, int32_t{0});
  const std::vector<int64_t> order = operands.permutation(4 * words);
  std::vector<float> expected(order.size());
  std::vector<uint64_t> addresses;
  std::vector<int32_t> values;
  for (size_t i = 0; i < static_cast<size_t>(words); ++i) {
    const auto place = static_cast<size_t>(order[i]);
    values.push_back(static_cast<int32_t>(1 + operands.draw(1 << 20)));
    addresses.push_back(reinterpret_cast<uint64_t>(array.data()) + place * sizeof(int32_t));
    expected[place] = static_cast<float>(values.back());
  }
  const ops::WriteWordsArgs args{.address = operands.upload(addresses, {words}),
                                 .value = operands.upload(values, {words})};
  return {.bytes = bytes_of({args.address, args.value, args.value}),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::write_words(args, stream); },
          .expected = [](OnReference&) { return all_right(true); },
          .actual =
              [=](OnReference& on_reference) {
                return all_right(on_reference.values(array) == expected);
              }};
}

// Half of the tokens are the prompt's.
OpCall count_tokens_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const int64_t vocab_size = shapes.config.vocab_size;
  const ops::CountTokensArgs args{
      .counts = filled(operands, vocab_size, int32_t{0}),
      .tokens = made(operands, tokens,
                     [&](int64_t) { return static_cast<int32_t>(operands.draw(vocab_size)); }),
      .num_prompt = tokens / 2};
  const auto all = [](auto& a, const auto& each) { each(a.counts), each(a.tokens); };
  // Of the counts of tokens what is read and written again.
  return exact_call(args, all, ops::count_tokens,
                    bytes_of({args.counts, args.tokens, args.tokens, args.tokens}));
}

}  // namespace

std::vector<OpCase> slot_cases(const OpShapes& shapes) {
  const DType act = shapes.backend->act;
  const auto with_shapes = [&shapes](auto call) {
    return [&shapes, call](Operands& operands, int64_t tokens) {
      return call(operands, shapes, tokens);
    };
  };
  return {
      {.op = "step_inputs",
       .what = "decodes",
       .dtype = act,
       .make = [&shapes](Operands& operands,
                         int64_t tokens) { return step_inputs_call(operands, shapes, tokens, 1); },
       .max_tokens = kMaxDecodeTokens},
      {.op = "step_inputs",
       .what = "one prompt",
       .dtype = act,
       .make = [&shapes](Operands& operands,
                         int64_t tokens) { return step_inputs_call(operands, shapes, 1, tokens); },
       .min_tokens = kMinPromptTokens},
      {.op = "commit_tokens",
       .what = "decodes",
       .dtype = act,
       .make = with_shapes(commit_tokens_call),
       .max_tokens = kMaxDecodeTokens},
      {.op = "write_words",
       .what = "slot changes",
       .dtype = act,
       .make = with_shapes(write_words_call)},
      {.op = "count_tokens",
       .what = "one prompt",
       .dtype = act,
       .make = with_shapes(count_tokens_call),
       .min_tokens = kMinPromptTokens}};
}

}  // namespace fathom::apps
