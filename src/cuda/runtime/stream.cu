#include "cuda/runtime/stream.cuh"

#include "cuda/runtime/background.h"

#include "base/check.h"
#include "base/startup_error.h"
#include "ops/backend.h"

namespace fathom::cuda {
namespace {

class CudaGraph : public ops::Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t exec) : exec_(exec) {}
  ~CudaGraph() override { cudaGraphExecDestroy(exec_); }
  void replay(ops::Stream& stream) override {
    check(cudaGraphLaunch(exec_, CudaStream::of(stream).handle()), "launch a graph");
  }

 private:
  cudaGraphExec_t exec_;
};

class CudaEvent : public ops::Event {
 public:
  explicit CudaEvent(cudaStream_t stream) : stream_(stream) {
    check(cudaEventCreate(&event_), "create an event");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  void record() override { check(cudaEventRecord(event_, stream_), "record an event"); }
  void wait() override { check(cudaEventSynchronize(event_), "wait for an event"); }
  double seconds_since(const ops::Event& earlier) const override {
    float milliseconds = 0;
    const cudaEvent_t begin = static_cast<const CudaEvent&>(earlier).event_;
    check(cudaEventElapsedTime(&milliseconds, begin, event_),
          "measure the time between two events");
    return double{milliseconds} * 1e-3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

void start_check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw StartupError(std::string("the GPU could not ") + what + ": " + cudaGetErrorString(status));
}

}  // namespace

void check(cudaError_t status, const char* what) {
  FATHOM_CHECK(status == cudaSuccess,
               "the GPU could not " << what << ": " << cudaGetErrorString(status));
}

int num_multiprocessors() {
  static const int count = [] {
    int device = 0, value = 0;
    check(cudaGetDevice(&device), "name its device");
    check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device),
          "count its multiprocessors");
    return value;
  }();
  return count;
}

CudaStream::CudaStream(const ops::Backend& backend) : ops::Stream(backend) {
  start_check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "create a stream");
  constexpr size_t kBytes = kNumTickets * sizeof(uint32_t);
  start_check(cudaMalloc(&tickets_, kBytes), "allocate a stream's tickets");
  start_check(cudaMemsetAsync(tickets_, 0, kBytes, handle_), "clear a stream's tickets");
  start_check(cudaStreamSynchronize(handle_), "clear a stream's tickets");
}

CudaStream::~CudaStream() {
  background().wait();  // none of its threads may outlive the last stream
  cudaStreamSynchronize(handle_);
  cudaFree(scratch_);
  cudaFree(tickets_);
  cudaStreamDestroy(handle_);
}

void CudaStream::synchronize() {
  check(cudaStreamSynchronize(handle_), "finish the work of a stream");
}

std::unique_ptr<ops::Graph> CudaStream::capture(const std::function<void()>& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamBeginCapture(handle_, cudaStreamCaptureModeThreadLocal), "begin a capture");
  enqueue();
  check(cudaStreamEndCapture(handle_, &graph), "end a capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate a graph");
  check(cudaGraphDestroy(graph), "destroy a captured graph");
  check(cudaGraphUpload(exec, handle_), "upload a graph");
  return std::make_unique<CudaGraph>(exec);
}

std::unique_ptr<ops::Event> CudaStream::make_event() {
  return std::make_unique<CudaEvent>(handle_);
}

void* CudaStream::allocate_scratch(int64_t bytes) {
  synchronize();
  cudaFree(scratch_);
  scratch_ = nullptr;
  if (cudaMalloc(&scratch_, static_cast<size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // told by the null pointer
    scratch_ = nullptr;
  }
  return scratch_;
}

}  // namespace fathom::cuda
