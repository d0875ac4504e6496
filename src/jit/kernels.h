#pragma once
// Kernels: what is compiled at run time, beside the program. Whoever wants a kernel has another one that serves until
// this one is there, and for good where it never comes.
//
//   Kernel& kernel = kernels.want("chain of rms_norm, kv_append", source);      // at the start; never waits
//   void* const code = kernel.code();                                           // null: the other one serves
//
// A thread of low priority looks into the disk cache, for all that is wanted, and compiles what was not there: at once
// with Mode::kWait, otherwise some time behind settle(), when the program is ready, so that neither that nor its first
// answer comes later: compilers are large, and loading takes locks of the device. code() waits for the first, which
// takes milliseconds, and for the second with Mode::kWait alone. Nothing that fails stops the program: the reason is in
// the log, once, and in states().
//
// Thread-safe. What start() runs must end before the Kernels do.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "jit/compiler.h"
#include "jit/disk_cache.h"
#include "jit/source.h"

namespace fathom::jit {

enum class Mode {
  kOff,         // nothing is opened, nothing compiled
  kBackground,  // what the cache lacks is there when it has been compiled
  kWait,        // code() and settle() wait for the compiler
};

struct Options {
  Mode mode = Mode::kBackground;
  std::string library;    // of NVRTC; "" = where the system has it
  std::string directory;  // of the cache; "" = default_directory(), "none" = no cache
  int64_t max_cache_bytes = int64_t{256} << 20;
  std::chrono::milliseconds head_start{0};  // between settle() and the compiler, with kBackground
  bool operator==(const Options&) const = default;
};

class Kernels;

class Kernel {
 public:
  // What Tools::load made of it. Null: it is not there yet, or never will be.
  void* code();

 private:
  friend class Kernels;
  Kernel(Kernels& owner, std::string name, Source source)
      : owner_(&owner), name_(std::move(name)), source_(std::move(source)) {}

  Kernels* owner_;
  std::string name_;
  Source source_;
  std::string key_;  // of the worker's thread, as what follows
  std::atomic<void*> code_{nullptr};
  std::atomic<bool> settled_{false};  // code() need not wait
  std::string state_;                 // guarded by the owner's mutex
};

struct KernelState {
  std::string name;
  std::string state;  // "off", "wanted", "compiled in 210 ms", "from the cache", "failed: ..."
};

struct Progress {
  int64_t num_compiled =
      0;                // kernels whose code() is not null any more, because they were compiled
  bool is_done = true;  // nothing of what was wanted so far is to come
};

class Kernels {
 public:
  // How to get at a compiler and a GPU, and a thread.
  struct Tools {
    std::function<Result<std::unique_ptr<Compiler>>()> open_compiler;
    std::function<Result<void*>(const std::string& code, const std::string& entry)> load;
    std::function<void(std::function<void()> work)> start;
  };

  Kernels(const Options& options, Tools tools)
      : options_(options), tools_(std::move(tools)), may_compile_(options.mode == Mode::kWait) {}
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Equal sources are one kernel. It lives as long as this.
  Kernel& want(const std::string& name, const Source& source);
  // Returns when code() of all kernels wanted so far waits no longer. From here on, behind the head start, what is
  // missing is compiled.
  void settle();
  // Ends the head start: the program ends, and what was wanted is to be there when it starts again.
  void hasten();
  std::vector<KernelState> states();
  Progress progress();

 private:
  friend class Kernel;

  void wait_for(const Kernel& kernel);
  void work();
  void open_cache();
  bool open_compiler();
  Kernel* next_to_look_up();
  Kernel* next_to_compile();
  // Whether a thread is to be started, which then counts as working.
  bool must_start() FATHOM_REQUIRES(mutex_);
  void start_if_needed();
  bool is_called_in_head_start();
  void look_up(Kernel& kernel);
  void compile(Kernel& kernel);
  void store(const Kernel& kernel, const std::string& code);
  void finish(Kernel& kernel, void* code, const std::string& state);
  void say_not_kept(const std::string& why);

  const Options options_;
  const Tools tools_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<Kernel>> kernels_ FATHOM_GUARDED_BY(mutex_);
  std::deque<Kernel*> to_look_up_ FATHOM_GUARDED_BY(mutex_);
  std::deque<Kernel*> to_compile_ FATHOM_GUARDED_BY(mutex_);
  int64_t num_compiled_ FATHOM_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point compile_from_ FATHOM_GUARDED_BY(mutex_){};
  bool is_hastened_ FATHOM_GUARDED_BY(mutex_) = false;
  bool is_working_ FATHOM_GUARDED_BY(mutex_) = false;
  bool may_compile_ FATHOM_GUARDED_BY(mutex_);
  // Of the worker.
  std::unique_ptr<Compiler> compiler_;
  std::string no_compiler_;
  std::optional<DiskCache> cache_;
  bool has_asked_for_cache_ = false, said_no_cache_ = false;
};

}  // namespace fathom::jit
