#include "ops/mla_decode.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of;

namespace {

struct Dims {
  Dim tokens{"tokens"}, heads{"heads"}, qk{"qk_head_dim"};
  Dim latent{"kv_lora_rank"}, rope{"qk_rope_head_dim"}, nope{"qk_nope_head_dim"};
  Dim v{"v_head_dim"};
};

void expect_queries(const MlaDecodeArgs& args, DType act, Dims& dims) {
  FATHOM_CHECK(args.q.is_null() != args.q_a.is_null(), "queries come as q or as q_a, not as both");
  if (args.q_a.is_null()) {
    expect("q", args.q, act, {&dims.tokens, &dims.heads, &dims.qk});
    return expect_contiguous("q", args.q);
  }
  Dim q_lora_rank("q_lora_rank"), out("heads * qk_head_dim", dims.heads.value() * dims.qk.value());
  expect("q_a", args.q_a, act, {&dims.tokens, &q_lora_rank});
  expect_one_of("q_norm", args.q_norm, {DType::kF32, DType::kBf16}, {&q_lora_rank});
  expect_one_of("q_b", args.q_b.data, kMatrixTypes, {&out, &q_lora_rank});
  expect_weight_scale("q_b's scale", args.q_b, q_lora_rank.value(), out.value());
  expect_contiguous("q_b", args.q_b.data);
}

void expect_rows(const KvAppendArgs& rows, DType act, Dims& dims) {
  Dim kv_dim("kv_dim", dims.latent.value() + dims.rope.value());
  expect("kv_a", rows.kv_a, act, {&dims.tokens, &kv_dim});
  expect_one_of("weight", rows.weight, {DType::kF32, DType::kBf16}, {&dims.latent});
  expect("table", rows.table, DType::kF32, {&dims.tokens, &dims.rope});
  expect("kv_rows", rows.kv_rows, DType::kI64, {&dims.tokens});
  expect_kv_cache(rows.cache, dims.latent.value(), dims.rope.value());
  expect_contiguous("table", rows.table);
}

void expect_out(const Activation& out, DType act, Dims& dims) {
  if (!out.is_quantised()) {
    expect("out", out.values, act, {&dims.tokens, &dims.heads, &dims.v});
    return expect_contiguous("out", out.values);
  }
  Dim all("heads * v_head_dim", dims.heads.value() * dims.v.value());
  expect_quantised("out", out, {&dims.tokens, &all});
}

// The widths that tensors of single heads fix.
void expect_heads(const MlaDecodeArgs& args, Dims& dims) {
  const std::initializer_list<DType> types = {DType::kF32, DType::kBf16, DType::kF8E4M3};
  expect_one_of("w_uk", args.w_uk.data, types, {&dims.heads, &dims.latent, &dims.nope});
  expect_one_of("w_uv", args.w_uv.data, types, {&dims.heads, &dims.v, &dims.latent});
  dims.rope = Dim("qk_rope_head_dim", args.rows.table.dim(1));
  dims.qk = Dim("qk_head_dim", dims.nope.value() + dims.rope.value());
}

}  // namespace

bool takes_mla_decode(const MlaDecodeArgs& args, const Stream& stream) {
  const Operator<MlaDecodeArgs>& entry = stream.backend().mla_decode;
  return entry.run != nullptr && (entry.takes == nullptr || entry.takes(args, stream));
}

void mla_decode(const MlaDecodeArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dims dims;
  expect_heads(args, dims);
  expect_queries(args, act, dims);
  expect_rows(args.rows, act, dims);
  Dim max_blocks("max_blocks");
  expect("kv_len", args.kv_len, DType::kI32, {&dims.tokens});
  expect("block_tables", args.block_tables, DType::kI32, {&dims.tokens, &max_blocks});
  expect_out(args.out, act, dims);
  FATHOM_CHECK(takes_mla_decode(args, stream), "this call is made of mla_decode's parts");
  dispatch("mla_decode", args.rows.cache.format.latent, stream.backend().mla_decode, args, stream);
}

}  // namespace fathom::ops
