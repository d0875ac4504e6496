// What the FP8 products of NVIDIA's CUTLASS take over DeepSeek-V3's matrices, to set beside ours and cuBLASLt's:
//
//   cmake --preset release -DFATHOM_BENCH_CUTLASS=ON && cmake --build --preset release --target bench_cutlass
//   bench_cutlass > cutlass.jsonl   # a JSON line for each matrix and number of rows: the fastest of three tiles
//   tools/product_table.py --markdown fathom.jsonl cublaslt.jsonl cutlass.jsonl
//
// Scales are float32, one for each 128 of a row and each 128 x 128 of the matrix; those of rows lie block by block,
// which is what CUTLASS reads. Random data, three sets of it in turn, replayed from a graph; each result is compared
// with sums in float64 at 2048 places.

#include <cuda_fp8.h>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/detail/blockwise_scale_layout.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

constexpr int kBlock = 128, kSets = 3, kPlaces = 2048;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "bench_cutlass: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

// out[m, n] = x[m, k] * w[n, k]^T
struct Product {
  int m, n, k;
  const uint8_t *x, *w;            // e4m3
  const float *x_scale, *w_scale;  // f32[k / 128, m], f32[n / 128, k / 128]
  __nv_bfloat16* out;
};

template <class Tile, class Schedule, class Store>
struct Kernel {
  using F8 = cutlass::float_e4m3_t;
  using Bf16 = cutlass::bfloat16_t;
  using Rows = cutlass::layout::RowMajor;
  using Columns = cutlass::layout::ColumnMajor;
  using Arch = cutlass::arch::Sm90;
  using TensorOp = cutlass::arch::OpClassTensorOp;
  using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
  using Scales = cutlass::detail::Sm90BlockwiseScaleConfig<1, kBlock, kBlock, cute::GMMA::Major::MN,
                                                           cute::GMMA::Major::K>;
  using XScales = decltype(Scales::deduce_layoutSFA());
  using WScales = decltype(Scales::deduce_layoutSFB());
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, TensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
      void, Rows, 8, Bf16, Rows, 8, Store>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      Arch, TensorOp, F8, cute::tuple<Rows, XScales>, 16, F8, cute::tuple<Columns, WScales>, 16,
      float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      Schedule>::CollectiveOp;
  using Universal =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue,
                                           cutlass::gemm::PersistentScheduler>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Universal>;

  // False where it does not take the sizes.
  static bool run(const Product& p, cudaStream_t stream) {
    const auto stride = [](auto of, int rows, int columns) {
      return cutlass::make_cute_packed_stride(of, cute::make_shape(rows, columns, 1));
    };
    const auto sizes = cute::make_shape(p.m, p.n, p.k, 1);
    typename Gemm::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {p.m, p.n, p.k, 1},
        {reinterpret_cast<const F8*>(p.x), stride(typename Universal::StrideA{}, p.m, p.k),
         reinterpret_cast<const F8*>(p.w), stride(typename Universal::StrideB{}, p.n, p.k),
         p.x_scale, Scales::tile_atom_to_shape_SFA(sizes), p.w_scale,
         Scales::tile_atom_to_shape_SFB(sizes)},
        {{},
         nullptr,
         {},
         reinterpret_cast<Bf16*>(p.out),
         stride(typename Universal::StrideD{}, p.m, p.n)}};
    arguments.epilogue.thread.alpha = 1;
    arguments.scheduler.max_swizzle_size = 8;
    check(cudaDeviceGetAttribute(&arguments.hw_info.sm_count, cudaDevAttrMultiProcessorCount, 0));
    Gemm gemm;
    return Gemm::get_workspace_size(arguments) == 0 &&
           gemm.can_implement(arguments) == cutlass::Status::kSuccess &&
           gemm.initialize(arguments, nullptr, stream) == cutlass::Status::kSuccess &&
           gemm.run(stream) == cutlass::Status::kSuccess;
  }
};

template <int kM>
using Cooperative = Kernel<cute::Shape<cute::Int<kM>, cute::_128, cute::_128>,
                           cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8Blockwise,
                           cutlass::epilogue::TmaWarpSpecializedCooperative>;
using Pingpong = Kernel<cute::Shape<cute::_64, cute::_128, cute::_128>,
                        cutlass::gemm::KernelTmaWarpSpecializedPingpongFP8Blockwise,
                        cutlass::epilogue::TmaWarpSpecialized>;

__host__ __device__ uint32_t scrambled(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// Of a normal distribution, as quantised rows are: up to the largest e4m3.
__global__ void fill_f8(uint8_t* to, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    const float u = (scrambled(2 * i + seed) + 1.0f) / 4294967808.0f;
    const float v = scrambled(2 * i + 1 + seed) / 4294967296.0f;
    to[i] =
        __nv_cvt_float_to_fp8(120 * sqrtf(-2 * logf(u)) * cospif(2 * v), __NV_SATFINITE, __NV_E4M3);
  }
}
__global__ void fill_scales(float* to, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    to[i] = 0.5f + scrambled(i + seed) / 4294967296.0f;
}

__device__ double value(uint8_t x) {
  const __half_raw half = __nv_cvt_fp8_to_halfraw(x, __NV_E4M3);
  return __half2float(half);
}

