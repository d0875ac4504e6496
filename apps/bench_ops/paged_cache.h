#pragma once
// PagedCache: a latent cache whose blocks belong to sequences in random order, as after a while of serving.
//
//   PagedCache paged = PagedCache::make(operands, shapes, /*sequences=*/8, /*rows=*/1024);
//   paged.fill(operands, shapes) -> what fills it on a stream, once
//   ops::mla_absorbed({.cache = paged.cache, .block_tables = paged.block_tables, ...}, stream);
//
// Views and numbers; the operands own the memory.

#include <functional>

#include "apps/bench_ops/cases.h"
#include "ops/kv_cache.h"

namespace fathom::apps {

inline constexpr int64_t kBenchedBlockTokens = 64;

struct PagedCache {
  ops::KvCache cache;
  tensor::Tensor block_tables;       // i32[sequences, blocks of one]
  std::vector<int32_t> block_order;  // the same numbers
  int64_t blocks_per_sequence = 0;

  static PagedCache make(Operands& operands, const OpShapes& shapes, int64_t sequences,
                         int64_t rows);

  int64_t num_rows() const { return cache.num_blocks() * kBenchedBlockTokens; }
  // Appends random rows everywhere.
  std::function<void(ops::Stream&)> fill(Operands& operands, const OpShapes& shapes) const;
  // Blocks [begin, end) of a sequence side by side, on the reference.
  ops::KvCache on_reference(OnReference& reference, int64_t sequence, int64_t begin,
                            int64_t end) const;
};

// c ++ k_rope of the first rows of a cache of the reference.
std::vector<float> cached_values(OnReference& reference, const ops::KvCache& cache, int64_t rows);
// Blocks 0 to n - 1 of one sequence, in order.
tensor::Tensor rising_table(OnReference& reference, int64_t blocks);

}  // namespace fathom::apps
