#include "ops/mla_query.h"

#include "ops/mla_dims.h"

namespace fathom::ops {

void mla_query(const MlaQueryArgs& args, Stream& stream) {
  const tensor::DType act = stream.backend().act;
  MlaDims dims;
  expect_heads(args.w_uk, args.rows, dims);
  expect_queries(args.q, act, dims);
  if (!args.q_a.is_null()) expect_compressed(args, act, dims);
  expect_rows(args.rows, act, dims);
  expect("q_latent", args.q_latent, act, {&dims.tokens, &dims.heads, &dims.latent});
  expect_contiguous("q_latent", args.q_latent);
  dispatch("mla_query", args.rows.cache.format.latent, stream.backend().mla_query, args, stream);
}

}  // namespace fathom::ops
