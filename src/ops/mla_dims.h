#pragma once
// The checks that mla_decode and mla_query share.
//
//   MlaDims dims;
//   expect_heads(args.w_uk, args.rows, dims);      // first: the widths that tensors of single heads fix
//   expect_compressed(args, act, dims);  expect_rows(args.rows, act, dims);
//
// Internal to ops/.

#include "ops/boundary.h"
#include "ops/kv_cache.h"
#include "ops/linear.h"

namespace fathom::ops {

inline constexpr std::initializer_list<tensor::DType> kHeadTypes = {
    tensor::DType::kF32, tensor::DType::kBf16, tensor::DType::kF8E4M3};

struct MlaDims {
  tensor::Dim tokens{"tokens"}, heads{"heads"}, qk{"qk_head_dim"};
  tensor::Dim latent{"kv_lora_rank"}, rope{"qk_rope_head_dim"}, nope{"qk_nope_head_dim"};
  tensor::Dim v{"v_head_dim"};
};

inline void expect_heads(const Weight& w_uk, const KvAppendArgs& rows, MlaDims& dims) {
  expect_one_of("w_uk", w_uk.data, kHeadTypes, {&dims.heads, &dims.latent, &dims.nope});
  dims.rope = tensor::Dim("qk_rope_head_dim", rows.table.dim(1));
  dims.qk = tensor::Dim("qk_head_dim", dims.nope.value() + dims.rope.value());
}

inline void expect_queries(const tensor::Tensor& q, tensor::DType act, MlaDims& dims) {
  expect("q", q, act, {&dims.tokens, &dims.heads, &dims.qk});
  expect_contiguous("q", q);
}

template <class Args>
void expect_compressed(const Args& args, tensor::DType act, MlaDims& dims) {
  tensor::Dim q_lora_rank("q_lora_rank");
  tensor::Dim out("heads * qk_head_dim", dims.heads.value() * dims.qk.value());
  expect("q_a", args.q_a, act, {&dims.tokens, &q_lora_rank});
  expect_one_of("q_norm", args.q_norm, {tensor::DType::kF32, tensor::DType::kBf16}, {&q_lora_rank});
  expect_one_of("q_b", args.q_b.data, kMatrixTypes, {&out, &q_lora_rank});
  expect_weight_scale("q_b's scale", args.q_b, q_lora_rank.value(), out.value());
  expect_contiguous("q_b", args.q_b.data);
}

inline void expect_rows(const KvAppendArgs& rows, tensor::DType act, MlaDims& dims) {
  tensor::Dim kv_dim("kv_dim", dims.latent.value() + dims.rope.value());
  expect("kv_a", rows.kv_a, act, {&dims.tokens, &kv_dim});
  expect_one_of("weight", rows.weight, {tensor::DType::kF32, tensor::DType::kBf16}, {&dims.latent});
  expect("table", rows.table, tensor::DType::kF32, {&dims.tokens, &dims.rope});
  expect("kv_rows", rows.kv_rows, tensor::DType::kI64, {&dims.tokens});
  expect_kv_cache(rows.cache, dims.latent.value(), dims.rope.value());
  expect_contiguous("table", rows.table);
}

}  // namespace fathom::ops
