#include "ops/index.h"

#include <bit>

#include "ops/boundary.h"
#include "ops/kv_cache.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of, tensor::expect_or_null;

namespace {

constexpr std::initializer_list<DType> kKeyTypes = {DType::kF32, DType::kF8E4M3};

void expect_index_cache(const IndexCache& cache, Dim& dim) {
  Dim blocks("blocks"), block_tokens("block_tokens");
  expect_one_of("cache values", cache.values, kKeyTypes, {&blocks, &block_tokens, &dim});
  const bool has_scales = IndexFormat::of(cache.values.dtype(), dim.value()).has_scale();
  FATHOM_CHECK(has_scales != cache.scales.is_null(),
               "cache scales are " << (has_scales ? "missing" : "given") << ", values are "
                                   << tensor::dtype_name(cache.values.dtype()));
  if (has_scales) expect("cache scales", cache.scales, DType::kF32, {&blocks, &block_tokens});
  expect_contiguous("cache values", cache.values);
  expect_contiguous("cache scales", cache.scales);
}

// dim: of keys and queries. rope_dim: of the table.
void expect_rotated(int64_t dim, int64_t rope_dim, DType keys) {
  FATHOM_CHECK(rope_dim % 2 == 0 && rope_dim <= dim, "table axis 1: qk_rope_head_dim is "
                                                         << rope_dim
                                                         << ", must be even and at most " << dim);
  FATHOM_CHECK(keys == DType::kF32 || std::has_single_bit(static_cast<uint64_t>(dim)),
               "index_head_dim is " << dim << ", must be a power of two");
}

// tokens: of the whole batch.
void expect_queries(const IndexQueries& queries, const Dim& tokens, Dim& max_blocks) {
  Dim seqs("seqs"), starts("seqs + 1"), all("tokens", tokens.value());
  expect("kv_len", queries.kv_len, DType::kI32, {&seqs});
  expect("query_start", queries.query_start, DType::kI32, {&starts});
  expect("block_tables", queries.block_tables, DType::kI32, {&seqs, &max_blocks});
  expect_or_null("tree_mask", queries.tree_mask, DType::kU64, {&all});
  FATHOM_CHECK(starts.value() == seqs.value() + 1, "query_start axis 0: seqs + 1 is "
                                                       << seqs.value() + 1 << ", got "
                                                       << starts.value());
  FATHOM_CHECK(queries.token_begin >= 0 && queries.token_begin <= queries.token_end &&
                   queries.token_end <= tokens.value(),
               "query tokens [" << queries.token_begin << ", " << queries.token_end << ") of "
                                << tokens.value());
}

void expect_scores(const tensor::Tensor& scores, const IndexQueries& queries, int64_t max_rows) {
  Dim range("token_end - token_begin", queries.num_tokens()), rows("max_rows", max_rows);
  expect("scores", scores, DType::kF32, {&range, &rows});
  expect_contiguous("scores", scores);
}

void expect_append(const IndexAppendArgs& args, const Stream& stream) {
  Dim tokens("tokens"), dim("index_head_dim"), rope_dim("qk_rope_head_dim");
  expect("k", args.k, stream.backend().act, {&tokens, &dim});
  expect_one_of("weight", args.weight, {DType::kF32, DType::kBf16}, {&dim});
  expect("bias", args.bias, DType::kF32, {&dim});
  expect("table", args.table, DType::kF32, {&tokens, &rope_dim});
  expect("kv_rows", args.kv_rows, DType::kI64, {&tokens});
  expect_index_cache(args.cache, dim);
  expect_rotated(dim.value(), rope_dim.value(), args.cache.values.dtype());
  expect_contiguous("table", args.table);
}

void expect_query(const IndexQueryArgs& args, const Stream& stream) {
  Dim tokens("tokens"), heads("index_n_heads"), dim("index_head_dim"), rope_dim("qk_rope_head_dim");
  expect("q", args.q, stream.backend().act, {&tokens, &heads, &dim});
  expect("w", args.w, DType::kF32, {&tokens, &heads});
  expect("table", args.table, DType::kF32, {&tokens, &rope_dim});
  expect_one_of("out", args.out, kKeyTypes, {&tokens, &heads, &dim});
  expect("weights", args.weights, DType::kF32, {&tokens, &heads});
  expect_rotated(dim.value(), rope_dim.value(), args.out.dtype());
  for (const std::pair<const char*, const tensor::Tensor*>& entry :
       {std::pair{"q", &args.q}, std::pair{"w", &args.w}, std::pair{"table", &args.table},
        std::pair{"out", &args.out}, std::pair{"weights", &args.weights}})
    expect_contiguous(entry.first, *entry.second);
}

void expect_compressed(const IndexAppendQueryArgs& args, const Stream& stream) {
  Dim tokens("tokens", args.query.q.dim(0)), q_lora_rank("q_lora_rank");
  Dim out("index_n_heads * index_head_dim", args.query.q.dim(1) * args.query.q.dim(2));
  expect("q_a", args.q_a, stream.backend().act, {&tokens, &q_lora_rank});
  expect_one_of("q_norm", args.q_norm, {DType::kF32, DType::kBf16}, {&q_lora_rank});
  expect_one_of("wq_b", args.wq_b.data, kMatrixTypes, {&out, &q_lora_rank});
  expect_weight_scale("wq_b's scale", args.wq_b, q_lora_rank.value(), out.value());
  expect_contiguous("wq_b", args.wq_b.data);
}

}  // namespace

