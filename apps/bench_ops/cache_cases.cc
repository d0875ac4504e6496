// Writing the latent cache, and reading it side by side for expanded attention.

#include "apps/bench_ops/cases.h"
#include "apps/bench_ops/paged_cache.h"
#include "apps/bench_ops/rope_angles.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// One row for each of so many sequences.
OpCall kv_append_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const config::ModelConfig& c = shapes.config;
  const PagedCache paged = PagedCache::make(operands, shapes, tokens, 1);
  std::vector<int64_t> kv_rows;
  for (const int32_t block : paged.block_order)
    kv_rows.push_back(block * kBenchedBlockTokens + operands.draw(kBenchedBlockTokens));
  const ops::KvAppendArgs args{
      .kv_a = operands.random(operands.backend().act, {tokens, c.kv_dim()}),
      .weight = operands.random(shapes.types.plain, {c.kv_lora_rank}, 0.5f, 1.0f),
      .eps = static_cast<float>(c.rms_norm_eps),
      .table = random_rope_table(operands, tokens, c.qk_rope_head_dim),
      .kv_rows = operands.upload(kv_rows, {tokens}),
      .cache = paged.cache};
  const auto written = static_cast<double>(tokens * paged.cache.format.row_bytes);
  const int64_t first = first_checked(tokens), count = tokens - first;
  // As many rows of one block of the reference.
  const auto room = [format = paged.cache.format](OnReference& on_reference) {
    return ops::KvCache{
        .rows = on_reference.empty(DType::kU8, {1, kBenchedBlockTokens, format.row_bytes}),
        .format = format};
  };
  return {.bytes = written + bytes_of({args.kv_a, args.weight, args.table, args.kv_rows}),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::kv_append(args, stream); },
          .expected =
              [=](OnReference& on_reference) {
                ops::KvAppendArgs cut = args;
                cut.kv_a = on_reference.act(checked(args.kv_a));
                cut.weight = on_reference.copy(args.weight);
                cut.table = on_reference.copy(checked(args.table));
                cut.cache = room(on_reference);
                std::vector<int64_t> rising;
                for (int64_t i = 0; i < count; ++i) rising.push_back(i);
                cut.kv_rows = on_reference.upload(rising, {count});
                ops::kv_append(cut, on_reference.stream());
                return cached_values(on_reference, cut.cache, count);
              },
          .actual =
              [=](OnReference& on_reference) {
                const ops::KvCache copy = room(on_reference);
                for (int64_t i = 0; i < count; ++i) {
                  const int64_t kv_row = kv_rows[static_cast<size_t>(first + i)];
                  on_reference.copy_into(
                      copy.rows[0][i],
                      args.cache.rows[kv_row / kBenchedBlockTokens][kv_row % kBenchedBlockTokens]);
                }
                return cached_values(on_reference, copy, count);
              }};
}

// All rows of one prompt.
OpCall kv_gather_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const config::ModelConfig& c = shapes.config;
  const DType act = operands.backend().act;
  const PagedCache paged = PagedCache::make(operands, shapes, 1, tokens);
  const Tensor latent = operands.empty(act, {tokens, c.kv_lora_rank});
  const Tensor k_rope = operands.empty(act, {tokens, c.qk_rope_head_dim});
  const ops::ExpandedSegment segment{.num_rows = tokens, .num_tokens = tokens, .first = true};
  const int64_t block = (tokens - 1) / kBenchedBlockTokens;
  const int64_t checked_rows = tokens - block * kBenchedBlockTokens;
  return {.bytes = static_cast<double>(tokens * paged.cache.format.row_bytes) +
                   bytes_of({latent, k_rope}),
          .prepare = paged.fill(operands, shapes),
          .run =
              [=](ops::Stream& stream) {
                ops::kv_gather({.cache = paged.cache,
                                .block_tables = paged.block_tables,
                                .segments = {&segment, 1},
                                .latent = latent,
                                .k_rope = k_rope},
                               stream);
              },
          .expected =
              [=](OnReference& on_reference) {
                return cached_values(on_reference,
                                     paged.on_reference(on_reference, 0, block, block + 1),
                                     checked_rows);
              },
          .actual =
              [=](OnReference& on_reference) {
                const int64_t begin = tokens - checked_rows;
                std::vector<float> values = on_reference.values(latent.slice(0, begin, tokens));
                const std::vector<float> rope = on_reference.values(k_rope.slice(0, begin, tokens));
                values.insert(values.end(), rope.begin(), rope.end());
                return values;
              }};
}

}  // namespace

std::vector<OpCase> cache_cases(const OpShapes& shapes) {
  return {{.op = "kv_append",
           .what = "one row each",
           .dtype = shapes.kv_cache_dtype,
           .make = [&shapes](Operands& operands,
                             int64_t tokens) { return kv_append_call(operands, shapes, tokens); }},
          {.op = "kv_gather",
           .what = "one prompt",
           .dtype = shapes.kv_cache_dtype,
           .make = [&shapes](Operands& operands,
                             int64_t tokens) { return kv_gather_call(operands, shapes, tokens); },
           .min_tokens = kMinPromptTokens}};
}

}  // namespace fathom::apps
