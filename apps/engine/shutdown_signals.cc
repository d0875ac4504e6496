#include "apps/engine/shutdown_signals.h"

#include <chrono>
#include <csignal>
#include <cstdlib>

#include "base/log.h"

namespace fathom::apps {
namespace {

// How long a reader of the log that stalls may hold up the end.
constexpr std::chrono::milliseconds kLastWords{200};

// Wakes run() when the object goes.
constexpr int kWakeSignal = SIGUSR2;

// They end a program by default. SIGUSR1: log rotation and monitoring send it to programs that might know it. SIGXFSZ:
// a file that may not grow is an error of that write. The others are of timers and descriptors that the server has not:
// a timer of the program that started it outlives exec().
constexpr int kIgnoredSignals[] = {SIGUSR1, SIGXFSZ, SIGALRM, SIGVTALRM, SIGPROF, SIGIO};

// But for one that is a tool's own, as a profiler's that was loaded before main(): that is left as it is.
void ignore(int signal) {
  struct sigaction now {};
  if (sigaction(signal, nullptr, &now) != 0) return;
  const bool is_default = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
  if (is_default) std::signal(signal, SIG_IGN);
}

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, kWakeSignal}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void end_here(int status) {
  flush_log(kLastWords);
  std::_Exit(status);
}

ShutdownSignals::ShutdownSignals() {
  // Threads inherit the mask, so the signals come to sigwait() and nowhere else.
  const sigset_t set = handled_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  for (const int signal : kIgnoredSignals) ignore(signal);
  thread_ = std::thread([this] { run(); });
}

ShutdownSignals::~ShutdownSignals() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  pthread_kill(thread_.native_handle(), kWakeSignal);
  thread_.join();
}

void ShutdownSignals::serving_begins() {
  const MutexLock lock(mutex_);
  serving_ = true;
}

void ShutdownSignals::shut_down() {
  {
    const MutexLock lock(mutex_);
    shutdown_ = true;
  }
  changed_.notify_all();
}

ShutdownSignals::Kind ShutdownSignals::wait() {
  MutexLock lock(mutex_);
  changed_.wait(lock, [this]() FATHOM_REQUIRES(mutex_) { return shutdown_ || reload_; });
  if (shutdown_) return Kind::kShutdown;
  reload_ = false;
  return Kind::kReload;
}

void ShutdownSignals::run() {
  const sigset_t set = handled_signals();
  while (true) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    take(signal);
    const MutexLock lock(mutex_);
    if (ending_) return;
  }
}

void ShutdownSignals::take(int signal) {
  const MutexLock lock(mutex_);
  if (signal == SIGHUP) {
    reload_ = true;
  } else if (signal != kWakeSignal) {
    if (urgent_) {
      FATHOM_LOG(kWarning, "apps", "third signal, ending here", {{"signal", signal}});
      end_here(1);
    }
    if (shutdown_) {
      FATHOM_LOG(kWarning, "apps", "second signal, ending at once", {{"signal", signal}});
      urgent_ = true;
    }
    if (!serving_) {
      FATHOM_LOG(kInfo, "apps", "signal while loading, ending", {{"signal", signal}});
      end_here(0);
    }
    shutdown_ = true;
  }
  changed_.notify_all();
}

}  // namespace fathom::apps