void index_append(const IndexAppendArgs& args, Stream& stream) {
  expect_append(args, stream);
  dispatch("index_append", args.cache.values.dtype(), stream.backend().index_append, args, stream);
}

void index_query(const IndexQueryArgs& args, Stream& stream) {
  expect_query(args, stream);
  dispatch("index_query", args.out.dtype(), stream.backend().index_query, args, stream);
}

LinearArgs weights_product(const IndexAppendQueryArgs& args) {
  return {.x = args.x, .weight = {.data = args.weights_proj, .scale = {}}, .out = args.query.w};
}

void index_append_query(const IndexAppendQueryArgs& args, Stream& stream) {
  expect_append(args.append, stream);
  expect_query(args.query, stream);
  const DType keys = args.append.cache.values.dtype();
  Dim tokens("tokens", args.append.k.dim(0)), dim("index_head_dim", args.append.k.dim(1));
  Dim heads("index_n_heads");
  Dim hidden("hidden");
  expect("out", args.query.out, keys, {&tokens, &heads, &dim});
  expect("x", args.x, stream.backend().act, {&tokens, &hidden});
  expect_one_of("weights_proj", args.weights_proj, {DType::kF32, DType::kBf16}, {&heads, &hidden});
  expect_contiguous("weights_proj", args.weights_proj);
  if (!args.q_a.is_null()) expect_compressed(args, stream);
  dispatch("index_append_query", keys, stream.backend().index_append_query, args, stream);
}

void index_scores(const IndexScoresArgs& args, Stream& stream) {
  Dim tokens("tokens"), heads("index_n_heads"), dim("index_head_dim"), max_blocks("max_blocks");
  const DType keys = args.cache.values.dtype();
  expect("q", args.q, keys, {&tokens, &heads, &dim});
  expect("weights", args.weights, DType::kF32, {&tokens, &heads});
  expect_index_cache(args.cache, dim);
  expect_queries(args.queries, tokens, max_blocks);
  expect_scores(args.scores, args.queries, max_blocks.value() * args.cache.block_tokens());
  FATHOM_CHECK(args.topk > 0, "topk is " << args.topk);
  expect_contiguous("q", args.q);
  expect_contiguous("weights", args.weights);
  dispatch("index_scores", keys, stream.backend().index_scores, args, stream);
}

void top_rows(const TopRowsArgs& args, Stream& stream) {
  Dim tokens("tokens"), topk("topk"), max_blocks("max_blocks");
  expect("rows", args.rows, DType::kI32, {&tokens, &topk});
  expect("counts", args.counts, DType::kI32, {&tokens});
  expect_queries(args.queries, tokens, max_blocks);
  FATHOM_CHECK(topk.value() > 0 && args.block_tokens > 0,
               "topk is " << topk.value() << ", block_tokens " << args.block_tokens);
  const int64_t max_rows = max_blocks.value() * args.block_tokens;
  if (max_rows > topk.value() || !args.scores.is_null())
    expect_scores(args.scores, args.queries, max_rows);
  expect_contiguous("rows", args.rows);
  if (!args.kept.is_null()) {
    Dim words("words");
    expect("kept", args.kept, DType::kI32, {&tokens, &words});
    expect_contiguous("kept", args.kept);
    FATHOM_CHECK(words.value() % kKeptWords == 0, "kept has " << words.value() << " words");
  }
  dispatch("top_rows", DType::kF32, stream.backend().top_rows, args, stream);
}

void mla_sparse(const MlaSparseArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim tokens("tokens"), heads("heads"), kv_lora_rank("kv_lora_rank");
  Dim qk_rope_head_dim("qk_rope_head_dim"), topk("topk");
  expect("q_latent", args.q_latent, act, {&tokens, &heads, &kv_lora_rank});
  expect("q_rope", args.q_rope, act, {&tokens, &heads, &qk_rope_head_dim});
  expect("rows", args.rows, DType::kI32, {&tokens, &topk});
  expect("counts", args.counts, DType::kI32, {&tokens});
  expect("out", args.out, act, {&tokens, &heads, &kv_lora_rank});
  expect_kv_cache(args.cache, kv_lora_rank.value(), qk_rope_head_dim.value());
  expect_contiguous("q_latent", args.q_latent);
  expect_contiguous("rows", args.rows);
  expect_contiguous("out", args.out);
  dispatch("mla_sparse", args.cache.format.latent, stream.backend().mla_sparse, args, stream);
}

}  // namespace fathom::ops
