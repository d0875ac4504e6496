#include "http/server.h"

#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/startup_error.h"
#include "http/connection_internal.h"
#include "http/io_thread_internal.h"
#include "http/transport_error.h"

namespace fathom::http {
namespace {

constexpr int kBacklog = 4096;
constexpr std::chrono::milliseconds kAcceptPause{100};

bool is_exhausted(const error_code& error) {
  return error == asio::error::no_descriptors || error == asio::error::no_memory ||
         error == asio::error::no_buffer_space ||
         error == boost::system::errc::too_many_files_open_in_system;
}

tcp::endpoint resolve(const ServerConfig& config, asio::io_context& io) {
  error_code error;
  const std::string where = config.host + ":" + std::to_string(config.port);
  if (config.port < 0 || config.port > 65'535)
    throw StartupError("cannot listen on " + where + ": the port must be in [0, 65535]");
  if (const auto address = asio::ip::make_address(config.host, error); !error)
    return {address, static_cast<uint16_t>(config.port)};
  tcp::resolver resolver(io);
  const auto results =
      resolver.resolve(config.host, std::to_string(config.port), tcp::resolver::passive, error);
  if (error || results.empty())
    throw StartupError("cannot listen on " + where + ": " + error.message());
  return *results.begin();
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerConfig config, Router router);
  ~Impl() { stop(); }

  void start();
  void stop_accepting();
  void stop();
  Status reload_tls();

  std::shared_ptr<ServerShared> shared = std::make_shared<ServerShared>();
  std::vector<std::shared_ptr<IoThread>> threads;
  int port = 0;

 private:
  void listen();
  void close_acceptor();
  void accept_next();
  void on_accepted(const error_code& error, tcp::socket socket, IoThread& thread);

  // A connection that was accepted and has no place yet. The functions below run on any thread, for one newcomer at a
  // time.
  struct Newcomer {
    tcp::socket socket;
    std::shared_ptr<IoThread> thread;
    asio::ip::address peer;
  };
  using NewcomerPtr = std::shared_ptr<Newcomer>;
  // Returns false when a connection has to give way first; accept_next() is then called once that is settled.
  bool find_place(const NewcomerPtr& newcomer);
  void ask_to_give_way(const std::shared_ptr<Connection>& waiting, const NewcomerPtr& newcomer);
  void begin(const NewcomerPtr& newcomer, const Admission::Place& place);
  void refuse(const NewcomerPtr& newcomer);

  // On the first thread only, once it runs.
  std::unique_ptr<tcp::acceptor> acceptor_;
  std::unique_ptr<asio::steady_timer> pause_timer_;
  size_t next_thread_ = 0;
  bool is_accepting_ = false;
  // Guards the end: nobody waits for a thread that has gone.
  Mutex stop_mutex_;
  bool is_stopped_ FATHOM_GUARDED_BY(stop_mutex_) = false;
};

Server::Impl::Impl(ServerConfig config, Router router) {
  if (config.num_threads < 1 || config.num_threads > 256)
    throw StartupError("the number of I/O threads is " + std::to_string(config.num_threads) +
                       ", must be in [1, 256]");
  if (config.tls_certificate_path.empty() != config.tls_key_path.empty())
    throw StartupError("TLS needs both a certificate file and a key file");
  // A client that goes while it is written to is an error of that write, not the end of the program.
  std::signal(SIGPIPE, SIG_IGN);
  shared->config = std::move(config);
  shared->admission.emplace(shared->config.limits);
  shared->router = std::move(router);
  if (!shared->config.tls_key_path.empty()) throw_on_error(reload_tls());
  for (int i = 0; i < shared->config.num_threads; ++i)
    threads.push_back(std::make_shared<IoThread>(shared, i));
  listen();
  for (const auto& thread : threads) thread->run();
}

Status Server::Impl::reload_tls() {
  auto made = make_server_tls(shared->config.tls_certificate_path, shared->config.tls_key_path);
  if (!made) return made.error();
  shared->set_tls(std::move(*made));
  return {};
}

void Server::Impl::listen() {
  const ServerConfig& config = shared->config;
  const tcp::endpoint endpoint = resolve(config, threads.front()->io());
  acceptor_ = std::make_unique<tcp::acceptor>(threads.front()->io());
  pause_timer_ = std::make_unique<asio::steady_timer>(threads.front()->io());
  error_code error;
  acceptor_->open(endpoint.protocol(), error);
  if (!error) acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_->bind(endpoint, error);
  if (!error) acceptor_->listen(kBacklog, error);
  if (error)
    throw StartupError("cannot listen on " + config.host + ":" + std::to_string(config.port) +
                       ": " + error.message());
  port = acceptor_->local_endpoint().port();
  shared->browsers = value_or_throw(
      BrowserPolicy::create({.host = config.host,
                             .bound_address = acceptor_->local_endpoint().address().to_string(),
                             .is_tls = shared->has_tls(),
                             .allowed_hosts = config.allowed_hosts,
                             .cors_origins = config.cors_origins}));
}

void Server::Impl::start() {
  threads.front()->post([this] {
    if (!acceptor_->is_open() || std::exchange(is_accepting_, true)) return;
    accept_next();
  });
}

void Server::Impl::accept_next() {
  if (!acceptor_->is_open()) return;
  IoThread& thread = *threads[next_thread_];
  next_thread_ = (next_thread_ + 1) % threads.size();
  acceptor_->async_accept(thread.io(), [this, &thread](error_code error, tcp::socket socket) {
    on_accepted(error, std::move(socket), thread);
  });
}

void Server::Impl::on_accepted(const error_code& error, tcp::socket socket, IoThread& thread) {
  if (error == asio::error::operation_aborted || !acceptor_->is_open()) return;
  ServerCounters& counters = shared->counters;
  if (is_exhausted(error)) {
    counters.accept_pauses.fetch_add(1, std::memory_order_relaxed);
    pause_timer_->expires_after(kAcceptPause);
    pause_timer_->async_wait([this](error_code cancelled) {
      if (!cancelled) accept_next();
    });
    return;
  }
  // Other errors belong to a connection that died in the queue.
  error_code gone = error;
  const tcp::endpoint peer = error ? tcp::endpoint() : socket.remote_endpoint(gone);
  if (!gone) {
    counters.accepted_connections.fetch_add(1, std::memory_order_relaxed);
    const auto newcomer = std::make_shared<Newcomer>(
        Newcomer{std::move(socket), thread.shared_from_this(), peer.address()});
    if (!find_place(newcomer)) return;
  }
  accept_next();
}

bool Server::Impl::find_place(const NewcomerPtr& newcomer) {
  Admission& admission = *shared->admission;
  const auto entered = admission.enter(newcomer->peer);
  if (const auto* place = std::get_if<Admission::Place>(&entered))
    return begin(newcomer, *place), true;
  const TransportError refusal = std::get<TransportError>(entered);
  std::shared_ptr<Connection> waiting;
  if (refusal == TransportError::kTooManyConnections)
    waiting = admission.waiting(false).take_oldest();
  if (waiting == nullptr) {
    if (const auto place = admission.enter_reserve(refusal)) return begin(newcomer, *place), true;
    waiting = admission.waiting(true).take_oldest();
  }
  if (waiting == nullptr) return refuse(newcomer), true;
  ask_to_give_way(waiting, newcomer);
  return false;
}

void Server::Impl::ask_to_give_way(const std::shared_ptr<Connection>& waiting,
                                   const NewcomerPtr& newcomer) {
  waiting->thread().post([this, waiting, newcomer] {
    // It does not if it has just become busy; find_place() then asks the next one.
    waiting->give_way();
    if (find_place(newcomer)) threads.front()->post([this] { accept_next(); });
  });
}

void Server::Impl::begin(const NewcomerPtr& newcomer, const Admission::Place& place) {
  shared->counters.open_connections.fetch_add(1, std::memory_order_relaxed);
  const auto tls = shared->tls();
  auto socket = tls != nullptr ? make_tls_server_socket(std::move(newcomer->socket), *tls,
                                                        newcomer->thread->handshakes())
                               : make_plain_socket(std::move(newcomer->socket));
  const auto connection =
      std::make_shared<Connection>(newcomer->thread, shared, std::move(socket), place);
  // From here on it may be asked to give way, which comes to its thread after the start.
  connection->wait();
  newcomer->thread->post([connection] { connection->start(); });
}

// Answers with an error and closes. The answer fits the empty send buffer of a new socket, so nothing waits.
void Server::Impl::refuse(const NewcomerPtr& newcomer) {
  tcp::socket& socket = newcomer->socket;
  shared->counters.rejected_for(Rejection::kOverloaded).fetch_add(1, std::memory_order_relaxed);
  if (shared->has_tls()) return;
  const std::string date = http_date_now();
  const std::string answer = whole_answer(to_response(TransportError::kTooManyConnections),
                                          {.keeps_alive = false, .date = date});
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(answer), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void Server::Impl::close_acceptor() {
  std::promise<void> closed;
  threads.front()->post([this, &closed] {
    error_code ignored;
    acceptor_->close(ignored);
    pause_timer_->cancel();
    closed.set_value();
  });
  closed.get_future().wait();
}

void Server::Impl::stop_accepting() {
  const MutexLock lock(stop_mutex_);
  if (!is_stopped_) close_acceptor();
}

void Server::Impl::stop() {
  const MutexLock lock(stop_mutex_);
  if (std::exchange(is_stopped_, true)) return;
  close_acceptor();
  for (const auto& thread : threads) thread->stop();
  // Exchanges may outlive the server and hold `shared`, and what handlers hold may in turn hold exchanges. Destroying
  // the handlers here breaks that circle.
  shared->router = Router();
  shared->config.on_access = nullptr;
}

Server::Server(ServerConfig config, Router router)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(router))) {}
Server::~Server() = default;

void Server::start() { impl_->start(); }
int Server::port() const { return impl_->port; }
int Server::num_threads() const { return static_cast<int>(impl_->threads.size()); }

void Server::post(int thread_idx, std::function<void()> task) {
  FATHOM_CHECK(thread_idx >= 0 && thread_idx < num_threads(), "thread_idx " << thread_idx);
  impl_->threads[static_cast<size_t>(thread_idx)]->post(std::move(task));
}

void Server::post_after(std::chrono::milliseconds delay, std::function<void()> task) {
  impl_->threads.front()->post_after(delay, std::move(task));
}

void Server::replace_keys(KeyStore keys) {
  const auto shared = std::make_shared<const KeyStore>(std::move(keys));
  for (const auto& thread : impl_->threads)
    thread->post([thread = thread.get(), shared] { thread->set_keys(shared); });
}

Status Server::reload_tls() { return impl_->reload_tls(); }

void Server::begin_drain() {
  impl_->shared->is_draining = true;
  for (const auto& thread : impl_->threads)
    thread->post([thread = thread.get()] { thread->close_idle_connections(); });
}

void Server::stop_accepting() { impl_->stop_accepting(); }

bool Server::wait_idle(std::chrono::milliseconds timeout) {
  const auto deadline = system_clock().now() + timeout;
  while (counters().active_exchanges.load(std::memory_order_acquire) > 0) {
    if (system_clock().now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

void Server::stop() { impl_->stop(); }
const ServerCounters& Server::counters() const { return impl_->shared->counters; }

}  // namespace fathom::http
