#include "apps/bench/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

constexpr int kPollMilliseconds = 100;
// Of the errors' end.
constexpr size_t kKeptBytes = 16'384;
constexpr int kNoProgramStatus = 127;
// Before every line that main() writes of an error.
constexpr std::string_view kProgramPrefix = "fathom: ";

[[noreturn]] void become(const std::vector<char*>& arguments, int error_pipe, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNoProgramStatus);  // it has ended already
  const int nowhere = open("/dev/null", O_RDWR);
  dup2(nowhere, STDIN_FILENO);
  dup2(nowhere, STDOUT_FILENO);
  dup2(error_pipe, STDERR_FILENO);
  execv("/proc/self/exe", arguments.data());
  _exit(kNoProgramStatus);
}

// What a process writes, of which the end is kept.
class ErrorPipe {
 public:
  ErrorPipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw StartupError(std::string("no pipe for a child: ") + std::strerror(errno));
  }
  ~ErrorPipe() {
    close(ends_[0]);
    close_writer();
  }
  ErrorPipe(const ErrorPipe&) = delete;
  ErrorPipe& operator=(const ErrorPipe&) = delete;

  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  // Waits a moment for more; false = all who could write have ended.
  bool read_more() {
    pollfd waited{.fd = ends_[0], .events = POLLIN, .revents = 0};
    if (poll(&waited, 1, kPollMilliseconds) <= 0) return true;
    std::array<char, 4096> buffer{};
    const ssize_t count = read(ends_[0], buffer.data(), buffer.size());
    if (count <= 0) return count < 0 && errno == EINTR;
    text_.append(buffer.data(), static_cast<size_t>(count));
    if (text_.size() > kKeptBytes) text_.erase(0, text_.size() - kKeptBytes);
    return true;
  }
  std::string last_line() const {
    const size_t end = text_.find_last_not_of("\r\n") + 1;
    const size_t begin = end == 0 ? 0 : text_.find_last_of("\r\n", end - 1) + 1;
    std::string line = text_.substr(begin, end - begin);
    if (line.starts_with(kProgramPrefix)) line.erase(0, kProgramPrefix.size());
    return line;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  std::string text_;
};

std::string why_failed(int status, const std::string& last_line) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (WIFSIGNALED(status))
    return std::string("ended by signal ") + strsignal(WTERMSIG(status)) +
           (last_line.empty() ? "" : ": " + last_line);
  return last_line.empty() ? "exit status " + std::to_string(WEXITSTATUS(status)) : last_line;
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

ChildEnd run_this_program(const std::vector<std::string>& words, double time_limit_seconds) {
  std::vector<std::string> copies = {"fathom"};
  copies.insert(copies.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  ErrorPipe errors;
  const Stopwatch watch;
  const pid_t parent = getpid();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw StartupError(std::string("no child process: ") + std::strerror(errno));
  if (child == 0) become(arguments, errors.writer(), parent);
  errors.close_writer();
  bool is_late = false;
  while (errors.read_more() && !is_late) is_late = watch.seconds() > time_limit_seconds;
  if (is_late) kill(child, SIGKILL);
  const int status = wait_for(child);
  ChildEnd end{.why_failed = why_failed(status, errors.last_line()), .seconds = watch.seconds()};
  if (is_late)
    end.why_failed = "took longer than " + std::to_string(static_cast<int>(time_limit_seconds)) +
                     " s (--time-limit)";
  return end;
}

}  // namespace fathom::apps
