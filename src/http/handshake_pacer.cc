#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "http/handshake_pacer_internal.h"

namespace fathom::http {
namespace {

using Clock = std::chrono::steady_clock;

// Shorter ones hold nobody up, and a timer would cost as much.
constexpr std::chrono::microseconds kShort{200};

}  // namespace

void HandshakePacer::add(const std::string& address, std::function<void()> begin) {
  if (is_stopped_) return;
  std::deque<std::function<void()>>& queue = waiting_[address];
  if (queue.empty()) turns_.push_back(address);
  queue.push_back(std::move(begin));
  if (!is_busy_) begin_next();
}

void HandshakePacer::stop() {
  is_stopped_ = true;
  waiting_.clear();
  turns_.clear();
  pause_.cancel();
}

void HandshakePacer::begin_next() {
  is_busy_ = !turns_.empty();
  if (!is_busy_) return;
  const std::string address = std::move(turns_.front());
  turns_.pop_front();
  const auto found = waiting_.find(address);
  const std::function<void()> begin = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    waiting_.erase(found);
  } else {
    turns_.push_back(address);
  }
  const Clock::time_point before = Clock::now();
  begin();
  // The hello is there already, so the handler that reads it and computes stands in the loop's queue, before this one.
  boost::asio::post(io_, [this, before] { rest(Clock::now() - before); });
}

void HandshakePacer::rest(Clock::duration taken) {
  if (is_stopped_) return;
  if (taken < kShort) return begin_next();
  pause_.expires_after(taken);
  pause_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !is_stopped_) begin_next();
  });
}

}  // namespace fathom::http
