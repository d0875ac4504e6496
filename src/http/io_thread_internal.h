#pragma once
// IoThread: one event loop with its thread, its connections and a mailbox that other threads post to. And what
// all threads of a server share. Only .cc files of this module include it (it brings Asio).
//
//   auto thread = std::make_shared<IoThread>(shared, 0);
//   thread->run();
//   thread->post([] { ... });     // any thread
//   thread->stop();               // closes the connections, joins
//
// Owned by the Server and by its connections, which exchanges of slow handlers may keep: the loop then stays
// until they are gone, without a thread.

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "http/admission_internal.h"
#include "http/browser_policy.h"
#include "http/handshake_pacer_internal.h"
#include "http/server.h"

namespace fathom::http {

class Connection;

// Immutable after construction, besides the atomics and what has a mutex.
struct ServerShared {
  ServerConfig config;
  Router router;
  ServerCounters counters;
  std::atomic<bool> is_draining{false};
  // There once the server is bound.
  std::optional<Admission> admission;
  std::optional<BrowserPolicy> browsers;

  bool has_tls() const { return !config.tls_key_path.empty(); }
  // For new connections; each keeps the context that it began with. Null: no TLS.
  std::shared_ptr<boost::asio::ssl::context> tls() const {
    const MutexLock lock(tls_mutex);
    return current_tls;
  }
  void set_tls(std::shared_ptr<boost::asio::ssl::context> tls) {
    const MutexLock lock(tls_mutex);
    current_tls.swap(tls);
  }
  mutable Mutex tls_mutex;
  std::shared_ptr<boost::asio::ssl::context> current_tls FATHOM_GUARDED_BY(tls_mutex);
};

class IoThread : public std::enable_shared_from_this<IoThread> {
 public:
  IoThread(std::shared_ptr<ServerShared> shared, int thread_idx);
  ~IoThread();

  void run();   // starts the thread
  void stop();  // from another thread; the mailbox takes nothing more
  void post(std::function<void()> task);
  void post_after(std::chrono::milliseconds delay, std::function<void()> task);

  boost::asio::io_context& io() { return io_; }
  int thread_idx() const { return thread_idx_; }

  // The rest on the loop's own thread only.
  void add(std::shared_ptr<Connection> connection);
  void remove(const std::shared_ptr<Connection>& connection) { connections_.erase(connection); }
  // Calls Connection::flush() once this turn's tasks have run.
  void flush_later(std::shared_ptr<Connection> connection);
  void close_idle_connections();
  const std::string& date() const { return date_; }
  std::string draw_request_id();
  HandshakePacer& handshakes() { return handshakes_; }
  // The keys in force on this thread.
  const std::shared_ptr<const KeyStore>& keys() const { return keys_; }
  void set_keys(std::shared_ptr<const KeyStore> keys) { keys_ = std::move(keys); }

 private:
  bool run_loop();
  void take_mail();
  void run_later(std::chrono::milliseconds delay, std::function<void()> task);
  void flush_all();
  void arm_tick();
  void tick();

  std::shared_ptr<ServerShared> shared_;
  int thread_idx_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer tick_timer_;
  HandshakePacer handshakes_{io_};
  std::list<boost::asio::steady_timer> delays_;  // of tasks that wait for their time
  std::thread thread_;

  Mutex mail_mutex_;
  std::vector<std::function<void()>> mail_ FATHOM_GUARDED_BY(mail_mutex_);
  bool is_stopped_ FATHOM_GUARDED_BY(mail_mutex_) = false;

  std::unordered_set<std::shared_ptr<Connection>> connections_;
  std::vector<std::shared_ptr<Connection>> to_flush_;
  std::shared_ptr<const KeyStore> keys_;
  std::string date_;
  int64_t date_second_ = -1;
  uint64_t id_seed_ = 0, num_ids_ = 0;
  bool is_closing_ = false;
};

}  // namespace fathom::http
