#include "client/client.h"

#include <openssl/ssl.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <future>
#include <map>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/startup_error.h"
#include "client/client_connection_internal.h"
#include "client/url.h"
#include "http/header_syntax.h"

namespace fathom::client {
namespace {

constexpr std::chrono::milliseconds kTick{20};

bool has_header(const http::Headers& headers, std::string_view name) {
  for (const auto& header : headers) {
    if (http::equals_ignoring_case(header.first, name)) return true;
  }
  return false;
}

// A line end in a method, name or value would begin another header, or another request.
bool is_well_formed(const ClientRequest& request) {
  if (!http::is_token(request.method)) return false;
  for (const auto& [name, value] : request.headers) {
    if (!http::is_token(name) || !http::parse_header_line(name + ":" + value)) return false;
  }
  return true;
}

std::string request_bytes(const ClientRequest& request, const Url& url) {
  std::string bytes = request.method + " " + url.target + " HTTP/1.1\r\n";
  if (!has_header(request.headers, "host")) bytes += "Host: " + url.host_header + "\r\n";
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT") {
    bytes += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
    if (!has_header(request.headers, "content-type")) bytes += "Content-Type: application/json\r\n";
  }
  for (const auto& [name, value] : request.headers) bytes += name + ": " + value + "\r\n";
  return bytes + "\r\n" + request.body;
}

std::unique_ptr<asio::ssl::context> make_client_tls(const ClientConfig& config) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  error_code error;
  if (config.ca_path.empty()) {
    context->set_default_verify_paths(error);
  } else {
    context->load_verify_file(config.ca_path, error);
  }
  if (error)
    throw StartupError("cannot use the certificates " + config.ca_path + ": " + error.message());
  return context;
}

}  // namespace

std::string_view ClientResponse::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

class Client::Impl : public std::enable_shared_from_this<Client::Impl> {
 public:
  explicit Impl(ClientConfig config)
      : config_(std::move(config)), tls_(make_client_tls(config_)), tick_timer_(io_) {}

  void run() {
    thread_ = std::thread([this] { io_.run(); });
  }
  void stop();
  void start_call(const std::shared_ptr<ClientCall>& call);
  void cancel(RequestId id);
  void run_after(std::chrono::microseconds delay, std::function<void()> task);
  asio::io_context& io() { return io_; }
  RequestId next_id() { return ++last_id_; }

 private:
  void begin_try(const std::shared_ptr<ClientCall>& call);
  void connect(const std::shared_ptr<ClientCall>& call, const Url& url);
  void on_connected(const std::shared_ptr<ClientCall>& call,
                    const std::shared_ptr<ClientConnection>& connection, error_code error);
  void carry(const std::shared_ptr<ClientCall>& call,
             const std::shared_ptr<ClientConnection>& connection);
  void on_exchanged(const std::shared_ptr<ClientCall>& call,
                    const std::shared_ptr<ClientConnection>& connection, bool was_used,
                    const std::pair<std::string, bool>& outcome);
  void finish(const std::shared_ptr<ClientCall>& call, const std::string& error);
  void end(const std::shared_ptr<ClientCall>& call, const std::string& error);
  void arm_tick();
  void tick();
  Result<std::vector<tcp::endpoint>> resolve(const Url& url);

  ClientConfig config_;
  asio::io_context io_{1};
  std::unique_ptr<asio::ssl::context> tls_;
  asio::steady_timer tick_timer_;
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  std::thread thread_;
  std::atomic<RequestId> last_id_{0};

  // On the client's thread only.
  std::unordered_map<RequestId, std::shared_ptr<ClientCall>> calls_;
  std::map<std::string, std::vector<std::shared_ptr<ClientConnection>>> idle_;
  std::map<std::string, std::vector<tcp::endpoint>> resolved_;
  std::unordered_map<uint64_t, std::unique_ptr<asio::steady_timer>> delays_;
  uint64_t last_delay_ = 0;
  int num_idle_ = 0;
  bool is_ticking_ = false, is_stopping_ = false;
};

