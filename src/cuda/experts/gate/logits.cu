// Parts of the gate's logits for few tokens. Bound by memory: the weight, 3.7 MB at 256 x 7168, once per 8 to 32
// tokens. Grid: one warp per 16 experts, part of the width and 8 to 32 tokens; two warps a block.
// A warp's piece of a bf16 weight, at most 14 KB, is in its registers before the kernel ahead has finished.
// No shared memory, no synchronisation: the parts are summed by who reads them.

#include <type_traits>

#include "cuda/device/convert.cuh"
#include "cuda/elementwise/vector.cuh"
#include "cuda/experts/gate/fragments.cuh"
#include "cuda/experts/gate/gate.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kWarps = 2;
constexpr int kTileExperts = 16, kTileTokens = 8;
constexpr int kHeld = 14;  // steps whose weights a warp holds: all of 7168 channels

struct LogitsParams {
  const Bf16* x;       // bf16[tokens, hidden_size], rows x_stride apart
  const void* weight;  // f32|bf16[experts, hidden_size]
  float* parts;        // f32[tokens, kGateSplits, experts]
  int64_t x_stride;
  int hidden_size, experts, tokens;
  int steps;  // of a split
  int tiles;  // of tokens that a warp takes
  bool aligned;
  bool lets_in_late;
};

// Eight channels as the fragments want them, zeros past the end and where not valid.
__device__ __forceinline__ uint4 load_channels(const Bf16* row, int begin, int end, bool aligned,
                                               bool valid) {
  if (!valid || begin >= end) return {0, 0, 0, 0};
  if (aligned) return *reinterpret_cast<const uint4*>(row + begin);
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int k = begin + 2 * i;
    const uint32_t low = k < end ? row[k].bits : 0u, high = k + 1 < end ? row[k + 1].bits : 0u;
    words[i] = low | high << 16;
  }
  return {words[0], words[1], words[2], words[3]};
}

// The weight of one warp: rows g and g + 8 of its experts, from channel 8 * (lane % 4) of a step.
template <class Weight>
struct Held;

template <>
struct Held<Bf16> {
  uint4 low[kHeld], high[kHeld];

  __device__ __forceinline__ void load(const LogitsParams& p, int expert, int k, int steps,
                                       bool aligned) {
    const Bf16* const row = static_cast<const Bf16*>(p.weight) + int64_t{expert} * p.hidden_size;
    const Bf16* const next = row + int64_t{8} * p.hidden_size;
#pragma unroll
    for (int s = 0; s < kHeld; ++s) {
      const bool valid = s < steps;
      low[s] = load_channels(row, k + s * kGateStep, p.hidden_size, aligned,
                             valid && expert < p.experts);
      high[s] = load_channels(next, k + s * kGateStep, p.hidden_size, aligned,
                              valid && expert + 8 < p.experts);
    }
  }
  __device__ __forceinline__ void add(float (&d)[4], int s, uint4 x) const {
    multiply(d, low[s], high[s], x);
  }
};

// A float32 weight is the sum of three bf16 numbers, exactly; nothing is held.
template <>
struct Held<float> {
  const float* rows[2];
  int k, end;
  bool valid[2];

  __device__ __forceinline__ void load(const LogitsParams& p, int expert, int first, int, bool) {
    rows[0] = static_cast<const float*>(p.weight) + int64_t{expert} * p.hidden_size;
    rows[1] = rows[0] + int64_t{8} * p.hidden_size;
    valid[0] = expert < p.experts;
    valid[1] = expert + 8 < p.experts;
    k = first;
    end = p.hidden_size;
  }
  // Three words of two channels each, the largest part first.
  static __device__ __forceinline__ void split(float a, float b, uint32_t (&words)[3]) {
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      words[part] = floats_to_bf16x2(a, b);
      a -= bf16x2_low(words[part]);
      b -= bf16x2_high(words[part]);
    }
  }
  __device__ __forceinline__ void add(float (&d)[4], int s, uint4 x) const {
    uint32_t words[2][4][3];
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = k + s * kGateStep + 2 * i;
        split(valid[row] && at < end ? rows[row][at] : 0.0f,
              valid[row] && at + 1 < end ? rows[row][at + 1] : 0.0f, words[row][i]);
      }
#pragma unroll
    for (int part = 0; part < 3; ++part)
      multiply(d, {words[0][0][part], words[0][1][part], words[0][2][part], words[0][3][part]},
               {words[1][0][part], words[1][1][part], words[1][2][part], words[1][3][part]}, x);
  }
};

