#include "cpu/fast/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/check.h"
#include "base/clock.h"
#include "cpu/fast/cpu_topology.h"
#include "cpu/fast/thread_pool.h"
#include "cpu/isa/isa.h"
#include "cpu/memory.h"

namespace fathom::cpu {

namespace {

constexpr int64_t kBytes = int64_t{512} << 20;
constexpr int64_t kPieceBytes = int64_t{1} << 20;
// What is timed at once: short, so that on a busy machine some windows run undisturbed. The buffer is read
// in turn, so a window was last touched half a gibibyte ago and lies in no cache.
constexpr int64_t kWindow = 48;
constexpr int kPasses = 6;

}  // namespace

double measure_read_bandwidth_gb_s(int num_threads) {
  auto* const data = static_cast<float*>(allocate(kBytes));
  if (data == nullptr) return 0;
  ThreadPool pool(num_threads == 0 ? num_physical_cores() : num_threads);
  const KernelTable& kernels = kernels_for(effective_isa());
  constexpr int64_t kPieces = kBytes / kPieceBytes;
  constexpr int64_t kPieceFloats = kPieceBytes / int64_t{sizeof(float)};
  pool.run(kPieces,
           [&](int64_t i, int) { std::fill_n(data + i * kPieceFloats, kPieceFloats, 1.0f); });
  double best = 0;
  for (int64_t window = 0; window < kPasses * kPieces / kWindow; ++window) {
    const int64_t first = window * kWindow % kPieces;
    std::atomic<int64_t> read{0};
    const Stopwatch watch;
    pool.run(kWindow, [&](int64_t i, int) {
      const float sum =
          kernels.read_floats(data + (first + i) % kPieces * kPieceFloats, kPieceFloats);
      read.fetch_add(static_cast<int64_t>(sum), std::memory_order_relaxed);
    });
    best = std::max(best, static_cast<double>(kWindow * kPieceBytes) / watch.seconds() * 1e-9);
    FATHOM_CHECK(read.load() == kWindow * kPieceFloats, "read " << read.load() << " ones");
  }
  deallocate(data);
  return best;
}

}  // namespace fathom::cpu
