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
  expect("kv_rows", args.kv_rows, DType::kI64, {&tokens});
  FATHOM_CHECK(kv_dim.value() == kv_lora_rank.value() + qk_rope_head_dim.value(),
               "kv_dim is " << kv_dim.value() << ", kv_lora_rank " << kv_lora_rank.value()
                            << " + qk_rope_head_dim " << qk_rope_head_dim.value());
  FATHOM_CHECK(qk_rope_head_dim.value() % 2 == 0,
               "qk_rope_head_dim is " << qk_rope_head_dim.value() << ", must be even");
  expect_kv_cache(args.cache, kv_lora_rank.value(), qk_rope_head_dim.value());
  expect_contiguous("table", args.table);
  dispatch("kv_append", args.cache.format.latent, stream.backend().kv_append, args, stream);
}

void expect_segments(std::span<const ExpandedSegment> segments, int64_t buffer_rows) {
  int64_t rows = 0;
  for (const ExpandedSegment& segment : segments) {
    FATHOM_CHECK(segment.buffer_begin == rows && segment.num_rows >= 0,
                 "segment of " << segment.num_rows << " rows at " << segment.buffer_begin
                               << " of the buffer, expected at " << rows);
    FATHOM_CHECK(segment.row_begin >= 0, "segment begins at row " << segment.row_begin);
    rows += segment.num_rows;
  }
  FATHOM_CHECK(rows == buffer_rows,
               "segments have " << rows << " rows, the buffer " << buffer_rows);
}

void kv_gather(const KvGatherArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim seqs("seqs"), max_blocks("max_blocks"), rows("rows");
  Dim kv_lora_rank("kv_lora_rank"), qk_rope_head_dim("qk_rope_head_dim");
  expect("block_tables", args.block_tables, DType::kI32, {&seqs, &max_blocks});
  expect("latent", args.latent, act, {&rows, &kv_lora_rank});
  expect("k_rope", args.k_rope, act, {&rows, &qk_rope_head_dim});
  expect_kv_cache(args.cache, kv_lora_rank.value(), qk_rope_head_dim.value());
  expect_segments(args.segments, rows.value());
  const int64_t block_tokens = args.cache.block_tokens();
  for (const ExpandedSegment& segment : args.segments) {
    FATHOM_CHECK(segment.sequence_idx >= 0 && segment.sequence_idx < seqs.value(),
                 "sequence_idx is " << segment.sequence_idx << " of " << seqs.value());
    const int64_t end = segment.row_begin + segment.num_rows;
    FATHOM_CHECK(end <= max_blocks.value() * block_tokens,
                 "rows [" << segment.row_begin << ", " << end << ") of " << max_blocks.value()
                          << " blocks of " << block_tokens);
  }
  expect_contiguous("block_tables", args.block_tables);
  dispatch("kv_gather", args.cache.format.latent, stream.backend().kv_gather, args, stream);
}

}  // namespace fathom::ops
