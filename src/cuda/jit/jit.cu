#include "cuda/jit/jit.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

#include "cuda/runtime/background.h"
#include "cuda/runtime/driver.h"

namespace fathom::cuda {
namespace {

jit::Options chosen;
jit::Kernels* current = nullptr;

Error error_of(CUresult result, const std::string& what) {
  const char* words = nullptr;
  static const auto name = driver_function<decltype(&cuGetErrorString)>("cuGetErrorString");
  if (name(result, &words) != CUDA_SUCCESS || words == nullptr) words = "unknown error";
  return {ErrorCode::kInternal, "the GPU could not " + what + ": " + words};
}

// The devices that ranks of this process use.
std::vector<int> used_devices() {
  static const auto state =
      driver_function<decltype(&cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState");
  int count = 0;
  check(cudaGetDeviceCount(&count), "be counted");
  std::vector<int> devices;
  for (int device = 0; device < count; ++device) {
    unsigned flags = 0;
    int is_active = 0;
    if (state(device, &flags, &is_active) == CUDA_SUCCESS && is_active != 0)
      devices.push_back(device);
  }
  return devices;
}

// Loaded now on every device that is in use, and not by its first launch there. The library stays until the process
// ends.
Result<void*> load(const std::string& code, const std::string& entry) {
  static const auto load_library =
      driver_function<decltype(&cuLibraryLoadData)>("cuLibraryLoadData");
  static const auto find_kernel =
      driver_function<decltype(&cuLibraryGetKernel)>("cuLibraryGetKernel");
  static const auto find_function =
      driver_function<decltype(&cuKernelGetFunction)>("cuKernelGetFunction");
  check(cudaSetDevice(0), "be used by a thread");
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  CUresult result = load_library(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS) result = find_kernel(&kernel, library, entry.c_str());
  for (const int device : used_devices()) {
    if (result != CUDA_SUCCESS) break;
    check(cudaSetDevice(device), "be used by a thread");
    result = find_function(&function, kernel);
  }
  if (result != CUDA_SUCCESS) return error_of(result, "load the compiled kernel " + entry);
  return static_cast<void*>(kernel);
}

}  // namespace

// What was wanted with other options stays as it is, since who wanted it holds on to it.
void set_jit(const jit::Options& options) {
  if (options == chosen) return;
  chosen = options;
  current = nullptr;
}

// Never destroyed: at the end of the process what it holds may be gone before it (runtime/background.h).
jit::Kernels& jit_kernels() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (current == nullptr)
    current = new jit::Kernels(
        chosen, {.open_compiler = [library = chosen.library] { return jit::open_nvrtc(library); },
                 .load = load,
                 .start = [](const std::function<void()>& work) { background().start(work); }});
  return *current;
}

void settle_jit() { jit_kernels().settle(); }

void hasten_jit() {
  if (current != nullptr) current->hasten();
}

std::vector<jit::KernelState> jit_states() { return jit_kernels().states(); }

jit::Progress jit_progress() { return jit_kernels().progress(); }

}  // namespace fathom::cuda
