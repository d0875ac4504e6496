// rope_table and rope. Both are bound by the launch at decode: a few kilobytes.

#include "ops/rope.h"

#include "cuda/cache/ops.h"
#include "cuda/cache/rope_row.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;

struct TableParams {
  const int32_t* positions;  // [tokens], strided
  const float* inv_freq;     // [pairs], strided
  float* table;              // [tokens, 2 * pairs]
  int64_t positions_stride, inv_freq_stride;
  int64_t tokens, pairs;
  float magnitude;
};

// One thread per pair. cosf and sinf reduce their argument in full: angles reach 10^5.
__global__ void __launch_bounds__(kThreads) rope_table_kernel(const TableParams p) {
  let_next_start();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.tokens * p.pairs) return;
  const int64_t token = i / p.pairs, pair = i % p.pairs;
  const auto position = static_cast<float>(p.positions[token * p.positions_stride]);
  const float angle = __fmul_rn(position, p.inv_freq[pair * p.inv_freq_stride]);
  float sine, cosine;
  sincosf(angle, &sine, &cosine);
  float* const row = p.table + token * 2 * p.pairs;
  row[pair] = cosine * p.magnitude;
  row[p.pairs + pair] = sine * p.magnitude;
}

// One block a token, one thread per pair of a head.
__global__ void __launch_bounds__(kThreads) rope_kernel(const RopeParams p) {
  let_next_start();
  wait_for_previous();
  const int64_t token = blockIdx.x;
  const float* const table = p.table + token * 2 * p.pairs;
  for (int i = threadIdx.x; i < p.heads * p.pairs; i += kThreads) {
    const int head = i / p.pairs, pair = i - head * p.pairs;
    const float cosine = table[pair], sine = table[p.pairs + pair];
    Bf16* const x = p.x + token * p.token_stride + head * p.head_stride + 2 * pair;
    const uint32_t both =
        p.is_paired ? *reinterpret_cast<const uint32_t*>(x) : x[0].bits | uint32_t{x[1].bits} << 16;
    const uint32_t out = rotate(both, cosine, sine);
    if (p.is_paired) {
      *reinterpret_cast<uint32_t*>(x) = out;
    } else {
      x[0].bits = static_cast<uint16_t>(out);
      x[1].bits = static_cast<uint16_t>(out >> 16);
    }
  }
}

// Rows of whole pieces, a thread each. Grid: pieces of all tokens.
__global__ void __launch_bounds__(kThreads) rope_pieces(const RopeParams p, int64_t pieces) {
  let_next_start();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= pieces) return;
  const int64_t token = i / pieces_of_token(p);
  rotate_piece(p, token, static_cast<int>(i - token * pieces_of_token(p)));
}

}  // namespace

void rope_table(const ops::RopeTableArgs& args, ops::Stream& stream) {
  const TableParams p{.positions = args.positions.as<int32_t>(),
                      .inv_freq = args.inv_freq.as<float>(),
                      .table = args.table.as<float>(),
                      .positions_stride = args.positions.stride(0),
                      .inv_freq_stride = args.inv_freq.stride(0),
                      .tokens = args.positions.dim(0),
                      .pairs = args.inv_freq.dim(0),
                      .magnitude = args.magnitude};
  launch(rope_table_kernel, {.grid = num_tiles(p.tokens * p.pairs, kThreads), .block = kThreads},
         stream, p);
}

void rope(const ops::RopeArgs& args, ops::Stream& stream) {
  const RopeParams p = rope_params(args);
  if (has_pieces(args)) {
    const int64_t pieces = args.x.dim(0) * p.heads * (p.pairs / kPiecePairs);
    return launch(rope_pieces, {.grid = num_tiles(pieces, kThreads), .block = kThreads}, stream, p,
                  pieces);
  }
  launch(rope_kernel, {.grid = static_cast<unsigned>(args.x.dim(0)), .block = kThreads}, stream, p);
}

}  // namespace fathom::cuda
