#pragma once
// The latent cache of MLA: one row per token, shared by all heads (DeepSeek-V2 report, section 2.1).
//   row = rmsnorm(c) ++ rope(k_rope),  c = kv_a[:kv_lora_rank], k_rope = kv_a[kv_lora_rank:]
// Blocks of block_tokens rows; flat slot = block_id * block_tokens + offset.
//
// kv_append: writes the rows of this step
//   kv_a    act[tokens, kv_dim]     output of kv_a_proj_with_mqa; kv_dim = kv_lora_rank + qk_rope_head_dim
//   weight  f32|bf16[kv_lora_rank]  kv_a_layernorm
//   table   f32[tokens, qk_rope_head_dim]   of ops/rope.h
//   slots   i64[tokens]             flat slot; -1 = padding, writes nothing
//   cache   u8[blocks, block_tokens, row_bytes] of a format (ops/kv_format.h)   written in place
//   REQUIRES: slots pairwise distinct except for -1.
//
// kv_gather: reads rows [begin, end) of one sequence for expanded attention; f8 values times their scale
//   block_table  i32[max_blocks]    of that sequence
//   latent       act[end - begin, kv_lora_rank]
//   k_rope       act[end - begin, qk_rope_head_dim]

#include "ops/backend.h"
#include "ops/kv_format.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct KvAppendArgs {
  tensor::Tensor kv_a, weight;
  float eps = 1e-6f;
  tensor::Tensor table, slots;
  KvCache cache;
};
void kv_append(const KvAppendArgs& args, Stream& stream);

struct KvGatherArgs {
  KvCache cache;
  tensor::Tensor block_table;
  int64_t begin = 0, end = 0;
  tensor::Tensor latent, k_rope;
};
void kv_gather(const KvGatherArgs& args, Stream& stream);

// For the boundary checks of operators that read or write a cache: rows of its format, whose values are
// kv_lora_rank + qk_rope_head_dim.
void expect_kv_cache(const KvCache& cache, int64_t kv_lora_rank, int64_t qk_rope_head_dim);

}  // namespace fathom::ops