// kSeveral: whether a warp takes more than one tile of tokens. kPlain: all is aligned, and a warp holds its weights.
// Each instruction runs once and is waited for, so the code for everything else must not lie between.
template <class Weight, bool kSeveral, bool kPlain>
__global__ void __launch_bounds__(kWarps * 32) sum_parts(const __grid_constant__ LogitsParams p) {
  if (!p.lets_in_late) let_next_start();
  const bool aligned = kPlain || p.aligned;
  const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  const int unit = blockIdx.x * kWarps + threadIdx.x / 32;
  const int split = unit % kGateSplits, expert = unit / kGateSplits * kTileExperts + group;
  const int first = split * p.steps * kGateStep + quad * kVector;
  Held<Weight> held;
  held.load(p, expert, first, p.steps, aligned);
  wait_for_previous();
  if (p.lets_in_late) let_next_start();
  const auto channels_of = [&](int token, int s) {
    return load_channels(p.x + int64_t{token} * p.x_stride, first + s * kGateStep, p.hidden_size,
                         aligned, s < p.steps && token < p.tokens);
  };
  const int first_token = blockIdx.y * p.tiles * kTileTokens;
  const int last_token = first_token + (kSeveral ? p.tiles - 1 : 0) * kTileTokens;
  // All loads of a tile are under way before its first product, those of the next as soon as there is room. Steps
  // past the end are zeros.
  uint4 words[kHeld];
#pragma unroll
  for (int s = 0; s < kHeld; ++s) words[s] = channels_of(first_token + group, s);
  for (int token = first_token; token <= last_token; token += kTileTokens) {
    float d[4] = {};
    for (int done = 0; done < p.steps; done += kHeld) {
      if (!kPlain && p.steps > kHeld) {  // nothing could be held or loaded ahead
        held.load(p, expert, first + done * kGateStep, p.steps - done, aligned);
#pragma unroll
        for (int s = 0; s < kHeld; ++s) words[s] = channels_of(token + group, done + s);
      }
#pragma unroll
      for (int s = 0; s < kHeld; ++s) {
        if (kPlain && s >= p.steps) break;
        held.add(d, s, words[s]);
        if (kSeveral && token < last_token) words[s] = channels_of(token + kTileTokens + group, s);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int to = token + quad * 2 + i % 2, row = expert + i / 2 * 8;
      if (to < p.tokens && row < p.experts)
        p.parts[(int64_t{to} * kGateSplits + split) * p.experts + row] = d[i];
    }
  }
}

template <class Weight>
void run(const LogitsParams& params, ops::Stream& stream) {
  const LaunchShape shape{.grid = {num_tiles(params.experts, kTileExperts) * (kGateSplits / kWarps),
                                   num_tiles(params.tokens, params.tiles * kTileTokens)},
                          .block = kWarps * 32};
  constexpr bool kHolds = std::is_same_v<Weight, Bf16>;
  const bool plain = kHolds && params.aligned && params.steps <= kHeld;
  if (params.tiles > 1)
    return launch(plain ? sum_parts<Weight, true, kHolds> : sum_parts<Weight, true, false>, shape,
                  stream, params);
  launch(plain ? sum_parts<Weight, false, kHolds> : sum_parts<Weight, false, false>, shape, stream,
         params);
}

// By V3's rule, whose choice lets the experts in behind its own wait, so that their blocks find room when those of
// o have left. Of one token it takes as long, of V2-Lite longer.
bool lets_in_late(const ops::MoeGateArgs& args, int64_t tokens) {
  return args.kind == ops::GateKind::kSigmoidNoAux && tokens >= 2 && tokens <= 8;
}

// More tokens share a warp's weights only where the GPU is full anyway.
int tiles_of(int64_t tokens) { return tokens <= 32 ? 1 : (tokens <= 64 ? 2 : 4); }

}  // namespace

void gate_logits(const ops::MoeGateArgs& args, GateTokens tokens, float* parts,
                 ops::Stream& stream) {
  const int64_t hidden_size = args.weight.dim(1);
  const bool is_f32 = args.weight.dtype() == tensor::DType::kF32;
  const LogitsParams params{
      .x = args.x.as<Bf16>() + tokens.begin * args.x.stride(0),
      .weight = args.weight.data(),
      .parts = parts,
      .x_stride = args.x.stride(0),
      .hidden_size = static_cast<int>(hidden_size),
      .experts = static_cast<int>(args.weight.dim(0)),
      .tokens = static_cast<int>(tokens.end - tokens.begin),
      .steps = static_cast<int>(num_tiles(hidden_size, kGateSplits * kGateStep)),
      .tiles = tiles_of(tokens.end - tokens.begin),
      .aligned =
          hidden_size % kVector == 0 && rows_aligned(args.x, 16) && rows_aligned(args.weight, 16),
      .lets_in_late = lets_in_late(args, tokens.end - tokens.begin)};
  if (is_f32) return run<float>(params, stream);
  run<Bf16>(params, stream);
}

}  // namespace fathom::cuda
