#include "base/check.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"

namespace fathom {
namespace {

// How long a reader of standard error that stalls may hold up the end.
constexpr int kLastWordsMs = 500;

// A pipe that is full would keep the broken program alive.
bool error_takes_more() {
  pollfd error{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&error, 1, kLastWordsMs) == 1;
}

}  // namespace

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  flush_log(std::chrono::milliseconds(kLastWordsMs));
  if (!error_takes_more()) std::abort();
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace fathom