void Client::Impl::stop() {
  asio::post(io_, [this] {
    is_stopping_ = true;
    while (!calls_.empty()) {
      const std::shared_ptr<ClientCall> call = calls_.begin()->second;
      end(call, "cancelled");
    }
    for (const auto& [key, connections] : idle_) {
      for (const auto& connection : connections) connection->stream().close();
    }
    idle_.clear();
    tick_timer_.cancel();
    delays_.clear();
    work_.reset();
  });
  thread_.join();
}

void Client::Impl::start_call(const std::shared_ptr<ClientCall>& call) {
  const Result<Url> url = parse_url(call->request.url);
  calls_[call->id] = call;
  if (is_stopping_) return finish(call, "cancelled");
  if (!url) return finish(call, url.error().message);
  if (!is_well_formed(call->request))
    return finish(call, "the method or a header is not as HTTP writes it");
  call->bytes = request_bytes(call->request, *url);
  call->pool_key = (url->is_tls ? "s" : "p") + url->host + ":" + url->port;
  call->max_body_bytes = config_.max_body_bytes;
  call->begun = call->last_progress = system_clock().now();
  arm_tick();
  begin_try(call);
}

void Client::Impl::begin_try(const std::shared_ptr<ClientCall>& call) {
  ++call->num_tries;
  auto& idle = idle_[call->pool_key];
  if (!idle.empty() && call->num_tries == 1) {
    const auto connection = idle.back();
    idle.pop_back();
    --num_idle_;
    return carry(call, connection);
  }
  connect(call, *parse_url(call->request.url));
}

Result<std::vector<tcp::endpoint>> Client::Impl::resolve(const Url& url) {
  const std::string key = url.host + " " + url.port;
  if (const auto known = resolved_.find(key); known != resolved_.end()) return known->second;
  error_code error;
  std::vector<tcp::endpoint> endpoints;
  tcp::resolver resolver(io_);
  for (const auto& entry : resolver.resolve(url.host, url.port, error))
    endpoints.push_back(entry.endpoint());
  if (error || endpoints.empty())
    return invalid_argument("cannot resolve " + url.host + ": " + error.message());
  return resolved_[key] = std::move(endpoints);
}

void Client::Impl::connect(const std::shared_ptr<ClientCall>& call, const Url& url) {
  const Result<std::vector<tcp::endpoint>> endpoints = resolve(url);
  if (!endpoints) return finish(call, endpoints.error().message);
  const auto connection = std::make_shared<ClientConnection>(std::make_unique<Stream>(
      io_, url.is_tls ? tls_.get() : nullptr, url.host, config_.verify_tls));
  call->connection = connection;
  asio::async_connect(
      connection->stream().tcp_socket(), *endpoints,
      [self = shared_from_this(), call, connection](error_code error, const tcp::endpoint&) {
        self->on_connected(call, connection, error);
      });
}

void Client::Impl::on_connected(const std::shared_ptr<ClientCall>& call,
                                const std::shared_ptr<ClientConnection>& connection,
                                error_code error) {
  if (calls_.count(call->id) == 0) return connection->stream().close();
  if (error) return finish(call, "cannot connect: " + error.message());
  error_code ignored;
  connection->stream().tcp_socket().set_option(tcp::no_delay(true), ignored);
  connection->stream().handshake([self = shared_from_this(), call, connection](error_code failed) {
    if (self->calls_.count(call->id) == 0) return connection->stream().close();
    if (failed) return self->finish(call, "TLS handshake failed: " + failed.message());
    self->carry(call, connection);
  });
}

void Client::Impl::carry(const std::shared_ptr<ClientCall>& call,
                         const std::shared_ptr<ClientConnection>& connection) {
  const bool was_used = connection->is_used();
  connection->exchange(call, [self = shared_from_this(), call, connection, was_used](
                                 const std::string& error, bool reusable) {
    self->on_exchanged(call, connection, was_used, {error, reusable});
  });
}

