// The host's spans as NVTX ranges. Only where a profiler that listens was injected into the program.

#include <cstdlib>

#include "base/trace.h"
#include "cuda/profile/nvtx.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace fathom::cuda {
namespace {

// "runner/enqueue"
void begin_range(const char* category, const char* name) {
  thread_local std::string text;
  text.assign(category).append("/").append(name);
  nvtxRangePushA(text.c_str());
}

void end_range() { nvtxRangePop(); }

}  // namespace

void name_spans_to_nvtx() {
  // Where NVTX looks for whom to tell; without it its calls do nothing.
  if (std::getenv("NVTX_INJECTION64_PATH") == nullptr) return;
  trace::set_listener({.begin = begin_range, .end = end_range});
}

}  // namespace fathom::cuda

#else

namespace fathom::cuda {
void name_spans_to_nvtx() {}
}  // namespace fathom::cuda

#endif
