#pragma once
// Spans of the host for profilers of NVIDIA.

namespace fathom::cuda {

// From here on every span is an NVTX range "category/name", if the program runs under a profiler that listens.
void name_spans_to_nvtx();

}  // namespace fathom::cuda