// One warp a place: adds the squares of error and result.
__global__ void compare(Product p, double* squares) {
  const int row = scrambled(7 * blockIdx.x) % p.m, column = scrambled(13 * blockIdx.x + 5) % p.n;
  double sum = 0;
  for (int i = threadIdx.x; i < p.k; i += 32)
    sum += value(p.x[size_t(row) * p.k + i]) * value(p.w[size_t(column) * p.k + i]) *
           p.x_scale[size_t(i / kBlock) * p.m + row] *
           p.w_scale[column / kBlock * (p.k / kBlock) + i / kBlock];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x > 0) return;
  const double error = __bfloat162float(p.out[size_t(row) * p.n + column]) - sum;
  atomicAdd(squares, error * error);
  atomicAdd(squares + 1, sum * sum);
}

class Operands {
 public:
  Operands(int m, int n, int k) {
    for (int i = 0; i < kSets; ++i) {
      const size_t x = size_t(m) * k, w = size_t(n) * k;
      const size_t x_scales = size_t(m) * (k / kBlock);
      const size_t w_scales = size_t((n + kBlock - 1) / kBlock) * (k / kBlock);
      auto* const xs = take<uint8_t>(x);
      auto* const ws = take<uint8_t>(w);
      auto* const x_scale = take<float>(x_scales);
      auto* const w_scale = take<float>(w_scales);
      fill_f8<<<264, 512>>>(xs, x, 1 + i);
      fill_f8<<<264, 512>>>(ws, w, 100 + i);
      fill_scales<<<264, 256>>>(x_scale, x_scales, 5);
      fill_scales<<<264, 256>>>(w_scale, w_scales, 77);
      sets.push_back({m, n, k, xs, ws, x_scale, w_scale, take<__nv_bfloat16>(size_t(m) * n)});
      check(cudaMemset(sets.back().out, 0xff, size_t(m) * n * sizeof(__nv_bfloat16)));
    }
    check(cudaDeviceSynchronize());
  }
  ~Operands() {
    for (void* piece : pieces_) cudaFree(piece);
  }
  std::vector<Product> sets;

 private:
  template <class T>
  T* take(size_t count) {
    void* piece = nullptr;
    check(cudaMalloc(&piece, count * sizeof(T)));
    pieces_.push_back(piece);
    return static_cast<T*>(piece);
  }
  std::vector<void*> pieces_;
};

using Run = std::function<bool(const Product&, cudaStream_t)>;

double microseconds(const Run& run, const Operands& operands, cudaStream_t stream) {
  constexpr int kCalls = 12, kSamples = 7;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kCalls; ++i) run(operands.sets[i % kSets], stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> samples;
  for (int i = 0; i <= kSamples; ++i) {
    float milliseconds = 0;
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(exec, stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i > 0) samples.push_back(milliseconds * 1000 / kCalls);
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  check(cudaGraphExecDestroy(exec));
  check(cudaGraphDestroy(graph));
  std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
  return samples[kSamples / 2];
}

double relative_error(const Product& product, double* squares) {
  squares[0] = squares[1] = 0;
  compare<<<kPlaces, 32>>>(product, squares);
  check(cudaDeviceSynchronize());
  return std::sqrt(squares[0] / squares[1]);
}

struct Tile {
  const char* name;
  Run run;
};

void bench(int m, int n, int k, const std::vector<Tile>& tiles, cudaStream_t stream,
           double* squares) {
  const Operands operands(m, n, k);
  double best = 0, error = 0;
  const char* name = nullptr;
  for (const Tile& tile : tiles) {
    if (!tile.run(operands.sets[0], stream)) continue;
    check(cudaStreamSynchronize(stream));
    const double its_error = relative_error(operands.sets[0], squares);
    const double time = microseconds(tile.run, operands, stream);
    if (name != nullptr && time >= best) continue;
    name = tile.name, best = time, error = its_error;
  }
  if (name == nullptr) return;
  std::printf(
      "{\"gemm_backend\": \"cutlass\", \"case\": \"%s\", \"dtype\": \"f8_e4m3\", \"out\": %d, "
      "\"in\": %d, \"tokens\": %d, \"us\": %.3f, \"relative_error\": %.2e}\n",
      name, n, k, m, best, error);
  std::fflush(stdout);
}

}  // namespace

int main() {
  // Of a V3 rank of eight, then of the whole model: out, in.
  constexpr int kMatrices[][2] = {{576, 7168},   {1536, 7168},  {2112, 7168},  {3072, 1536},
                                  {7168, 2048},  {4608, 7168},  {7168, 2304},  {512, 7168},
                                  {7168, 256},   {24576, 1536}, {7168, 16384}, {36864, 7168},
                                  {7168, 18432}, {4096, 7168}};
  const std::vector<Tile> tiles = {{"128 x 128", Cooperative<128>::run},
                                   {"256 x 128", Cooperative<256>::run},
                                   {"64 x 128, two in turn", Pingpong::run}};
  cudaStream_t stream = nullptr;
  double* squares = nullptr;
  check(cudaStreamCreate(&stream));
  check(cudaMallocManaged(&squares, 2 * sizeof(double)));
  for (const auto& [n, k] : kMatrices)
    for (const int m : {256, 512, 1024, 2048, 4096, 8192}) bench(m, n, k, tiles, stream, squares);
  return 0;
}
