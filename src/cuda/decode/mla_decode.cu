#include "ops/mla_decode.h"

#include "cuda/attention/choice.h"
#include "cuda/decode/ops.h"
#include "cuda/decode/region.cuh"
#include "cuda/linear/choose.h"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

using decode::DecodeParams;
using tensor::DType, tensor::Tensor;

constexpr int64_t kMostHeads = 16;

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data()) % 16 == 0;
}

// The division of the product of q_b, as the operator of its own has it. No group: another kernel has it.
Split query_split(const ops::MlaDecodeArgs& args, const ops::Stream& stream) {
  ProductParams params;
  params.tokens = static_cast<int>(args.q_a.dim(0));
  params.in = decode::kQueryIn;
  params.a.rows = static_cast<int>(args.q_b.data.dim(0));
  take_choices(DType::kF8E4M3, params, stream);
  if (params.a.choice.kernel == tuned::MatrixKernel::kBatch) return {.group = 0};
  return choose_split(params.a, decode::kQueryLines, num_tiles(params.a.rows, 16));
}

// There, too, a warp has one line of W_UK and of W_UV.
bool divides_heads_alike(int64_t heads) {
  const auto has_one_line = [heads](int64_t lines, int64_t rows) {
    const Split split = choose_split({}, lines, rows / 16 * heads);
    return split.group == 1 && split.warps == lines;
  };
  return has_one_line(decode::kUkLines, decode::kLatent) &&
         has_one_line(decode::kUvLines, decode::kHead);
}

bool takes_queries(const ops::MlaDecodeArgs& args, const ops::Stream& stream) {
  if (args.q_a.is_null()) return is_aligned(args.q);
  return args.q_b.data.dtype() == DType::kF8E4M3 && args.q_a.dim(1) == decode::kQueryIn &&
         is_aligned(args.q_a) && args.q_a.stride(0) % 8 == 0 && is_aligned(args.q_norm) &&
         is_aligned(args.q_b.data) && query_split(args, stream).group > 0;
}

bool takes_weight(const ops::Weight& weight, int64_t rows, int64_t columns) {
  const Tensor& data = weight.data;
  return data.dtype() == DType::kBf16 && data.dim(1) == rows && data.dim(2) == columns &&
         is_aligned(data) && data.stride(0) % 8 == 0;
}

bool takes_cache(const ops::MlaDecodeArgs& args) {
  const ops::KvCache& cache = args.rows.cache;
  return cache.format == ops::KvFormat::of(DType::kBf16, decode::kLatent, decode::kRope) &&
         args.block_tables.dim(1) * cache.block_tokens() <= decode::kMostRows &&
         is_aligned(cache.rows);
}

// As warps and blocks of the product of its own divide the lines: warps add parts up, blocks groups of them.
void place_parts(const Split& split, DecodeParams& p) {
  const int parts = split.group * split.warps;
  int ends = 0;  // of parts of this group
  bool has_group = false;
  for (int part = 0; part < parts; ++part) {
    const int begin = part * decode::kQueryLines / parts;
    const int end = (part + 1) * decode::kQueryLines / parts;
    const bool is_last = (part + 1) % split.warps == 0;
    if (begin < end) {
      const uint32_t line = 1u << (end - 1);
      p.part_ends |= line;
      if (ends++ == 0) p.group_begins |= line;
    }
    if (!is_last || ends == 0) continue;
    const uint32_t line = 1u << (end - 1);
    p.group_ends |= line;
    if (!has_group) p.total_begins |= line;
    has_group = true;
    ends = 0;
  }
}

DecodeParams params_of(const ops::MlaDecodeArgs& args, const ops::Stream& stream) {
  DecodeParams p;
  const Tensor &uk = args.w_uk.data, &uv = args.w_uv.data;
  if (args.q_a.is_null()) {
    p.q = args.q.as<Bf16>();
    p.q_stride = args.q.stride(0);
  } else {
    p.q_a = args.q_a.as<Bf16>();
    p.q_a_stride = args.q_a.stride(0);
    p.q_norm = args.q_norm.data();
    p.q_norm_is_f32 = args.q_norm.dtype() == DType::kF32;
    p.q_eps = args.q_eps;
    p.q_weight = static_cast<const char*>(args.q_b.data.data());
    p.q_scale = args.q_b.scale.as<float>();
    place_parts(query_split(args, stream), p);
  }
  p.w_uk = static_cast<const char*>(uk.data());
  p.w_uk_head = uk.stride(0) * 2;
  p.w_uv = static_cast<const char*>(uv.data());
  p.w_uv_head = uv.stride(0) * 2;
  p.append = append_params(args.rows);
  p.kv_len = args.kv_len.as<int32_t>();
  p.block_tables = args.block_tables.as<int32_t>();
  p.table_stride = args.block_tables.stride(0);
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

bool takes(const ops::MlaDecodeArgs& args, const ops::Stream& stream) {
  const int64_t tokens = args.kv_len.dim(0), heads = args.w_uk.data.dim(0);
  return takes_tuned_attention() && tokens <= decode::kMostTokens && heads <= kMostHeads &&
         heads % decode::kHeads == 0 && divides_heads_alike(heads) &&
         takes_weight(args.w_uk, decode::kLatent, decode::kHead) &&
         takes_weight(args.w_uv, decode::kHead, decode::kLatent) && takes_cache(args) &&
         takes_queries(args, stream);
}

void run(const ops::MlaDecodeArgs& args, ops::Stream& stream) {
  const DecodeParams p = params_of(args, stream);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(p.heads / decode::kHeads * decode::kCluster),
                   static_cast<unsigned>(args.kv_len.dim(0))),
      .block = decode::kThreads,
      .shared_bytes = static_cast<int>(sizeof(decode::Shared)),
      .cluster = decode::kCluster};
  p.q_a == nullptr ? launch(decode::decode_kernel<false>, shape, stream, p)
                   : launch(decode::decode_kernel<true>, shape, stream, p);
}

}  // namespace

void add_decode(ops::Backend& backend) {
  backend.mla_decode = {.run = run,
                        .max_tokens = decode::kMostTokens,
                        .takes = takes,
                        .lacks = {DType::kF32, DType::kF8E4M3}};
  backend.long_attention.push_back(
      {.rows = decode::kMostRows, .tokens = decode::kMostTokens + 1, .op = "mla_decode"});
}

}  // namespace fathom::cuda
