#include "apps/bench_ops/paged_cache.h"

#include <algorithm>
#include <numeric>

#include "apps/bench_ops/rope_angles.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// Rows that are appended at once. The same ones go to many blocks.
constexpr int64_t kFillRows = 2048;

}  // namespace

PagedCache PagedCache::make(Operands& operands, const OpShapes& shapes, int64_t sequences,
                            int64_t rows) {
  const config::ModelConfig& c = shapes.config;
  const auto format = ops::KvFormat::of(shapes.kv_cache_dtype, c.kv_lora_rank, c.qk_rope_head_dim);
  PagedCache paged;
  paged.blocks_per_sequence = (rows + kBenchedBlockTokens - 1) / kBenchedBlockTokens;
  const int64_t blocks = sequences * paged.blocks_per_sequence;
  paged.cache = {
      .rows = operands.empty(DType::kU8, {blocks, kBenchedBlockTokens, format.row_bytes}),
      .format = format};
  for (const int64_t block : operands.permutation(blocks))
    paged.block_order.push_back(static_cast<int32_t>(block));
  paged.block_tables = operands.upload(paged.block_order, {sequences, paged.blocks_per_sequence});
  return paged;
}

std::function<void(ops::Stream&)> PagedCache::fill(Operands& operands,
                                                   const OpShapes& shapes) const {
  const config::ModelConfig& c = shapes.config;
  const int64_t rows = std::min(num_rows(), kFillRows);
  std::vector<int64_t> kv_rows(static_cast<size_t>(num_rows()));
  std::iota(kv_rows.begin(), kv_rows.end(), 0);
  const Tensor all_rows = operands.upload(kv_rows, {num_rows()});
  ops::KvAppendArgs args{
      .kv_a = operands.random(operands.backend().act, {rows, c.kv_dim()}),
      .weight = operands.random(shapes.types.plain, {c.kv_lora_rank}, 0.5f, 1.0f),
      .table = random_rope_table(operands, rows, c.qk_rope_head_dim),
      .kv_rows = {},
      .cache = cache};
  return [args, all_rows](ops::Stream& stream) {
    for (int64_t begin = 0; begin < all_rows.dim(0); begin += args.kv_a.dim(0)) {
      const int64_t count = std::min(args.kv_a.dim(0), all_rows.dim(0) - begin);
      ops::KvAppendArgs part = args;
      part.kv_a = args.kv_a.slice(0, 0, count);
      part.table = args.table.slice(0, 0, count);
      part.kv_rows = all_rows.slice(0, begin, begin + count);
      ops::kv_append(part, stream);
    }
  };
}

ops::KvCache PagedCache::on_reference(OnReference& reference, int64_t sequence, int64_t begin,
                                      int64_t end) const {
  const ops::KvCache copy{.rows = reference.empty(DType::kU8, {end - begin, kBenchedBlockTokens,
                                                               cache.format.row_bytes}),
                          .format = cache.format};
  for (int64_t i = begin; i < end; ++i) {
    const auto entry = static_cast<size_t>(sequence * blocks_per_sequence + i);
    reference.copy_into(copy.rows[i - begin], cache.rows[block_order[entry]]);
  }
  return copy;
}

std::vector<float> cached_values(OnReference& reference, const ops::KvCache& cache, int64_t rows) {
  const Tensor latent = reference.empty(DType::kF32, {rows, cache.format.latent_dim});
  const Tensor k_rope = reference.empty(DType::kF32, {rows, cache.format.rope_dim});
  const ops::ExpandedSegment segment{.num_rows = rows};
  ops::kv_gather({.cache = cache,
                  .block_tables = rising_table(reference, cache.num_blocks()),
                  .segments = {&segment, 1},
                  .latent = latent,
                  .k_rope = k_rope},
                 reference.stream());
  std::vector<float> values = values_of(latent);
  const std::vector<float> rope = values_of(k_rope);
  values.insert(values.end(), rope.begin(), rope.end());
  return values;
}

Tensor rising_table(OnReference& reference, int64_t blocks) {
  std::vector<int32_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  return reference.upload(order, {1, blocks});
}

}  // namespace fathom::apps
