#if __has_include(<cupti.h>)

#include "cuda/profile/cupti.cuh"

#include <dlfcn.h>

namespace fathom::cuda {
namespace {

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Null when one is missing: a library of another age.
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
  std::string tried;
  for (const std::string& name : libraries) {
    tried += (tried.empty() ? "" : ", ") + name;
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    Cupti cupti;
    if (find_all(library, cupti)) return cupti;
    tried += " (too old)";
    dlclose(library);
  }
  return Error{ErrorCode::kNotFound, "CUPTI cannot be opened, tried " + tried};
}

}  // namespace fathom::cuda

#endif
