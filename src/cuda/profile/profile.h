#pragma once
// The GPU in the program's traces: kernels, copies and fills through CUPTI. join_traces() hands this recorder to
// base/trace.h.
//
//   const auto recorder = make_recorder({"libcupti.so.13"});
//   trace::set_device_recorder(recorder.get());
//
// CUPTI is opened when the first trace begins: where it is not installed, traces say so and have the host's side.

#include <memory>
#include <string>
#include <vector>

#include "base/device_trace.h"

namespace fathom::cuda {

// A recorder that opens the first of these libraries that there is. One per program records at a time. Null in a
// program that was built without CUPTI's headers.
std::unique_ptr<trace::DeviceRecorder> make_recorder(std::vector<std::string> libraries);

// From here on traces that the program records (base/trace.h) have the GPU's kernels and copies, which costs nothing
// while none is recorded, and profilers of NVIDIA see the host's spans. Called before there are spans.
void join_traces();

}  // namespace fathom::cuda
