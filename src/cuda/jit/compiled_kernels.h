#pragma once
// CompiledKernels: the kernels of one family that are compiled at run time, by the sizes that are constants in them.
//
//   kernels.want(sizes, "mla_absorbed 256+32", [&] { return source_of(sizes); });   // where a step is measured
//   if (void* const code = kernels.code_of(sizes)) launch_compiled(code, ...);      // null: the other kernel serves
//
// Thread-safe.

#include <string>
#include <vector>

#include "base/mutex.h"
#include "cuda/jit/jit.h"

namespace fathom::cuda {

template <class Sizes>
class CompiledKernels {
 public:
  // source: asked for the first time alone.
  template <class MakeSource>
  void want(const Sizes& sizes, const std::string& name, const MakeSource& source) {
    const MutexLock lock(mutex_);
    if (find(sizes) == nullptr)
      kernels_.push_back({.sizes = sizes, .kernel = &jit_kernels().want(name, source())});
  }

  // Never what nobody wanted: a step starts no compiler.
  void* code_of(const Sizes& sizes) {
    MutexLock lock(mutex_);
    jit::Kernel* const kernel = find(sizes);
    lock.unlock();
    return kernel == nullptr ? nullptr : kernel->code();
  }

 private:
  struct Sized {
    Sizes sizes;
    jit::Kernel* kernel;
  };

  jit::Kernel* find(const Sizes& sizes) FATHOM_REQUIRES(mutex_) {
    for (const Sized& known : kernels_)
      if (known.sizes == sizes) return known.kernel;
    return nullptr;
  }

  Mutex mutex_;
  std::vector<Sized> kernels_ FATHOM_GUARDED_BY(mutex_);
};

}  // namespace fathom::cuda
