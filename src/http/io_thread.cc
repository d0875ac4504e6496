#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <chrono>
#include <ctime>
#include <exception>
#include <future>
#include <utility>

#include "base/check.h"
#include "base/entropy.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "http/connection_internal.h"
#include "http/io_thread_internal.h"
#include "http/response_writer.h"

namespace fathom::http {
namespace {

using std::chrono::milliseconds;

// How often timeouts are checked: an eighth of the shortest one, within bounds that cost next to nothing.
milliseconds tick_interval(const Timeouts& timeouts) {
  const auto shortest =
      std::min({timeouts.header, timeouts.body_idle, timeouts.body, timeouts.keep_alive,
                timeouts.write_stall, timeouts.behind, timeouts.stream_comment, timeouts.linger});
  return std::clamp(shortest / 8, milliseconds(5), milliseconds(250));
}

// Tasks should not throw. If one does, it is logged and the loop goes on.
void run_task(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& error) {
    FATHOM_LOG(kError, "http", "a task failed", {{"why", error.what()}});
  }
}

}  // namespace

IoThread::IoThread(std::shared_ptr<ServerShared> shared, int thread_idx)
    : shared_(std::move(shared)),
      thread_idx_(thread_idx),
      work_(boost::asio::make_work_guard(io_)),
      tick_timer_(io_),
      keys_(std::make_shared<const KeyStore>(shared_->config.keys)),
      date_(http_date_now()),
      id_seed_(entropy_bits()) {}

IoThread::~IoThread() { FATHOM_CHECK(!thread_.joinable(), "an I/O thread was not stopped"); }

void IoThread::run() {
  arm_tick();
  thread_ = std::thread([this] {
    const memory::MustSucceed scope;
    while (!run_loop()) {
    }
  });
}

// Runs the event loop. Returns false if a handler threw, which none should: the caller runs the loop again, so the
// other connections go on, and the handler's own ends by its timeouts.
bool IoThread::run_loop() {
  try {
    io_.run();
    return true;
  } catch (const std::exception& error) {
    FATHOM_LOG(kError, "http", "an event failed", {{"why", error.what()}});
    return false;
  }
}

void IoThread::stop() {
  if (!thread_.joinable()) return;
  std::promise<void> closed;
  post([this, &closed] {
    const std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
    for (const auto& connection : all) connection->abort();
    to_flush_.clear();
    // A tick that is due already runs in spite of the cancel: it must not arm the next.
    is_closing_ = true;
    tick_timer_.cancel();
    handshakes_.stop();
    for (auto& delay : delays_) delay.cancel();
    closed.set_value();
  });
  closed.get_future().wait();
  {
    const MutexLock lock(mail_mutex_);
    is_stopped_ = true;
  }
  // The loop ends by itself once the operations of the closed sockets have completed. io_.stop() would leave them
  // pending: they hold their connections, which hold this loop, and none of it would ever be freed.
  work_.reset();
  thread_.join();
  // Tasks may hold the last reference to exchanges, and those post from their destructors.
  std::vector<std::function<void()>> rest;
  {
    const MutexLock lock(mail_mutex_);
    rest.swap(mail_);
  }
}

void IoThread::post(std::function<void()> task) {
  const memory::MustSucceed scope;  // a task must not be in the mailbox without a wake-up under way
  {
    const MutexLock lock(mail_mutex_);
    if (is_stopped_) return;
    mail_.push_back(std::move(task));
    if (mail_.size() > 1) return;  // the wake-up is under way
  }
  boost::asio::post(io_, [this] { take_mail(); });
}

void IoThread::take_mail() {
  std::vector<std::function<void()>> tasks;
  {
    const MutexLock lock(mail_mutex_);
    tasks.swap(mail_);
  }
  for (auto& task : tasks) {
    run_task(task);
    task = nullptr;
  }
}

void IoThread::post_after(std::chrono::milliseconds delay, std::function<void()> task) {
  post([this, delay, task = std::move(task)]() mutable { run_later(delay, std::move(task)); });
}

void IoThread::run_later(std::chrono::milliseconds delay, std::function<void()> task) {
  if (is_closing_) return;
  const auto timer = delays_.emplace(delays_.end(), io_, delay);
  timer->async_wait([this, timer, task = std::move(task)](const boost::system::error_code& error) {
    delays_.erase(timer);
    if (!error && !is_closing_) run_task(task);
  });
}

void IoThread::add(std::shared_ptr<Connection> connection) {
  connections_.insert(std::move(connection));
}

void IoThread::flush_later(std::shared_ptr<Connection> connection) {
  to_flush_.push_back(std::move(connection));
  if (to_flush_.size() == 1) boost::asio::post(io_, [this] { flush_all(); });
}

void IoThread::flush_all() {
  std::vector<std::shared_ptr<Connection>> connections;
  connections.swap(to_flush_);
  for (const auto& connection : connections) connection->flush();
}

void IoThread::close_idle_connections() {
  const std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
  for (const auto& connection : all) connection->close_if_idle();
}

void IoThread::arm_tick() {
  if (is_closing_) return;
  tick_timer_.expires_after(tick_interval(shared_->config.timeouts));
  tick_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) tick();
  });
}

void IoThread::tick() {
  if (const auto second = static_cast<int64_t>(std::time(nullptr)); second != date_second_) {
    date_second_ = second;
    date_ = http_date_now();
  }
  // A copy, because connections that check_time() closes leave the set.
  const std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
  const auto now = system_clock().now();
  for (const auto& connection : all) connection->check_time(now);
  arm_tick();
}

std::string IoThread::draw_request_id() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (const uint32_t word : philox(id_seed_, static_cast<uint64_t>(thread_idx_), num_ids_++)) {
    for (int shift = 28; shift >= 0; shift -= 4) id.push_back(kDigits[word >> shift & 15]);
  }
  return id;
}

}  // namespace fathom::http
