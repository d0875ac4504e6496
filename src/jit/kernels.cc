#include "jit/kernels.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"

namespace fathom::jit {
namespace {

// Behind all that serves requests, where processors are short.
void lower_priority() {
  constexpr int kLowest = 19;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowest);
}

bool is_equal(const Source& a, const Source& b) {
  return a.text == b.text && a.options == b.options && a.headers.data() == b.headers.data();
}

}  // namespace

void* Kernel::code() {
  if (!settled_.load(std::memory_order_acquire)) owner_->wait_for(*this);
  return code_.load(std::memory_order_acquire);
}

Kernel& Kernels::want(const std::string& name, const Source& source) {
  MutexLock lock(mutex_);
  for (const std::unique_ptr<Kernel>& known : kernels_)
    if (is_equal(known->source_, source)) return *known;
  kernels_.push_back(std::unique_ptr<Kernel>(new Kernel(*this, name, source)));
  Kernel& kernel = *kernels_.back();
  if (options_.mode == Mode::kOff) {
    kernel.state_ = "off";
    kernel.settled_ = true;
    return kernel;
  }
  kernel.state_ = "wanted";
  to_look_up_.push_back(&kernel);
  lock.unlock();
  changed_.notify_all();
  start_if_needed();
  return kernel;
}

void Kernels::start_if_needed() {
  MutexLock lock(mutex_);
  const bool starts = must_start();
  lock.unlock();
  if (starts) tools_.start([this] { work(); });
}

bool Kernels::must_start() {
  const bool has_work = !to_look_up_.empty() || (may_compile_ && !to_compile_.empty());
  return has_work && !std::exchange(is_working_, true);
}

void Kernels::wait_for(const Kernel& kernel) {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&] { return kernel.settled_.load(std::memory_order_acquire); });
}

void Kernels::settle() {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() FATHOM_REQUIRES(mutex_) {
    return std::all_of(kernels_.begin(), kernels_.end(), [](const auto& kernel) {
      return kernel->settled_.load(std::memory_order_acquire);
    });
  });
  if (!std::exchange(may_compile_, true))
    compile_from_ = std::chrono::steady_clock::now() + options_.head_start;
  lock.unlock();
  start_if_needed();
}

void Kernels::hasten() {
  {
    const MutexLock lock(mutex_);
    is_hastened_ = true;
  }
  changed_.notify_all();
}

// Waits to its end, or until there is something to look up.
bool Kernels::is_called_in_head_start() {
  MutexLock lock(mutex_);
  if (!may_compile_ || to_compile_.empty()) return false;
  changed_.wait_until(lock, compile_from_, [&]() FATHOM_REQUIRES(mutex_) {
    return is_hastened_ || !to_look_up_.empty();
  });
  return !to_look_up_.empty();
}

std::vector<KernelState> Kernels::states() {
  const MutexLock lock(mutex_);
  std::vector<KernelState> states;
  for (const std::unique_ptr<Kernel>& kernel : kernels_)
    states.push_back({.name = kernel->name_, .state = kernel->state_});
  return states;
}

Progress Kernels::progress() {
  const MutexLock lock(mutex_);
  return {.num_compiled = num_compiled_,
          .is_done = to_look_up_.empty() && to_compile_.empty() && !is_working_};
}

// Null when there is none.
Kernel* Kernels::next_to_look_up() {
  const MutexLock lock(mutex_);
  if (to_look_up_.empty()) return nullptr;
  Kernel* const kernel = to_look_up_.front();
  to_look_up_.pop_front();
  return kernel;
}

// Null when there is none that may be compiled now.
Kernel* Kernels::next_to_compile() {
  const MutexLock lock(mutex_);
  if (!may_compile_ || to_compile_.empty()) return nullptr;
  Kernel* const kernel = to_compile_.front();
  to_compile_.pop_front();
  return kernel;
}

void Kernels::work() {
  lower_priority();
  for (;;) {
    while (Kernel* const kernel = next_to_look_up()) look_up(*kernel);
    if (is_called_in_head_start()) continue;
    if (Kernel* const kernel = next_to_compile()) {
      compile(*kernel);
      continue;
    }
    const MutexLock lock(mutex_);
    is_working_ = false;
    if (!must_start()) return;
  }
}

void Kernels::open_cache() {
  if (std::exchange(has_asked_for_cache_, true) || options_.directory == "none") return;
  const std::string directory =
      options_.directory.empty() ? default_directory() : options_.directory;
  Result<DiskCache> cache = DiskCache::open(directory, options_.max_cache_bytes);
  if (cache) {
    cache_ = *cache;
  } else {
    say_not_kept(cache.error().message);
  }
}

bool Kernels::open_compiler() {
  if (compiler_ != nullptr || !no_compiler_.empty()) return compiler_ != nullptr;
  Result<std::unique_ptr<Compiler>> opened = tools_.open_compiler();
  if (opened) {
    compiler_ = std::move(*opened);
    return true;
  }
  no_compiler_ = opened.error().message;
  FATHOM_LOG(kWarning, "jit", "no compiler: the kernels that were built ahead serve",
             {{"why", no_compiler_}});
  return false;
}

void Kernels::look_up(Kernel& kernel) {
  open_cache();
  kernel.key_ = key_of(kernel.source_);
  if (cache_) {
    if (const std::optional<std::string> found = cache_->find(kernel.key_)) {
      // What does not load is compiled once more.
      if (const Result<void*> loaded = tools_.load(*found, kernel.source_.entry))
        return finish(kernel, *loaded, "from the cache");
    }
  }
  const MutexLock lock(mutex_);
  to_compile_.push_back(&kernel);
  if (options_.mode == Mode::kWait) return;
  kernel.settled_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Kernels::compile(Kernel& kernel) {
  if (!open_compiler()) return finish(kernel, nullptr, "failed: " + no_compiler_);
  const Stopwatch watch;
  const Result<std::string> code = compiler_->compile(kernel.source_);
  if (!code) return finish(kernel, nullptr, "failed: " + code.error().message);
  const auto milliseconds = static_cast<int64_t>(watch.seconds() * 1000);
  const Result<void*> loaded = tools_.load(*code, kernel.source_.entry);
  if (!loaded) return finish(kernel, nullptr, "failed: " + loaded.error().message);
  finish(kernel, *loaded, "compiled in " + std::to_string(milliseconds) + " ms");
  {
    const MutexLock lock(mutex_);
    ++num_compiled_;
  }
  store(kernel, *code);
}

void Kernels::store(const Kernel& kernel, const std::string& code) {
  if (!cache_) return;
  const Status stored = cache_->store(kernel.key_, code);
  if (!stored) say_not_kept(stored.error().message);
}

void Kernels::finish(Kernel& kernel, void* code, const std::string& state) {
  FATHOM_LOG(kInfo, "jit", "kernel", {{"name", kernel.name_}, {"state", state}});
  const MutexLock lock(mutex_);
  kernel.state_ = state;
  kernel.code_.store(code, std::memory_order_release);
  kernel.settled_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Kernels::say_not_kept(const std::string& why) {
  if (std::exchange(said_no_cache_, true)) return;
  FATHOM_LOG(kWarning, "jit", "compiled kernels are not kept", {{"why", why}});
}

}  // namespace fathom::jit
