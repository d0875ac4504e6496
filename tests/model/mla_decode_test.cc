// Models whose steps of decodes go through mla_decode, or through mla_query and head_linear_quantize: such that run the
// parts, so that the bits must be those of a model without them.

#include <gtest/gtest.h>

#include <vector>

#include "cpu/reference/reference_backend.h"
#include "cpu/stream.h"
#include "ops/device_buffer.h"
#include "ops/head_linear.h"
#include "ops/mla.h"
#include "ops/mla_decode.h"
#include "ops/quantize_fp8.h"
#include "tensor/arena.h"
#include "tests/backends.h"
#include "tests/mla_parts.h"
#include "tests/model/step_harness.h"
#include "tests/model/v32_checkpoint.h"
#include "tests/source_tree.h"

namespace fathom::model {
namespace {

using tensor::DType, tensor::Tensor;

int num_calls = 0, num_query_calls = 0, num_out_calls = 0;

// Of CPUs: activations in float32 in memory of the host.
void run_queries(const ops::MlaQueryArgs& args, ops::Stream& stream) {
  ++num_query_calls;
  run_query_parts(args, stream);
}

void run_out_parts(const ops::HeadLinearQuantizeArgs& args, ops::Stream& stream) {
  ++num_out_calls;
  const ops::DeviceBuffer memory = *ops::DeviceBuffer::allocate(stream.backend(), 1 << 22);
  tensor::Arena arena = memory.arena();
  const int64_t tokens = args.x.dim(0), heads = args.x.dim(1), dim = args.weight.data.dim(1);
  if (args.attention != nullptr) ops::mla_absorbed(*args.attention, stream);
  const Tensor out = arena.allocate(DType::kF32, {tokens, heads, dim});
  ops::head_linear({.x = args.x, .weight = args.weight, .out = out}, stream);
  ops::quantize_fp8(
      {.x = out.reshape({tokens, heads * dim}), .q = args.out.values, .scale = args.out.scale},
      stream);
}

void run_parts(const ops::MlaDecodeArgs& args, ops::Stream& stream) {
  ++num_calls;
  const Tensor& uk = args.w_uk.data;
  const int64_t seqs = args.kv_len.dim(0), tokens = args.rows.kv_rows.dim(0);
  const int64_t heads = uk.dim(0), nope = uk.dim(2);
  const int64_t qk = nope + args.rows.table.dim(1);
  const ops::DeviceBuffer memory = *ops::DeviceBuffer::allocate(stream.backend(), 1 << 22);
  tensor::Arena arena = memory.arena();
  const auto rows = [&](int64_t dim) { return arena.allocate(DType::kF32, {tokens, heads, dim}); };
  const Tensor q = rows(qk), q_latent = rows(uk.dim(1)), latent = rows(uk.dim(1));
  const Tensor starts = arena.allocate(DType::kI32, {seqs + 1});
  for (int64_t s = 0; s <= seqs; ++s)
    starts.as<int32_t>()[s] = static_cast<int32_t>(s * tokens / seqs);
  if (args.q_a.is_null()) std::copy_n(args.q.as<float>(), args.q.num_elements(), q.as<float>());
  run_query_parts({.q_a = args.q_a,
                   .q_norm = args.q_norm,
                   .q_eps = args.q_eps,
                   .q_b = args.q_b,
                   .q = q,
                   .w_uk = args.w_uk,
                   .rows = args.rows,
                   .q_latent = q_latent},
                  stream);
  ops::mla_absorbed({.q_latent = q_latent,
                     .q_rope = q.slice(2, nope, qk),
                     .cache = args.rows.cache,
                     .query_start = starts,
                     .kv_len = args.kv_len,
                     .block_tables = args.block_tables,
                     .tree_mask = {},
                     .plan = {},
                     .scale = args.scale,
                     .out = latent},
                    stream);
  if (args.out.is_quantised())
    return run_out_parts({.x = latent, .weight = args.w_uv, .out = args.out}, stream);
  ops::head_linear({.x = latent, .weight = args.w_uv, .out = args.out.values}, stream);
}

// The reference with mla_decode for all decodes.
const ops::Backend& whole_backend() {
  static const ops::Backend backend = [] {
    ops::Backend table = cpu::reference_backend();
    table.mla_decode = {.run = run_parts};
    table.make_stream = [](const ops::StreamConfig&) -> std::unique_ptr<ops::Stream> {
      return std::make_unique<cpu::CpuStream>(whole_backend());
    };
    return table;
  }();
  return backend;
}

// The reference with mla_query and head_linear_quantize; of queries that are given alone, or of all.
template <bool kGiven>
const ops::Backend& ends_backend() {
  static const ops::Backend backend = [] {
    ops::Backend table = cpu::reference_backend();
    table.mla_query = {.run = run_queries,
                       .takes = [](const ops::MlaQueryArgs& args, const ops::Stream&) {
                         return !kGiven || args.q_a.is_null();
                       }};
    table.head_linear_quantize = {.run = run_out_parts};
    table.make_stream = [](const ops::StreamConfig&) -> std::unique_ptr<ops::Stream> {
      return std::make_unique<cpu::CpuStream>(ends_backend<kGiven>());
    };
    return table;
  }();
  return backend;
}

// Logits of two prompts and of some steps that decode both.
std::vector<std::vector<float>> answers(const LoadedModel& loaded,
                                        const std::vector<int32_t>& prompt = {5, 17, 260, 31}) {
  StepHarness harness(loaded, {});
  const int first = harness.add_sequence(), second = harness.add_sequence();
  std::vector<SliceOutput> out = harness.step(
      {{.sequence = first, .tokens = prompt}, {.sequence = second, .tokens = {77, 3}}});
  std::vector<std::vector<float>> rows = {out[0].logits.back(), out[1].logits.back()};
  for (int step = 0; step < 3; ++step) {
    out = harness.step({{.sequence = first, .tokens = {argmax(rows[rows.size() - 2])}},
                        {.sequence = second, .tokens = {argmax(rows.back())}}});
    for (const SliceOutput& slice : out) rows.push_back(slice.logits.back());
  }
  return rows;
}

TEST(MlaDecode, of_the_parts_changes_no_bit_of_a_model) {
  for (const bool dequantise : {false, true}) {
    ModelOptions options;
    options.dequantize = dequantise;
    const std::string path = source_path("models/demo");
    const LoadedModel loaded(path, options, whole_backend()),
        parts(path, options, cpu::reference_backend());
    num_calls = 0;
    const std::vector<std::vector<float>> actual = answers(loaded);
    EXPECT_EQ(num_calls, 3 * loaded.model().config().num_hidden_layers);
    EXPECT_EQ(actual, answers(parts)) << (dequantise ? "bf16" : "fp8");
  }
}

// A sequence's drafts: logits of three tokens at once behind a prompt that is long enough for the absorbed form.
std::vector<std::vector<float>> verified(const LoadedModel& loaded) {
  StepHarness harness(loaded, {});
  const int sequence = harness.add_sequence();
  harness.step({{.sequence = sequence, .tokens = std::vector<int32_t>(200, 5)}});
  return harness.step({{.sequence = sequence, .tokens = {17, 260, 31}}})[0].logits;
}

TEST(MlaDecode, of_the_parts_changes_no_bit_of_a_sequences_drafts) {
  const std::string path = source_path("models/demo");
  const LoadedModel loaded(path, {}, whole_backend()), parts(path, {}, cpu::reference_backend());
  num_calls = 0;
  const std::vector<std::vector<float>> actual = verified(loaded);
  EXPECT_EQ(num_calls, loaded.model().config().num_hidden_layers);
  EXPECT_EQ(actual, verified(parts));
}

TEST(MlaEnds, of_the_parts_change_no_bit_of_a_model) {
  for (const bool dequantise : {false, true}) {
    ModelOptions options;
    options.dequantize = dequantise;
    const std::string path = source_path("models/demo");
    const LoadedModel parts(path, options, cpu::reference_backend());
    const std::vector<std::vector<float>> expected = answers(parts);
    const int decodes = 3 * parts.model().config().num_hidden_layers;
    for (const ops::Backend* backend : {&ends_backend<false>(), &ends_backend<true>()}) {
      const LoadedModel loaded(path, options, *backend);
      num_query_calls = num_out_calls = 0;
      EXPECT_EQ(answers(loaded), expected) << (dequantise ? "bf16" : "fp8");
      EXPECT_EQ(num_query_calls, decodes);
      EXPECT_EQ(num_out_calls, dequantise ? 0 : decodes);
    }
  }
}

// One of the sequences has more rows than are kept, so queries come joined with those of the indexer.
TEST(MlaEnds, of_the_parts_change_no_bit_of_a_model_with_an_indexer) {
  const V32Checkpoint checkpoint({.is_fp8 = true});
  const std::vector<int32_t> prompt = v32_prompt(kV32Topk + 6);
  const LoadedModel loaded(checkpoint.directory(), {}, ends_backend<false>()),
      parts(checkpoint.directory(), {}, cpu::reference_backend());
  num_query_calls = num_out_calls = 0;
  EXPECT_EQ(answers(loaded, prompt), answers(parts, prompt));
  EXPECT_EQ(num_query_calls, 3 * kV32Layers);
  EXPECT_EQ(num_out_calls, 3 * kV32Layers);
}

}  // namespace
}  // namespace fathom::model
