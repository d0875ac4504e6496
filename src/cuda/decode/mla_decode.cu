#include "ops/mla_decode.h"

#include "cuda/attention/choice.h"
#include "cuda/decode/ops.h"
#include "cuda/decode/query_product.cuh"
#include "cuda/decode/region.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

using decode::DecodeParams;
using tensor::DType, tensor::Tensor;

decode::CompressedQueries compressed(const ops::MlaDecodeArgs& args) {
  return {.q_a = args.q_a, .q_norm = args.q_norm, .eps = args.q_eps, .q_b = args.q_b};
}

bool takes_queries(const ops::MlaDecodeArgs& args, const ops::Stream& stream) {
  if (args.q_a.is_null()) return decode::is_aligned(args.q);
  return decode::takes_compressed(compressed(args), stream);
}

int64_t room_for_rows(const ops::MlaDecodeArgs& args) {
  return args.block_tables.dim(1) * args.rows.cache.block_tokens();
}

bool takes_cache(const ops::MlaDecodeArgs& args) {
  const ops::KvCache& cache = args.rows.cache;
  return cache.format == ops::KvFormat::of(DType::kBf16, decode::kLatent, decode::kRope) &&
         room_for_rows(args) <= decode::kMostRows && decode::is_aligned(cache.rows);
}

DecodeParams params_of(const ops::MlaDecodeArgs& args) {
  DecodeParams p;
  const Tensor &uk = args.w_uk.data, &uv = args.w_uv.data;
  if (args.q_a.is_null()) {
    p.q = args.q.as<Bf16>();
    p.q_stride = args.q.stride(0);
  } else {
    static_cast<decode::QueryProduct&>(p) = query_product(compressed(args));
  }
  p.w_uk = static_cast<const char*>(uk.data());
  p.w_uk_head = uk.stride(0) * 2;
  p.w_uv = static_cast<const char*>(uv.data());
  p.w_uv_head = uv.stride(0) * 2;
  p.append = append_params(args.rows);
  p.kv_len = args.kv_len.as<int32_t>();
  p.block_tables = args.block_tables.as<int32_t>();
  p.block_tokens = static_cast<int>(args.rows.cache.block_tokens());
  p.heads = static_cast<int>(uk.dim(0));
  p.scale = args.scale * kLog2E;
  if (args.out.is_quantised()) {
    p.out_f8 = args.out.values.as<F8E4M3>();
    p.out_scale = args.out.scale.as<float>();
  } else {
    p.out = args.out.values.as<Bf16>();
  }
  return p;
}

// Of a cluster. Four have room for twice the rows, but each block computes with twice the heads.
constexpr int kFewHeads = 2, kManyHeads = 4;

int64_t num_tokens(const ops::MlaDecodeArgs& args) { return args.rows.kv_rows.dim(0); }

// Several tokens are those of one sequence, whose rows all lie on the chip, and come with q_b.
bool takes_tokens(const ops::MlaDecodeArgs& args) {
  const int64_t tokens = num_tokens(args);
  if (args.kv_len.dim(0) != 1) return false;
  if (tokens == 1) return true;
  if (args.q_a.is_null() || tokens > decode::kMostTokens) return false;
  return room_for_rows(args) <= decode::kShortRows || args.w_uk.data.dim(0) % kManyHeads == 0;
}

template <bool kHasQueryProduct, int kHeads, int kTokens>
void start(const DecodeParams& p, ops::Stream& stream) {
  using Shared = decode::Shared<kHeads, kTokens>;
  static_assert(sizeof(Shared) <= 227 * 1024);
  launch(decode::decode_kernel<kHasQueryProduct, kHeads, kTokens>,
         {.grid = static_cast<unsigned>(p.heads * decode::kHeadBlocks),
          .block = decode::kThreads,
          .shared_bytes = static_cast<int>(sizeof(Shared)),
          .cluster = kHeads * decode::kHeadBlocks},
         stream, p);
}

template <int kHeads>
void start_of_tokens(const DecodeParams& p, int64_t tokens, ops::Stream& stream) {
  if (p.q_a == nullptr) return start<false, kHeads, 1>(p, stream);
  if (tokens == 1) return start<true, kHeads, 1>(p, stream);
  if (tokens == 2) return start<true, kHeads, 2>(p, stream);
  if (tokens == 3) return start<true, kHeads, 3>(p, stream);
  start<true, kHeads, 4>(p, stream);
}

}  // namespace

bool takes_mla_decode(const ops::MlaDecodeArgs& args, const ops::Stream& stream) {
  const int64_t heads = args.w_uk.data.dim(0);
  return takes_tuned_attention() && takes_tokens(args) && heads <= decode::kMostHeads &&
         heads % kFewHeads == 0 && decode::takes_heads(args.w_uk, decode::kLatent, decode::kHead) &&
         decode::takes_heads(args.w_uv, decode::kHead, decode::kLatent) && takes_cache(args) &&
         takes_queries(args, stream);
}

void mla_decode(const ops::MlaDecodeArgs& args, ops::Stream& stream) {
  const DecodeParams p = params_of(args);
  const bool has_many = p.heads % kManyHeads == 0 && room_for_rows(args) > decode::kShortRows;
  has_many ? start_of_tokens<kManyHeads>(p, num_tokens(args), stream)
           : start_of_tokens<kFewHeads>(p, num_tokens(args), stream);
}

}  // namespace fathom::cuda
