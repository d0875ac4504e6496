#include "ops/kv_cache.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of;

void expect_kv_cache(const KvCache& cache, int64_t kv_lora_rank, int64_t qk_rope_head_dim) {
  Dim blocks("blocks"), block_tokens("block_tokens"), row_bytes("row_bytes");
  const KvFormat& format = cache.format;
  expect("cache", cache.rows, DType::kU8, {&blocks, &block_tokens, &row_bytes});
  FATHOM_CHECK(format == KvFormat::of(format.latent, kv_lora_rank, qk_rope_head_dim),
               "cache rows are of " << format.latent_dim << " + " << format.rope_dim
                                    << " values, must be kv_lora_rank " << kv_lora_rank
                                    << " + qk_rope_head_dim " << qk_rope_head_dim);
  FATHOM_CHECK(row_bytes.value() == format.row_bytes,
               "cache axis 2: row_bytes is " << format.row_bytes << ", got " << row_bytes.value());
  expect_contiguous("cache", cache.rows);
}

void kv_append(const KvAppendArgs& args, Stream& stream) {
  Dim tokens("tokens"), kv_dim("kv_dim"), kv_lora_rank("kv_lora_rank");
  Dim qk_rope_head_dim("qk_rope_head_dim");
  expect("kv_a", args.kv_a, stream.backend().act, {&tokens, &kv_dim});
  expect_one_of("weight", args.weight, {DType::kF32, DType::kBf16}, {&kv_lora_rank});
  expect("table", args.table, DType::kF32, {&tokens, &qk_rope_head_dim});
  expect("slots", args.slots, DType::kI64, {&tokens});
  FATHOM_CHECK(kv_dim.value() == kv_lora_rank.value() + qk_rope_head_dim.value(),
               "kv_dim is " << kv_dim.value() << ", kv_lora_rank " << kv_lora_rank.value()
                            << " + qk_rope_head_dim " << qk_rope_head_dim.value());
  FATHOM_CHECK(qk_rope_head_dim.value() % 2 == 0,
               "qk_rope_head_dim is " << qk_rope_head_dim.value() << ", must be even");
  expect_kv_cache(args.cache, kv_lora_rank.value(), qk_rope_head_dim.value());
  expect_contiguous("table", args.table);
  dispatch("kv_append", stream.backend().kv_append, args, stream);
}

void kv_gather(const KvGatherArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim max_blocks("max_blocks"), rows("end - begin", args.end - args.begin);
  Dim kv_lora_rank("kv_lora_rank"), qk_rope_head_dim("qk_rope_head_dim");
  expect("block_table", args.block_table, DType::kI32, {&max_blocks});
  expect("latent", args.latent, act, {&rows, &kv_lora_rank});
  expect("k_rope", args.k_rope, act, {&rows, &qk_rope_head_dim});
  expect_kv_cache(args.cache, kv_lora_rank.value(), qk_rope_head_dim.value());
  const int64_t block_tokens = args.cache.block_tokens();
  FATHOM_CHECK(
      args.begin >= 0 && args.begin <= args.end && args.end <= max_blocks.value() * block_tokens,
      "rows [" << args.begin << ", " << args.end << ") of " << max_blocks.value() << " blocks of "
               << block_tokens);
  expect_contiguous("latent", args.latent);
  expect_contiguous("k_rope", args.k_rope);
  dispatch("kv_gather", stream.backend().kv_gather, args, stream);
}

}  // namespace fathom::ops
