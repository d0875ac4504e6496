// Makes threads late at random where they hand over to each other, as a busy machine does, but far more often. A
// library for LD_PRELOAD; tools/delayed_tests.sh builds and uses it.
//
// Five times a second a thread draws what it is: on time (half of the draws), late at each hundredth call of those
// below, or late at each third. Only some threads are slow at a time, because threads that are all slow keep their
// order. FATHOM_DELAY_MS is the longest delay in milliseconds (20).

#include <dlfcn.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kDrawsPerSecond = 5;
constexpr uint64_t kSeldom = 100, kOften = 3;

struct Thread {
  uint64_t random_state = 0;
  int64_t drawn_at = -1;
  uint64_t late_one_in = 0;  // 0 = never
};
thread_local Thread thread;

uint64_t longest_us() {
  static const uint64_t us = [] {
    const char* const text = std::getenv("FATHOM_DELAY_MS");
    return uint64_t{1000} * (text != nullptr ? std::strtoul(text, nullptr, 10) : 20);
  }();
  return us;
}

// xorshift64
uint64_t next_random() {
  uint64_t& state = thread.random_state;
  if (state == 0) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const auto id = static_cast<uint64_t>(syscall(SYS_gettid));
    state = (static_cast<uint64_t>(now.tv_nsec) * 0x9E3779B97F4A7C15U ^ id << 32) | 1;
  }
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

void be_late_at_times() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t draw = now.tv_sec * kDrawsPerSecond + now.tv_nsec * kDrawsPerSecond / 1'000'000'000;
  if (draw != thread.drawn_at) {
    const uint64_t choice = (next_random() >> 20) % 4;
    thread.drawn_at = draw;
    thread.late_one_in = choice == 0 ? kOften : choice == 1 ? kSeldom : 0;
  }
  if (thread.late_one_in == 0 || next_random() % thread.late_one_in != 0) return;
  const uint64_t us = (next_random() >> 20) % (longest_us() + 1);
  timespec delay{static_cast<time_t>(us / 1'000'000), static_cast<long>(us % 1'000'000 * 1000)};
  // The system call itself: errno and the functions below stay as they are.
  const int error = errno;
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &delay, nullptr);
  errno = error;
}

template <class Function>
Function* next_of(Function* /*for its type*/, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define NEXT(name) static const auto next = next_of(&name, #name)

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  NEXT(pthread_mutex_lock);
  be_late_at_times();
  return next(mutex);
}
ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  NEXT(send);
  be_late_at_times();
  const ssize_t sent = next(fd, bytes, size, flags);
  be_late_at_times();
  return sent;
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  NEXT(sendmsg);
  be_late_at_times();
  const ssize_t sent = next(fd, message, flags);
  be_late_at_times();
  return sent;
}
ssize_t recv(int fd, void* bytes, size_t size, int flags) {
  NEXT(recv);
  be_late_at_times();
  return next(fd, bytes, size, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  NEXT(recvmsg);
  be_late_at_times();
  return next(fd, message, flags);
}
ssize_t read(int fd, void* bytes, size_t size) {
  NEXT(read);
  be_late_at_times();
  return next(fd, bytes, size);
}
ssize_t write(int fd, const void* bytes, size_t size) {
  NEXT(write);
  be_late_at_times();
  return next(fd, bytes, size);
}
int epoll_wait(int epoll, epoll_event* events, int num_events, int timeout_ms) {
  NEXT(epoll_wait);
  const int num_ready = next(epoll, events, num_events, timeout_ms);
  be_late_at_times();
  return num_ready;
}

}  // extern "C"
