#include "cpu/fast/fast_stream.h"

#include <algorithm>

#include "base/check.h"
#include "cpu/fast/cpu_topology.h"
#include "cpu/memory.h"

namespace fathom::cpu {

FastStream::FastStream(const ops::Backend& backend, int num_threads, Isa isa)
    : CpuStream(backend),
      pool_(num_threads == 0 ? num_physical_cores() : num_threads),
      kernels_(&kernels_for(isa)),
      workspaces_(allocate(pool_.num_threads() * kWorkspaceBytes)) {
  FATHOM_CHECK(workspaces_ != nullptr, "no memory for " << pool_.num_threads() << " workspaces");
}

void FastStream::Free::operator()(void* data) const { deallocate(data); }

void FastStream::touch(void* data, int64_t bytes) {
  constexpr int64_t kPieceBytes = int64_t{4} << 20;
  pool_.run((bytes + kPieceBytes - 1) / kPieceBytes, [&](int64_t piece, int) {
    const int64_t begin = piece * kPieceBytes;
    touch_pages(static_cast<char*>(data) + begin, std::min(kPieceBytes, bytes - begin));
  });
}

void* FastStream::workspace(int worker) const {
  return static_cast<char*>(workspaces_.get()) + worker * kWorkspaceBytes;
}

}  // namespace fathom::cpu
