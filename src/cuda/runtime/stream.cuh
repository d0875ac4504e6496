#pragma once
// CudaStream: the stream of the CUDA backend. Operators enqueue kernels on it and return.
//
//   cudaStream_t handle = CudaStream::of(stream).handle();
//
// Owns the CUDA stream, its scratch memory and its tickets. One thread at a time.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/stream.h"

namespace fathom::cuda {

// Aborts with the runtime's words: a CUDA call that fails in a step is a broken invariant.
void check(cudaError_t status, const char* what);

class CudaStream : public ops::Stream {
 public:
  // Counters for kernels whose blocks meet: all 0 between kernels, so whoever counts up sets back.
  static constexpr int kNumTickets = 1 << 16;

  // Throws StartupError when the device refuses.
  explicit CudaStream(const ops::Backend& backend);
  ~CudaStream() override;

  static CudaStream& of(ops::Stream& stream) { return static_cast<CudaStream&>(stream); }

  void synchronize() override;
  bool runs_ahead() const override { return true; }
  std::unique_ptr<ops::Graph> capture(const std::function<void()>& enqueue) override;
  std::unique_ptr<ops::Event> make_event() override;

  cudaStream_t handle() const { return handle_; }
  uint32_t* tickets() const { return tickets_; }

 protected:
  void* allocate_scratch(int64_t bytes) override;

 private:
  cudaStream_t handle_ = nullptr;
  void* scratch_ = nullptr;
  uint32_t* tickets_ = nullptr;
};

// How many the current device has. The device is asked once.
int num_multiprocessors();

}  // namespace fathom::cuda
