#include "ops/mla.h"

#include "ops/boundary.h"
#include "ops/index.h"
#include "ops/kv_cache.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_or_null;

namespace {

// The lengths of a step's absorbed sequences, `tokens` query tokens together.
void expect_lengths(const tensor::Tensor& query_start, const tensor::Tensor& kv_len,
                    const tensor::Tensor& tree_mask, Dim& tokens, Dim& seqs) {
  Dim starts("seqs + 1");
  expect("kv_len", kv_len, DType::kI32, {&seqs});
  expect("query_start", query_start, DType::kI32, {&starts});
  expect_or_null("tree_mask", tree_mask, DType::kU64, {&tokens});
  FATHOM_CHECK(starts.value() == seqs.value() + 1, "query_start axis 0: seqs + 1 is "
                                                       << seqs.value() + 1 << ", got "
                                                       << starts.value());
}

void expect_plan(const tensor::Tensor& plan, const MlaPlanShape& shape, const Backend& backend) {
  FATHOM_CHECK(backend.mla_plan_bytes != nullptr, backend.name << " has no plan of attention");
  Dim bytes("bytes");
  expect("plan", plan, DType::kU8, {&bytes});
  const int64_t needed = backend.mla_plan_bytes(shape);
  FATHOM_CHECK(bytes.value() >= needed,
               "plan has " << bytes.value() << " bytes, must have " << needed);
}

void expect_queries(const MlaExpandedArgs& args, int64_t tokens) {
  int64_t end = 0;
  for (const ExpandedSegment& segment : args.segments) {
    FATHOM_CHECK(segment.token_begin >= end && segment.num_tokens >= 0,
                 "segment's queries begin at token " << segment.token_begin
                                                     << ", must follow token " << end);
    end = segment.token_begin + segment.num_tokens;
    FATHOM_CHECK(end <= tokens, "segment's queries end at token " << end << " of " << tokens);
    FATHOM_CHECK(segment.query_begin >= 0, "query_begin is " << segment.query_begin);
    FATHOM_CHECK(!segment.last || !args.out.is_null(), "out is null, a segment is the last");
    if (!args.kept.is_null() && segment.query_begin + segment.num_tokens > args.kept_from)
      FATHOM_CHECK(!segment.has_tree_mask && segment.row_begin % kKeptRows == 0 &&
                       kept_words(segment.row_begin + segment.num_rows) <= args.kept.dim(1),
                   "kept has " << args.kept.dim(1) << " words, a segment rows " << segment.row_begin
                               << " and " << segment.num_rows << " more");
    if (!segment.has_tree_mask) continue;
    FATHOM_CHECK(!args.tree_mask.is_null(), "tree_mask is null, a segment has one");
    FATHOM_CHECK(segment.num_tokens <= kMaxTreeTokens,
                 "tree_mask with " << segment.num_tokens << " queries, at most " << kMaxTreeTokens);
  }
}

}  // namespace

void mla_plan(const MlaPlanArgs& args, Stream& stream) {
  Dim tokens("tokens", args.tokens), seqs("seqs");
  expect_lengths(args.query_start, args.kv_len, args.tree_mask, tokens, seqs);
  FATHOM_CHECK(args.heads > 0 && args.max_rows >= 0,
               args.heads << " heads, " << args.max_rows << " rows");
  expect_plan(args.plan, {.tokens = args.tokens, .sequences = seqs.value(), .heads = args.heads},
              stream.backend());
  dispatch("mla_plan", stream.backend().act, stream.backend().mla_plan, args, stream);
}

void expect_absorbed(const MlaAbsorbedArgs& args, const Stream& stream) {
  const DType act = stream.backend().act;
  Dim tokens("tokens"), heads("heads"), kv_lora_rank("kv_lora_rank");
  Dim qk_rope_head_dim("qk_rope_head_dim"), seqs("seqs"), max_blocks("max_blocks");
  expect("q_latent", args.q_latent, act, {&tokens, &heads, &kv_lora_rank});
  expect("q_rope", args.q_rope, act, {&tokens, &heads, &qk_rope_head_dim});
  expect_lengths(args.query_start, args.kv_len, args.tree_mask, tokens, seqs);
  expect("block_tables", args.block_tables, DType::kI32, {&seqs, &max_blocks});
  expect("out", args.out, act, {&tokens, &heads, &kv_lora_rank});
  expect_kv_cache(args.cache, kv_lora_rank.value(), qk_rope_head_dim.value());
  if (!args.plan.is_null())
    expect_plan(args.plan,
                {.tokens = tokens.value(), .sequences = seqs.value(), .heads = heads.value()},
                stream.backend());
  expect_contiguous("q_latent", args.q_latent);
  expect_contiguous("out", args.out);
}

void mla_absorbed(const MlaAbsorbedArgs& args, Stream& stream) {
  expect_absorbed(args, stream);
  dispatch("mla_absorbed", args.cache.format.latent, stream.backend().mla_absorbed, args, stream);
}

void mla_expanded(const MlaExpandedArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim tokens("tokens"), heads("heads"), q_dim("qk_nope_head_dim + qk_rope_head_dim");
  Dim rows("rows"), kv_dim("qk_nope_head_dim + v_head_dim"), qk_rope_head_dim("qk_rope_head_dim");
  Dim v_head_dim("v_head_dim");
  expect("q", args.q, act, {&tokens, &heads, &q_dim});
  expect("kv", args.kv, act, {&rows, &heads, &kv_dim});
  expect("k_rope", args.k_rope, act, {&rows, &qk_rope_head_dim});
  expect_or_null("tree_mask", args.tree_mask, DType::kU64, {&tokens});
  Dim words("words");
  expect_or_null("kept", args.kept, DType::kI32, {&tokens, &words});
  expect("state_max", args.state_max, DType::kF32, {&tokens, &heads});
  expect("state_sum", args.state_sum, DType::kF32, {&tokens, &heads});
  expect("state_acc", args.state_acc, DType::kF32, {&tokens, &heads, &v_head_dim});
  expect_or_null("out", args.out, act, {&tokens, &heads, &v_head_dim});
  const int64_t qk_nope_head_dim = q_dim.value() - qk_rope_head_dim.value();
  FATHOM_CHECK(qk_nope_head_dim > 0, "q axis 2 is " << q_dim.value() << ", qk_rope_head_dim is "
                                                    << qk_rope_head_dim.value());
  FATHOM_CHECK(kv_dim.value() == qk_nope_head_dim + v_head_dim.value(),
               "kv axis 2: qk_nope_head_dim + v_head_dim is "
                   << qk_nope_head_dim + v_head_dim.value() << ", got " << kv_dim.value());
  expect_segments(args.segments, rows.value());
  expect_queries(args, tokens.value());
  for (const std::pair<const char*, const tensor::Tensor*>& entry :
       {std::pair{"q", &args.q}, std::pair{"kv", &args.kv}, std::pair{"k_rope", &args.k_rope},
        std::pair{"state_max", &args.state_max}, std::pair{"state_sum", &args.state_sum},
        std::pair{"state_acc", &args.state_acc}, std::pair{"out", &args.out}}) {
    expect_contiguous(entry.first, *entry.second);
  }
  dispatch("mla_expanded", act, stream.backend().mla_expanded, args, stream);
}

}  // namespace fathom::ops
