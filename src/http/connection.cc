#include <poll.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/memory.h"
#include "http/access_control.h"
#include "http/connection_internal.h"
#include "http/header_syntax.h"

namespace fathom::http {
namespace {

// Enough for a head; bodies are read in larger pieces, and the buffer shrinks again before the next read.
constexpr size_t kHeadReadBytes = 4 << 10, kBodyReadBytes = 64 << 10;

}  // namespace

Connection::Connection(std::shared_ptr<IoThread> thread, std::shared_ptr<ServerShared> shared,
                       std::unique_ptr<Socket> socket, Admission::Place place)
    : thread_(std::move(thread)),
      shared_(std::move(shared)),
      socket_(std::move(socket)),
      place_(place),
      phase_since_(system_clock().now()),
      reader_(shared_->config.limits) {}

Connection::~Connection() { stop_waiting(); }

void Connection::start() {
  thread_->add(shared_from_this());
  request_id_ = thread_->draw_request_id();
  error_code ignored;
  socket_->tcp_socket().set_option(tcp::no_delay(true), ignored);
  socket_->handshake([self = shared_from_this()](error_code error) {
    if (self->phase_ != Phase::kHandshake) return;
    if (error) return self->close();
    self->phase_ = Phase::kReading;
    self->phase_since_ = system_clock().now();
    self->read_more();
  });
}

void Connection::wait() {
  shared_->admission->waiting(place_.is_reserve).add(shared_from_this(), &spot_);
}

void Connection::stop_waiting() { shared_->admission->waiting(place_.is_reserve).remove(&spot_); }

void Connection::read_more() {
  if (is_reading_ || phase_ == Phase::kClosed || has_input_ended_) return;
  if (phase_ == Phase::kAnswering && pipelined_.size() > limits().max_pipelined_bytes) return;
  const bool in_body = reader_.state() == RequestReader::State::kBody;
  const size_t want = in_body ? kBodyReadBytes : kHeadReadBytes;
  if (read_buffer_.size() != want) std::vector<char>(want).swap(read_buffer_);
  is_reading_ = true;
  socket_->read_some(asio::buffer(read_buffer_),
                     [self = shared_from_this()](error_code error, size_t num_bytes) {
                       self->is_reading_ = false;
                       self->on_read(error, num_bytes);
                     });
}

void Connection::on_read(const error_code& error, size_t num_bytes) {
  if (phase_ == Phase::kClosed) return std::vector<char>().swap(read_buffer_);
  if (error) {
    if (error != asio::error::eof) return cut(false);
    return on_end_of_input();
  }
  counters().received_bytes.fetch_add(static_cast<int64_t>(num_bytes), std::memory_order_relaxed);
  const std::string_view bytes(read_buffer_.data(), num_bytes);
  if (phase_ == Phase::kReading) {
    take_input(bytes);
  } else if (phase_ == Phase::kAnswering && keeps_alive_) {
    pipelined_.append(bytes);
  }
  read_more();
}

// A half-closed connection counts as gone: a client that still wants its answer keeps its side open. An answer
// that is complete is still written.
void Connection::on_end_of_input() {
  has_input_ended_ = true;
  if (phase_ == Phase::kAnswering && answer_ == Answer::kComplete) return;
  cut(false);
}

void Connection::watch_for_end() {
  pollfd entry = {.fd = socket_->tcp_socket().native_handle(), .events = POLLRDHUP, .revents = 0};
  if (::poll(&entry, 1, 0) > 0) on_end_of_input();
}

void Connection::take_input(std::string_view bytes) {
  if (!bytes.empty() && phase_ == Phase::kReading && !place_.is_reserve) stop_waiting();
  while (!bytes.empty() && phase_ == Phase::kReading) {
    if (!reader_.has_begun() || reader_.state() == RequestReader::State::kBody)
      phase_since_ = system_clock().now();
    if (!feed_reader(bytes)) {
      reject(TransportError::kOutOfMemory);
    } else if (reader_.state() == RequestReader::State::kHeadComplete) {
      on_head_complete();
    } else if (reader_.state() == RequestReader::State::kFailed) {
      reject(reader_.error());
    } else if (!take_body_lease()) {
      reject(TransportError::kTooManyBodies);
    } else if (reader_.state() == RequestReader::State::kComplete) {
      dispatch();
    }
  }
  if (phase_ == Phase::kAnswering && keeps_alive_) pipelined_.append(bytes);
}

// False: there is no memory for what has come of the body.
bool Connection::feed_reader(std::string_view& bytes) {
  try {
    const memory::MayFail scope;
    bytes.remove_prefix(reader_.feed(bytes));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void Connection::on_head_complete() {
  const RequestHead& head = reader_.head();
  counters().requests.fetch_add(1, std::memory_order_relaxed);
  has_brought_request_ = true;
  stop_waiting();
  head_complete_ = system_clock().now();
  method_ = head.method;
  version_minor_ = head.version_minor;
  is_head_ = head.method == "HEAD";
  keeps_alive_ = head.keeps_alive && !place_.is_reserve;
  if (const std::string_view id = value_of(head.headers, "x-request-id"); is_valid_request_id(id))
    request_id_ = id;
  std::optional<Target> target = parse_target(head.target);
  if (!target) return reject(TransportError::kBadTarget);
  // The two must be the same (RFC 9112, 3.2), so what is decided by Host holds for the target too.
  if (!target->authority.empty() &&
      !equals_ignoring_case(target->authority, value_of(head.headers, "host")))
    return reject(TransportError::kBadHost);
  admit(std::move(*target));
}

// Who calls, and whether they may: first which page, then which key.
void Connection::admit(Target target) {
  const RequestHead& head = reader_.head();
  const Router::Found found = shared_->router.find(is_head_ ? "GET" : head.method, target.path);
  // An encoded slash may stand in a parameter, as in a model's name, and nowhere else.
  if (target.first_encoded_slash < found.parameter_begin) return reject(TransportError::kBadTarget);
  route_ = found.route;
  const bool is_anthropics = route_ != nullptr && route_->is_of_both_apis &&
                             count_of(head.headers, "anthropic-version") > 0;
  form_ = is_anthropics ? ClientForm::kAnthropic : found.form;
  if (place_.is_reserve && (route_ == nullptr || !route_->is_probe || head.has_body()))
    return reject(place_.refusal);
  const KeyStore& keys = *thread_->keys();
  BrowserDecision page =
      shared_->browsers->decide(head.headers, route_, keys.has_role(KeyRole::kInference));
  if (page.error) return reject(*page.error, {}, page.named);
  cors_origin_ = std::move(page.cors_origin);
  if (page.is_foreign && head.method == "OPTIONS" && !found.allowed_methods.empty() &&
      !value_of(head.headers, "access-control-request-method").empty())
    return answer_preflight(found);
  const AccessDecision access = decide_access(keys, route_, head.headers,
                                              page.is_foreign ? Logins::kBearerOnly : Logins::kAll);
  if (access.error == TransportError::kUnauthorized)
    return reject(*access.error, {{"WWW-Authenticate", challenge_for(route_)}});
  if (access.error) return reject(*access.error);
  if (access.key != nullptr) key_name_ = access.key->name;
  if (route_ == nullptr) return answer_unrouted(found, target.path);
  if (route_->is_for_tools && is_from_browser(head.headers))
    return reject(TransportError::kBrowserGet);
  begin_request(found, std::move(target));
}

void Connection::answer_unrouted(const Router::Found& found, const std::string& path) {
  if (found.allowed_methods.empty()) return reject(TransportError::kNotFound, {}, path);
  Headers allow = {{"Allow", found.allowed_methods + ", OPTIONS"}};
  if (method_ != "OPTIONS") return reject(TransportError::kMethodNotAllowed, std::move(allow));
  Response response;
  response.status = 204;
  response.headers = std::move(allow);
  answer_directly(std::move(response));
}

void Connection::answer_preflight(const Router::Found& found) {
  // A page that may call the server may send what headers it likes: clients bring their own (x-stainless-...).
  const std::string_view asked = value_of(reader_.head().headers, "access-control-request-headers");
  Response response;
  response.status = 204;
  response.headers = {
      {"Access-Control-Allow-Methods", found.allowed_methods},
      {"Access-Control-Allow-Headers", !asked.empty() && is_token_list(asked)
                                           ? std::string(asked)
                                           : "authorization, content-type, x-request-id"},
      {"Access-Control-Max-Age", "600"}};
  answer_directly(std::move(response));
}

void Connection::begin_request(const Router::Found& found, Target target) {
  RequestHead& head = reader_.head();
  request_.method = is_head_ ? "GET" : head.method;
  request_.path = std::move(target.path);
  request_.path_parameter = found.parameter;
  request_.query = std::move(target.query);
  request_.headers = std::move(head.headers);
  request_.request_id = request_id_;
  request_.key_name = key_name_;
  request_.form = form();
  if (const std::optional<TransportError> problem = body_problem()) return reject(*problem);
  if (head.expects_continue && head.has_body()) {
    framed_.append("HTTP/1.1 100 Continue\r\n\r\n");
    flush();
  }
  phase_since_ = head_complete_;
  reader_.begin_body();
  if (reader_.state() == RequestReader::State::kComplete) dispatch();
}

// What is known before a byte of the body has come.
std::optional<TransportError> Connection::body_problem() const {
  const int64_t length = reader_.head().content_length;
  const int64_t most = limits().max_bodies_bytes;
  if (length > most) return TransportError::kBodyTooLarge;
  const int64_t held = shared_->counters.bodies_bytes.load(std::memory_order_relaxed);
  if (length > 0 && held + length > most) return TransportError::kTooManyBodies;
  return std::nullopt;
}

// Counts what has come of the body; false when all bodies together are too much.
bool Connection::take_body_lease() {
  const int64_t added = static_cast<int64_t>(reader_.body_bytes()) - body_lease_bytes_;
  if (added <= 0) return true;
  body_lease_bytes_ += added;
  return counters().bodies_bytes.fetch_add(added, std::memory_order_relaxed) + added <=
         limits().max_bodies_bytes;
}

void Connection::dispatch() {
  request_body_bytes_ = std::exchange(body_lease_bytes_, 0);
  request_.body = reader_.take_body();
  begin_exchange();
  answer_ = Answer::kDue;
  ++serial_;
  const auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), serial_,
                                                             std::exchange(request_, Request{}));
  try {
    const memory::MayFail scope;
    route_->handler(exchange);
  } catch (const std::exception& error) {
    const bool is_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    FATHOM_LOG(kError, "http", "a handler failed", {{"why", error.what()}});
    send(serial_, to_response(is_memory ? TransportError::kOutOfMemory : TransportError::kDropped,
                              {}, form(), request_id_));
  }
}

void Connection::drop_body() {
  reader_.drop_body();
  counters().bodies_bytes.fetch_sub(std::exchange(body_lease_bytes_, 0), std::memory_order_relaxed);
}

void Connection::next_request() {
  reader_.reset();
  route_ = nullptr;
  form_ = ClientForm::kOpenAi;
  method_.clear();
  request_id_ = thread_->draw_request_id();
  key_name_.clear();
  cors_origin_.clear();
  version_minor_ = 1;
  is_head_ = false;
  keeps_alive_ = true;
  request_body_bytes_ = sent_bytes_ = 0;
  status_ = 0;
  phase_ = Phase::kReading;
  phase_since_ = system_clock().now();
  const std::string input = std::exchange(pipelined_, std::string());
  take_input(input);
  if (phase_ == Phase::kReading && !reader_.has_begun()) wait();
  read_more();
}

}  // namespace fathom::http
