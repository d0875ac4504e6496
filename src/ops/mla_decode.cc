#include "ops/mla_decode.h"

#include "ops/boundary.h"
#include "ops/mla_dims.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of;

namespace {

void expect_queries(const MlaDecodeArgs& args, DType act, MlaDims& dims) {
  FATHOM_CHECK(args.q.is_null() != args.q_a.is_null(), "queries come as q or as q_a, not as both");
  args.q_a.is_null() ? expect_queries(args.q, act, dims) : expect_compressed(args, act, dims);
}

void expect_out(const Activation& out, DType act, MlaDims& dims) {
  if (!out.is_quantised()) {
    expect("out", out.values, act, {&dims.tokens, &dims.heads, &dims.v});
    return expect_contiguous("out", out.values);
  }
  Dim all("heads * v_head_dim", dims.heads.value() * dims.v.value());
  expect_quantised("out", out, {&dims.tokens, &all});
}

}  // namespace

void mla_decode(const MlaDecodeArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  MlaDims dims;
  expect_heads(args.w_uk, args.rows, dims);
  expect_one_of("w_uv", args.w_uv.data, kHeadTypes, {&dims.heads, &dims.v, &dims.latent});
  expect_queries(args, act, dims);
  expect_rows(args.rows, act, dims);
  Dim max_blocks("max_blocks");
  Dim seqs("seqs");
  expect("kv_len", args.kv_len, DType::kI32, {&seqs});
  FATHOM_CHECK(seqs.value() == 1 || seqs.value() == dims.tokens.value(),
               dims.tokens.value() << " tokens of " << seqs.value() << " sequences");
  expect("block_tables", args.block_tables, DType::kI32, {&seqs, &max_blocks});
  expect_out(args.out, act, dims);
  dispatch("mla_decode", args.rows.cache.format.latent, stream.backend().mla_decode, args, stream);
}

}  // namespace fathom::ops
