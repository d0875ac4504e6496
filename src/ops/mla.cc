#include "ops/mla.h"

#include "ops/boundary.h"
#include "ops/kv_cache.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_or_null;

void mla_absorbed(const MlaAbsorbedArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim tokens("tokens"), heads("heads"), kv_lora_rank("kv_lora_rank");
  Dim qk_rope_head_dim("qk_rope_head_dim");
  Dim starts("seqs + 1"), seqs("seqs"), max_blocks("max_blocks");
  expect("q_latent", args.q_latent, act, {&tokens, &heads, &kv_lora_rank});
  expect("q_rope", args.q_rope, act, {&tokens, &heads, &qk_rope_head_dim});
  expect("kv_len", args.kv_len, DType::kI32, {&seqs});
  expect("query_start", args.query_start, DType::kI32, {&starts});
  expect("block_tables", args.block_tables, DType::kI32, {&seqs, &max_blocks});
  expect_or_null("tree_mask", args.tree_mask, DType::kU64, {&tokens});
  expect("out", args.out, act, {&tokens, &heads, &kv_lora_rank});
  FATHOM_CHECK(starts.value() == seqs.value() + 1, "query_start axis 0: seqs + 1 is "
                                                       << seqs.value() + 1 << ", got "
                                                       << starts.value());
  expect_kv_cache(args.cache, kv_lora_rank.value(), qk_rope_head_dim.value());
  expect_contiguous("q_latent", args.q_latent);
  expect_contiguous("block_tables", args.block_tables);
  expect_contiguous("out", args.out);
  dispatch("mla_absorbed", stream.backend().mla_absorbed, args, stream);
}

void mla_expanded(const MlaExpandedArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim queries("queries"), heads("heads"), q_dim("qk_nope_head_dim + qk_rope_head_dim");
  Dim keys("keys"), kv_dim("qk_nope_head_dim + v_head_dim"), qk_rope_head_dim("qk_rope_head_dim");
  Dim v_head_dim("v_head_dim");
  expect("q", args.q, act, {&queries, &heads, &q_dim});
  expect("kv", args.kv, act, {&keys, &heads, &kv_dim});
  expect("k_rope", args.k_rope, act, {&keys, &qk_rope_head_dim});
  expect_or_null("tree_mask", args.tree_mask, DType::kU64, {&queries});
  expect("state_max", args.state_max, DType::kF32, {&queries, &heads});
  expect("state_sum", args.state_sum, DType::kF32, {&queries, &heads});
  expect("state_acc", args.state_acc, DType::kF32, {&queries, &heads, &v_head_dim});
  const int64_t qk_nope_head_dim = q_dim.value() - qk_rope_head_dim.value();
  FATHOM_CHECK(qk_nope_head_dim > 0, "q axis 2 is " << q_dim.value() << ", qk_rope_head_dim is "
                                                    << qk_rope_head_dim.value());
  FATHOM_CHECK(kv_dim.value() == qk_nope_head_dim + v_head_dim.value(),
               "kv axis 2: qk_nope_head_dim + v_head_dim is "
                   << qk_nope_head_dim + v_head_dim.value() << ", got " << kv_dim.value());
  FATHOM_CHECK(args.query_begin >= 0 && args.key_begin >= 0,
               "query_begin " << args.query_begin << ", key_begin " << args.key_begin);
  FATHOM_CHECK(args.tree_mask.is_null() || queries.value() <= kMaxTreeTokens,
               "tree_mask with " << queries.value() << " queries, at most " << kMaxTreeTokens);
  for (const std::pair<const char*, const tensor::Tensor*>& entry :
       {std::pair{"q", &args.q}, std::pair{"kv", &args.kv}, std::pair{"k_rope", &args.k_rope},
        std::pair{"state_max", &args.state_max}, std::pair{"state_sum", &args.state_sum},
        std::pair{"state_acc", &args.state_acc}}) {
    expect_contiguous(entry.first, *entry.second);
  }
  dispatch("mla_expanded", stream.backend().mla_expanded, args, stream);
}

void mla_finish(const MlaFinishArgs& args, Stream& stream) {
  Dim queries("queries"), heads("heads"), v_head_dim("v_head_dim");
  expect("state_sum", args.state_sum, DType::kF32, {&queries, &heads});
  expect("state_acc", args.state_acc, DType::kF32, {&queries, &heads, &v_head_dim});
  expect("out", args.out, stream.backend().act, {&queries, &heads, &v_head_dim});
  expect_contiguous("state_sum", args.state_sum);
  expect_contiguous("state_acc", args.state_acc);
  expect_contiguous("out", args.out);
  dispatch("mla_finish", stream.backend().mla_finish, args, stream);
}

}  // namespace fathom::ops