void Client::Impl::on_exchanged(const std::shared_ptr<ClientCall>& call,
                                const std::shared_ptr<ClientConnection>& connection, bool was_used,
                                const std::pair<std::string, bool>& outcome) {
  const auto& [error, reusable] = outcome;
  // The server closed a kept connection just when it was taken: as if it had not been there.
  if (!error.empty() && was_used && !call->has_answer_begun && call->num_tries == 1 &&
      calls_.count(call->id) > 0)
    return begin_try(call);
  if (reusable && !is_stopping_ && num_idle_ < config_.max_idle_connections) {
    idle_[call->pool_key].push_back(connection);
    ++num_idle_;
  } else {
    connection->stream().close();
  }
  finish(call, error);
}

void Client::Impl::finish(const std::shared_ptr<ClientCall>& call, const std::string& error) {
  if (calls_.erase(call->id) == 0) return;
  call->response.error = error;
  if (call->callbacks.on_done) call->callbacks.on_done(call->response);
}

// Ends a call from outside: its connection cannot be used again.
void Client::Impl::end(const std::shared_ptr<ClientCall>& call, const std::string& error) {
  const auto connection = call->connection.lock();
  finish(call, error);
  if (connection == nullptr) return;
  connection->stream().close();
  connection->abort(error);
}

void Client::Impl::cancel(RequestId id) {
  const auto found = calls_.find(id);
  if (found != calls_.end()) end(std::shared_ptr<ClientCall>(found->second), "cancelled");
}

void Client::Impl::arm_tick() {
  if (std::exchange(is_ticking_, true)) return;
  tick_timer_.expires_after(kTick);
  tick_timer_.async_wait([self = shared_from_this()](error_code error) {
    self->is_ticking_ = false;
    if (!error) self->tick();
  });
}

void Client::Impl::tick() {
  const auto now = system_clock().now();
  std::vector<std::shared_ptr<ClientCall>> late;
  for (const auto& [id, call] : calls_) {
    const ClientRequest& request = call->request;
    const auto elapsed = now - call->begun;
    const bool is_connecting = call->last_progress == call->begun && !call->has_answer_begun;
    if ((request.timeout.count() > 0 && elapsed > request.timeout) ||
        (request.idle_timeout.count() > 0 && now - call->last_progress > request.idle_timeout) ||
        (is_connecting && elapsed > config_.connect_timeout))
      late.push_back(call);
  }
  for (const auto& call : late) end(call, "timeout");
  if (!calls_.empty() && !is_stopping_) arm_tick();
}

void Client::Impl::run_after(std::chrono::microseconds delay, std::function<void()> task) {
  if (is_stopping_) return;
  const uint64_t id = ++last_delay_;
  auto timer = std::make_unique<asio::steady_timer>(io_, delay);
  timer->async_wait([self = shared_from_this(), id, task = std::move(task)](error_code error) {
    if (error) return;
    self->delays_.erase(id);
    task();
  });
  delays_[id] = std::move(timer);
}

Client::Client(ClientConfig config) : impl_(std::make_shared<Impl>(std::move(config))) {
  std::signal(SIGPIPE, SIG_IGN);
  impl_->run();
}
Client::~Client() { impl_->stop(); }

Client::RequestId Client::send(ClientRequest request, ClientCallbacks callbacks) {
  auto call = std::make_shared<ClientCall>();
  call->id = impl_->next_id();
  call->request = std::move(request);
  call->callbacks = std::move(callbacks);
  const RequestId id = call->id;
  asio::post(impl_->io(), [impl = impl_, call] { impl->start_call(call); });
  return id;
}

void Client::cancel(RequestId id) {
  asio::post(impl_->io(), [impl = impl_, id] { impl->cancel(id); });
}

ClientResponse Client::call(ClientRequest request) {
  std::promise<ClientResponse> answer;
  send(std::move(request),
       {.on_done = [&](const ClientResponse& response) { answer.set_value(response); }});
  return answer.get_future().get();
}

void Client::run_after(std::chrono::microseconds delay, std::function<void()> task) {
  asio::post(impl_->io(), [impl = impl_, delay, task = std::move(task)]() mutable {
    impl->run_after(delay, std::move(task));
  });
}

}  // namespace fathom::client
