// silu_mul, silu_mul_quantize, quantize_fp8: nothing is summed, a thread has 8 channels and 16 lanes a scale.
// Bound by memory: 6 bytes a channel for silu_mul (5 quantised), 3 for quantize_fp8. The true divisions of the
// quantisation come close to that. Grid: one block per 1024 channels of a row, 2048 where there are many rows. No
// shared memory.

#include "cuda/elementwise/ops.h"
#include "cuda/elementwise/vector.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/quantize_fp8.h"
#include "ops/silu_mul.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTile = kThreads * kVector;

struct RowParams {
  const Bf16* x;             // bf16[tokens, dim], rows x_stride apart; of silu_mul the gate
  const Bf16* up = nullptr;  // as x; null: x is quantised as it is
  Bf16* out = nullptr;       // bf16[tokens, dim]; null allowed
  F8E4M3* q = nullptr;       // f8[tokens, dim]; null allowed
  float* scale = nullptr;    // f32[tokens, ceil(dim / 128)]; null where q is
  int64_t x_stride;
  int dim, scale_blocks = 0;
  int tiles = 0;  // of a row
  bool aligned = false;
};

// v / (1 + exp(-v)) * up. The quick division flushes quotients below 2^-126, which bf16 rounds to about 0 anyway.
__device__ __forceinline__ float silu_mul(float v, float up) {
  return __fdividef(v, 1.0f + expf(-v)) * up;
}

// kVectors: of a thread. One where there are few rows, several to keep the memory busy where there are many.
template <int kVectors>
__global__ void __launch_bounds__(kThreads) activate_rows(const __grid_constant__ RowParams p) {
  let_next_start();
  const int64_t row = blockIdx.x / static_cast<unsigned>(p.tiles);
  const int tile = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.tiles));
  const int first = (tile * kVectors * kThreads + static_cast<int>(threadIdx.x)) * kVector;
  wait_for_previous();
  Words<Bf16> x[kVectors], up[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int begin = first + i * kTile;
    x[i] = load_words(p.x + row * p.x_stride, begin, p.dim, p.aligned);
    if (p.up != nullptr) up[i] = load_words(p.up + row * p.x_stride, begin, p.dim, p.aligned);
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int begin = first + i * kTile;
    Vector v = unpack(x[i]);
    if (p.up != nullptr) {
      const Vector factor = unpack(up[i]);
#pragma unroll
      for (int k = 0; k < kVector; ++k) v.at[k] = silu_mul(v.at[k], factor.at[k]);
      round_to_bf16(v);
    }
    if (p.out != nullptr) store_vector(v, p.out + row * p.dim, begin, p.dim, p.aligned);
    if (p.q != nullptr)
      quantize_vector(v, p.q + row * p.dim, begin, p.dim, p.aligned,
                      p.scale + row * p.scale_blocks);
  }
}

void run(RowParams params, int64_t tokens, ops::Stream& stream) {
  constexpr int64_t kFewTokens = 512;
  constexpr int kMany = 2;
  const bool many = tokens > kFewTokens && params.dim >= kMany * kTile;
  const unsigned tiles = num_tiles(params.dim, many ? kMany * kTile : kTile);
  params.tiles = static_cast<int>(tiles);
  params.scale_blocks = static_cast<int>(num_tiles(params.dim, kScaleVectors * kVector));
  const LaunchShape shape{.grid = static_cast<unsigned>(tokens) * tiles, .block = kThreads};
  if (many) return launch(activate_rows<kMany>, shape, stream, params);
  launch(activate_rows<1>, shape, stream, params);
}

// Both halves of gate_up; no output yet.
RowParams gated(const tensor::Tensor& gate_up) {
  const int64_t inter = gate_up.dim(2);
  const Bf16* const gate = gate_up.as<Bf16>();
  return {.x = gate, .up = gate + inter, .x_stride = 2 * inter, .dim = static_cast<int>(inter)};
}

// The rows of gate_up are contiguous, so their width decides.
bool gated_aligned(const tensor::Tensor& gate_up) {
  return rows_aligned(gate_up, 16) && gate_up.dim(2) % kVector == 0;
}

}  // namespace

void silu_mul(const ops::SiluMulArgs& args, ops::Stream& stream) {
  RowParams params = gated(args.gate_up);
  params.out = args.out.as<Bf16>();
  params.aligned = gated_aligned(args.gate_up) && rows_aligned(args.out, 16);
  run(params, args.gate_up.dim(0), stream);
}

void silu_mul_quantize(const ops::SiluMulQuantizeArgs& args, ops::Stream& stream) {
  RowParams params = gated(args.gate_up);
  params.q = args.quantised.values.as<F8E4M3>();
  params.scale = args.quantised.scale.as<float>();
  params.aligned = gated_aligned(args.gate_up) && rows_aligned(args.quantised.values, kVector);
  run(params, args.gate_up.dim(0), stream);
}

void quantize_fp8(const ops::QuantizeFp8Args& args, ops::Stream& stream) {
  run({.x = args.x.as<Bf16>(),
       .q = args.q.as<F8E4M3>(),
       .scale = args.scale.as<float>(),
       .x_stride = args.x.stride(0),
       .dim = static_cast<int>(args.x.dim(1)),
       .aligned = rows_aligned(args.x, 16) && rows_aligned(args.q, kVector)},
      args.x.dim(0), stream);
}

}  // namespace fathom::cuda
