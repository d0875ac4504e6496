// embedding, gather_rows: rows picked by number, zeros where there is none. Bound by memory: each row is read and
// written once. Grid: one block per 2048 elements of a row, all of a block's loads in flight at once. No shared memory.

#include "cuda/elementwise/ops.h"
#include "cuda/elementwise/vector.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/embedding.h"
#include "ops/gather_rows.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = kThreads * kVector;

struct PickParams {
  const void* from;      // f32|bf16[rows, dim], rows from_stride apart
  const int32_t* which;  // i32[outputs]
  Bf16* to;              // bf16[outputs, dim], rows to_stride apart
  int64_t from_stride, to_stride;
  int64_t first, rows;  // number of the first row
  int dim, tiles;       // tiles: of a row
  bool aligned;
};

template <class T>
__global__ void __launch_bounds__(kThreads) pick_rows(const __grid_constant__ PickParams p) {
  let_next_start();
  const int64_t row = blockIdx.x / static_cast<unsigned>(p.tiles);
  const int tile = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.tiles));
  const int begin = tile * kTile + static_cast<int>(threadIdx.x) * kVector;
  wait_for_previous();
  if (begin >= p.dim) return;
  const int64_t picked = p.which[row] - p.first;
  Vector v{};
  if (picked >= 0 && picked < p.rows)
    v = load_vector(static_cast<const T*>(p.from) + picked * p.from_stride, begin, p.dim,
                    p.aligned);
  store_vector(v, p.to + row * p.to_stride, begin, p.dim, p.aligned);
}

void pick(const tensor::Tensor& from, int64_t first, const tensor::Tensor& which,
          const tensor::Tensor& to, ops::Stream& stream) {
  const int64_t dim = to.dim(1);
  const unsigned tiles = num_tiles(dim, kTile);
  const PickParams params{.from = from.data(),
                          .which = which.as<int32_t>(),
                          .to = to.as<Bf16>(),
                          .from_stride = from.stride(0),
                          .to_stride = to.stride(0),
                          .first = first,
                          .rows = from.dim(0),
                          .dim = static_cast<int>(dim),
                          .tiles = static_cast<int>(tiles),
                          .aligned = rows_aligned(from, 16) && rows_aligned(to, 16)};
  const LaunchShape shape{.grid = static_cast<unsigned>(to.dim(0)) * tiles, .block = kThreads};
  if (from.dtype() == tensor::DType::kF32) return launch(pick_rows<float>, shape, stream, params);
  launch(pick_rows<Bf16>, shape, stream, params);
}

}  // namespace

void embedding(const ops::EmbeddingArgs& args, ops::Stream& stream) {
  pick(args.table, args.first_id, args.ids, args.out, stream);
}

void gather_rows(const ops::GatherRowsArgs& args, ops::Stream& stream) {
  pick(args.x, 0, args.rows, args.out, stream);
}

}  // namespace fathom::cuda
