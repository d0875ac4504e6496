#include "apps/engine/backend_choice.h"

#include <chrono>
#include <map>
#include <string>

#include "apps/engine/tuned_choices.h"
#include "base/mutex.h"
#include "base/startup_error.h"
#include "cpu/fast/fast_backend.h"
#include "cpu/reference/reference_backend.h"
#include "cuda/attention/choice.h"
#include "cuda/backend.h"
#include "cuda/fusion/chains.h"
#include "cuda/gemm/library.h"
#include "cuda/jit/jit.h"
#include "ops/parts_only.h"

namespace fathom::apps {
namespace {

// What was asked for and cannot be had is an error; "auto" takes what there is.
void choose_gemm_backend(const EngineFlags& flags, bool on_gpu) {
  const std::string& name = flags.device.gemm_backend;
  if (name != "auto" && !on_gpu) throw StartupError("--gemm-backend " + name + " needs a GPU");
  if (name == "cublaslt") {
    if (flags.model.deterministic)
      throw StartupError(
          "--gemm-backend cublaslt does not go with --deterministic: its sums have another order "
          "for other numbers of rows");
    const Result<std::string> library = cuda::find_cublaslt();
    if (!library) throw StartupError("--gemm-backend cublaslt: " + library.error().message);
  }
  cuda::set_gemm_backend(name == "auto"     ? cuda::GemmBackend::kAuto
                         : name == "fathom" ? cuda::GemmBackend::kFathom
                                            : cuda::GemmBackend::kCublasLt);
}

// From when the program is ready: its first answers come as soon as with --jit off.
constexpr std::chrono::milliseconds kCompilerHeadStart{1000};

// A CPU has nothing that is compiled at run time: there the default means nothing, and what was asked for is an error.
void choose_jit(const DeviceFlags& flags, bool on_gpu) {
  if (flags.enable_fusion && flags.disable_fusion)
    throw StartupError("--enable-fusion does not go with --disable-fusion");
  if (flags.enable_fusion && flags.jit == "off")
    throw StartupError("--enable-fusion needs --jit background or wait, is off");
  if (!flags.enable_fusion && flags.fusion_max_bs != DeviceFlags{}.fusion_max_bs)
    throw StartupError("--fusion-max-bs needs --enable-fusion");
  if (!on_gpu && flags.enable_fusion) throw StartupError("--enable-fusion needs a GPU");
  if (!on_gpu && flags.jit == "wait") throw StartupError("--jit wait needs a GPU");
  if (!on_gpu) return;
  cuda::set_jit({.mode = flags.jit == "off"    ? jit::Mode::kOff
                         : flags.jit == "wait" ? jit::Mode::kWait
                                               : jit::Mode::kBackground,
                 .library = flags.nvrtc_library,
                 .directory = flags.jit_cache_dir,
                 .head_start = kCompilerHeadStart});
  cuda::fuse_chains(flags.enable_fusion ? flags.fusion_max_bs : 0);
}

const ops::Backend& without_fusion(const ops::Backend& backend) {
  static Mutex mutex;
  static std::map<const ops::Backend*, ops::Backend> tables;
  const MutexLock lock(mutex);
  return tables.try_emplace(&backend, ops::parts_only(backend)).first->second;
}

const ops::Backend& with_attention(const ops::Backend& device, const EngineFlags& flags) {
  const bool is_generic = flags.device.attention_backend == "generic";
  if (device.device_memory) {
    cuda::set_attention_backend(is_generic ? cuda::AttentionBackend::kGeneric
                                           : cuda::AttentionBackend::kAuto);
    return flags.model.deterministic ? cuda::batch_invariant_backend() : device;
  }
  // The reference's own is generic.
  const bool is_fast = &device == &cpu::fast_backend();
  return is_generic && is_fast ? cpu::generic_attention_backend() : device;
}

const ops::Backend& choose_device(const EngineFlags& flags) {
  if (flags.device.device != "cpu") {
    const cuda::Presence gpu = cuda::find_gpu();
    if (gpu.usable) return cuda::backend();
    if (flags.device.device == "cuda") throw StartupError("--device cuda: " + gpu.why_not);
  }
  return flags.device.cpu_backend == "reference" ? cpu::reference_backend() : cpu::fast_backend();
}

}  // namespace

const ops::Backend& choose_backend(const EngineFlags& flags) {
  const ops::Backend& device = choose_device(flags);
  choose_gemm_backend(flags, device.device_memory);
  choose_jit(flags.device, device.device_memory);
  take_tuned_choices(flags, device.device_memory);
  return table_of(device, flags);
}

const ops::Backend& table_of(const ops::Backend& device, const EngineFlags& flags) {
  const ops::Backend& backend = with_attention(device, flags);
  return flags.device.disable_fusion ? without_fusion(backend) : backend;
}

json::Value compiled_kernels() {
  json::Value kernels = json::Value::array();
  for (const jit::KernelState& kernel : cuda::jit_states())
    kernels.push_back({{"name", kernel.name}, {"state", kernel.state}});
  return kernels;
}

std::vector<const ops::Backend*> usable_backends() {
  std::vector<const ops::Backend*> backends = {&cpu::fast_backend(), &cpu::reference_backend()};
  if (cuda::find_gpu().usable) backends.push_back(&cuda::backend());
  return backends;
}

void end_background_work() {
  cuda::hasten_jit();
  cuda::wait_for_cublaslt();
}

}  // namespace fathom::apps
