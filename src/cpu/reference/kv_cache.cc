#include "ops/kv_cache.h"

#include <algorithm>

#include "cpu/reference/kv_row.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/rope.h"
#include "cpu/reference/vector_math.h"
#include "cpu/stream.h"

namespace fathom::cpu::reference {

namespace {

struct AppendScratch {
  float* weight;  // [kv_lora_rank]
  float* row;     // [kv_dim]
};

AppendScratch carve(const ops::KvAppendArgs& args, ScratchArena& arena) {
  return {.weight = arena.take<float>(args.weight.dim(0)),
          .row = arena.take<float>(args.kv_a.dim(1))};
}

}  // namespace

int64_t kv_append_scratch(const ops::KvAppendArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args, arena);
  return arena.bytes();
}

int64_t kv_gather_scratch(const ops::KvGatherArgs& args, const ops::Stream&) {
  return args.cache.format.dim() * int64_t{sizeof(float)};
}

void kv_append(const ops::KvAppendArgs& args, ops::Stream& stream) {
  const int64_t kv_dim = args.kv_a.dim(1), kv_lora_rank = args.weight.dim(0);
  const int64_t num_rows = args.cache.num_blocks() * args.cache.block_tokens();
  ScratchArena arena(stream.scratch());
  const AppendScratch scratch = carve(args, arena);
  float* const row = scratch.row;
  const float* weight =
      as_floats(args.weight.data(), args.weight.dtype(), kv_lora_rank, scratch.weight);
  for (int64_t token = 0; token < args.kv_a.dim(0); ++token) {
    const int64_t kv_row = *args.kv_rows.row<int64_t>(token);
    if (kv_row == -1) continue;  // padding
    FATHOM_CHECK(kv_row >= 0 && kv_row < num_rows,
                 "kv_rows[" << token << "] is " << kv_row << " of " << num_rows);
    const float* kv_a = args.kv_a.row<float>(token);
    const float factor = inverse_rms(kv_a, kv_lora_rank, args.eps);
    for (int64_t i = 0; i < kv_lora_rank; ++i) row[i] = kv_a[i] * factor * weight[i];
    rotate(kv_a + kv_lora_rank, args.table.row<float>(token), kv_dim - kv_lora_rank,
           row + kv_lora_rank);
    store_kv_row(row, args.cache, kv_row);
  }
}

void kv_gather(const ops::KvGatherArgs& args, ops::Stream& stream) {
  const int64_t num_blocks = args.cache.num_blocks(), block_tokens = args.cache.block_tokens();
  const int64_t kv_lora_rank = args.latent.dim(1), qk_rope_head_dim = args.k_rope.dim(1);
  auto* row = static_cast<float*>(stream.scratch());
  for (const ops::ExpandedSegment& segment : args.segments) {
    const int32_t* table = args.block_tables.row<int32_t>(segment.sequence_idx);
    for (int64_t i = 0; i < segment.num_rows; ++i) {
      const int64_t block = (segment.row_begin + i) / block_tokens;
      FATHOM_CHECK(table[block] >= 0 && table[block] < num_blocks,
                   "block table entry " << block << " is " << table[block] << " of " << num_blocks);
      const int64_t kv_row =
          int64_t{table[block]} * block_tokens + (segment.row_begin + i) % block_tokens;
      const float* values = load_kv_row(args.cache, kv_row, row);
      const int64_t to = segment.buffer_begin + i;
      std::copy_n(values, kv_lora_rank, args.latent.row<float>(to));
      std::copy_n(values + kv_lora_rank, qk_rope_head_dim, args.k_rope.row<float>(to));
    }
  }
}

}  // namespace fathom::cpu::reference
