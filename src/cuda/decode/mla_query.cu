#include "ops/mla_query.h"

#include "cuda/decode/many_queries.h"
#include "cuda/decode/ops.h"
#include "cuda/decode/query.cuh"
#include "cuda/decode/query_product.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

// Of more tokens, what comes behind a settled call may start at once.
constexpr int kMostLetLate = 6;

using decode::QueryParams;

decode::CompressedQueries compressed(const ops::MlaQueryArgs& args) {
  return {.q_a = args.q_a, .q_norm = args.q_norm, .eps = args.q_eps, .q_b = args.q_b};
}

bool takes_cache(const ops::KvCache& cache) {
  return cache.format.latent_dim == decode::kLatent && cache.format.rope_dim == decode::kRope &&
         cache.format.latent != tensor::DType::kF32;
}

QueryParams params_of(const ops::MlaQueryArgs& args) {
  QueryParams p;
  if (!args.q_a.is_null()) static_cast<decode::QueryProduct&>(p) = query_product(compressed(args));
  const tensor::Tensor& uk = args.w_uk.data;
  p.q = args.q.as<Bf16>();
  p.q_stride = args.q.stride(0);
  p.w_uk = static_cast<const char*>(uk.data());
  p.w_uk_head = uk.stride(0) * 2;
  p.q_latent = args.q_latent.as<Bf16>();
  p.append = append_params(args.rows);
  p.tokens = static_cast<int>(args.q.dim(0));
  p.heads = static_cast<int>(uk.dim(0));
  p.cache_is_f8 = args.rows.cache.format.latent == tensor::DType::kF8E4M3;
  p.settled = args.settled;
  p.lets_next_first = args.settled && p.tokens > kMostLetLate;
  return p;
}

}  // namespace

bool takes_mla_query(const ops::MlaQueryArgs& args, const ops::Stream& stream) {
  if (args.q.dim(0) > decode::kMostQueryTokens)
    return takes_cache(args.rows.cache) && decode::takes_many_queries(args, stream);
  const int64_t heads = args.w_uk.data.dim(0);
  return heads <= decode::kMostHeads &&
         decode::takes_heads(args.w_uk, decode::kLatent, decode::kHead) &&
         takes_cache(args.rows.cache) && decode::is_aligned(args.q) &&
         decode::is_aligned(args.rows.table) &&
         (args.q_a.is_null() || decode::takes_compressed(compressed(args), stream));
}

// Without q_b there is nothing to exchange, and so no cluster.
void mla_query(const ops::MlaQueryArgs& args, ops::Stream& stream) {
  if (args.q.dim(0) > decode::kMostQueryTokens) return decode::many_queries(args, stream);
  const QueryParams p = params_of(args);
  if (p.tokens == 0) return;
  const int blocks = p.heads * decode::kCluster;
  LaunchShape shape{.grid = static_cast<unsigned>(blocks + p.tokens),
                    .block = decode::kQueryThreads};
  using decode::QueryForm;
  if (p.q_a == nullptr) return launch(decode::query_kernel<QueryForm::kGiven>, shape, stream, p);
  shape.grid = static_cast<unsigned>(blocks + decode::kCluster);
  shape.cluster = decode::kCluster;
  launch(p.tokens <= 2 ? decode::query_kernel<QueryForm::kFew>
                       : decode::query_kernel<QueryForm::kMany>,
         shape, stream, p);
}

}  // namespace fathom::cuda
