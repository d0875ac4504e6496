#pragma once
// FastStream: a CPU stream with a thread pool, the kernels of one instruction set, and a workspace per
// worker. The operators of the fast backend get it from the ops::Stream they are called with.
//
//   FastStream& stream = fast_stream(ops_stream);
//   stream.run(num_tiles, work, [&](int64_t tile, int worker) { ... stream.workspace(worker) ... });
//
// Owns threads and memory. One thread submits at a time.

#include <cstdint>
#include <memory>

#include "cpu/fast/thread_pool.h"
#include "cpu/isa/isa.h"
#include "cpu/stream.h"

namespace fathom::cpu {

class FastStream : public CpuStream {
 public:
  // num_threads 0 = one per physical core of the affinity mask.
  FastStream(const ops::Backend& backend, int num_threads, Isa isa);

  const KernelTable& kernels() const { return *kernels_; }
  int num_threads() const { return pool_.num_threads(); }
  // In parallel: clearing pages takes the kernel as long as writing them.
  void touch(void* data, int64_t bytes) override;
  // kWorkspaceBytes for each worker, 64-byte aligned.
  void* workspace(int worker) const;

  // Calls task(index, worker) for each task; on this thread alone when the multiply-adds (or elements)
  // of all tasks together are too few to pay for waking the others.
  template <class Task>
  void run(int64_t num_tasks, int64_t work, const Task& task) {
    if (work >= kMinForkWork) return pool_.run(num_tasks, task);
    for (int64_t i = 0; i < num_tasks; ++i) task(i, 0);
  }

 private:
  static constexpr int64_t kMinForkWork = 32768;

  struct Free {
    void operator()(void* data) const;
  };
  ThreadPool pool_;
  const KernelTable* kernels_;
  std::unique_ptr<void, Free> workspaces_;
};

// REQUIRES: the stream was made by a fast backend.
inline FastStream& fast_stream(ops::Stream& stream) { return static_cast<FastStream&>(stream); }
inline const FastStream& fast_stream(const ops::Stream& stream) {
  return static_cast<const FastStream&>(stream);
}

}  // namespace fathom::cpu
