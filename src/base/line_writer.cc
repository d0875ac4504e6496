#include "base/line_writer.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/memory.h"

namespace fathom {

bool write_whole(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {  // whoever shares it made it non-blocking
      pollfd ready = {.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (n == 0 || errno != EINTR) {
      return false;  // closed or full: there is nobody to tell now
    }
  }
  return true;
}

LineWriter::LineWriter(int fd, Options options) : fd_(fd), options_(std::move(options)) {
  FATHOM_CHECK(options_.lost_line, "a LineWriter needs words for lines that it drops");
  thread_ = std::thread([this] { run(); });
}

LineWriter::~LineWriter() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
  }
  has_work_.notify_all();
  thread_.join();
}

bool LineWriter::write(std::string line) {
  const MutexLock lock(mutex_);
  const auto bytes = static_cast<int64_t>(line.size());
  if (waiting_bytes_ + bytes > options_.max_bytes) {
    ++num_dropped_;
    return false;
  }
  waiting_bytes_ += bytes;
  lines_.push_back(std::move(line));
  has_work_.notify_one();
  return true;
}

bool LineWriter::flush(std::chrono::milliseconds limit) {
  MutexLock lock(mutex_);
  return is_idle_.wait_for(lock, limit,
                           [this]() FATHOM_REQUIRES(mutex_) { return waiting_bytes_ == 0; });
}

int64_t LineWriter::num_dropped() const {
  const MutexLock lock(mutex_);
  return num_dropped_;
}

// Lines are dropped when the queue is full, so those that are missing would stand behind those that waited.
bool LineWriter::take_report(std::deque<std::string>& lines) {
  if (num_dropped_ == num_reported_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_report_ && !stops_) return false;
  next_report_ = now + options_.report_interval;
  std::string line = options_.lost_line(num_dropped_ - num_reported_);
  num_reported_ = num_dropped_;
  waiting_bytes_ += static_cast<int64_t>(line.size());
  lines.push_back(std::move(line));
  return true;
}

void LineWriter::run() {
  const memory::MustSucceed scope;  // everybody's lines go through here
  MutexLock lock(mutex_);
  while (true) {
    const auto has_line = [this]() FATHOM_REQUIRES(mutex_) { return stops_ || !lines_.empty(); };
    if (num_dropped_ > num_reported_) {
      has_work_.wait_until(lock, next_report_, has_line);
    } else {
      has_work_.wait(lock, has_line);
    }
    std::deque<std::string> lines;
    lines.swap(lines_);
    const bool ends_in_report = take_report(lines);
    if (lines.empty() && stops_) return;
    while (!lines.empty()) {
      const std::string line = std::move(lines.front());
      lines.pop_front();
      lock.unlock();
      const bool is_written = write_whole(fd_, line);
      lock.lock();
      waiting_bytes_ -= static_cast<int64_t>(line.size());
      // A report that is lost is not reported: that would not end.
      if (!is_written && !(ends_in_report && lines.empty())) ++num_dropped_;
    }
    if (waiting_bytes_ == 0) is_idle_.notify_all();
  }
}

}  // namespace fathom
