#if __has_include(<cupti.h>)

#include "cuda/profile/cupti.cuh"

#include "base/shared_library.h"

namespace fathom::cuda {
namespace {

// False when one is missing: a library of another age.
bool find_all(void* library, Cupti& cupti) {
  return find(library, "cuptiActivityRegisterCallbacks", cupti.register_callbacks) &&
         find(library, "cuptiActivityRegisterTimestampCallback", cupti.register_clock) &&
         find(library, "cuptiActivityEnable", cupti.enable) &&
         find(library, "cuptiActivityDisable", cupti.disable) &&
         find(library, "cuptiActivityFlushAll", cupti.flush_all) &&
         find(library, "cuptiActivityFlushPeriod", cupti.flush_period) &&
         find(library, "cuptiActivityGetNextRecord", cupti.next_record) &&
         find(library, "cuptiActivityGetNumDroppedRecords", cupti.num_dropped_records) &&
         find(library, "cuptiGetResultString", cupti.result_string);
}

}  // namespace

Result<Cupti> open_cupti(const std::vector<std::string>& libraries) {
  return open_library<Cupti>("CUPTI", libraries, find_all);
}

}  // namespace fathom::cuda

#endif
