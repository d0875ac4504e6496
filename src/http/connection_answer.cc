#include <sys/socket.h>

#include <new>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "http/connection_internal.h"

namespace fathom::http {
namespace {

constexpr std::string_view kStreamComment = ": keep-alive\n\n";
// Buffers up to this size, enough for ordinary events, are kept for reuse; larger ones are freed.
constexpr size_t kKeptBufferBytes = 4 << 10;
// A body above this size is not copied behind its head: the thread would be at it for long.
constexpr size_t kLargeBodyBytes = 64 << 10;

void clear_buffer(std::string& buffer) {
  if (buffer.capacity() > kKeptBufferBytes) {
    std::string().swap(buffer);
  } else {
    buffer.clear();
  }
}

void append(std::string&& bytes, std::string* queue) {
  if (queue->empty()) {
    *queue = std::move(bytes);
  } else {
    queue->append(bytes);
  }
}

double milliseconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

bool Connection::is_current(uint64_t serial) const {
  return serial == serial_ && phase_ == Phase::kAnswering && answer_ != Answer::kComplete;
}

AnswerContext Connection::answer_context() const {
  return {.version_minor = version_minor_,
          .keeps_alive = keeps_alive_,
          .is_head = is_head_,
          .request_id = request_id_,
          .cors_origin = cors_origin_,
          .date = thread_->date(),
          .varies_by_origin = shared_->browsers->varies_by_origin()};
}

void Connection::begin_exchange() {
  phase_ = Phase::kAnswering;
  is_exchange_open_ = true;
  has_own_line_ = false;
  last_event_ = system_clock().now();
  counters().active_exchanges.fetch_add(1, std::memory_order_relaxed);
}

void Connection::end_exchange(bool client_gone) {
  if (!std::exchange(is_exchange_open_, false)) return;
  if (answer_ == Answer::kStreaming)
    counters().open_streams.fetch_sub(1, std::memory_order_relaxed);
  if (status_ > 0)
    counters().responses[static_cast<size_t>(status_) / 100].fetch_add(1,
                                                                       std::memory_order_relaxed);
  if (client_gone) counters().client_disconnects.fetch_add(1, std::memory_order_relaxed);
  if (shared_->config.on_access) {
    shared_->config.on_access(
        {.method = method_,
         .route_path = route_ != nullptr ? std::string_view(route_->path) : std::string_view(),
         .request_id = request_id_,
         .key_name = key_name_,
         .status = status_,
         .request_body_bytes = request_body_bytes_,
         .response_bytes = sent_bytes_,
         .milliseconds = milliseconds_between(head_complete_, system_clock().now()),
         .client_gone = client_gone,
         .has_own_line = has_own_line_});
  }
  // Counted last: who waits until no exchange is active (wait_idle) then finds all other counts complete.
  counters().active_exchanges.fetch_sub(1, std::memory_order_release);
}

void Connection::reject(TransportError error, Headers headers, std::string_view named) {
  if (const Rejection reason = rejection_of(error); reason != Rejection::kCount)
    counters().rejected_for(reason).fetch_add(1, std::memory_order_relaxed);
  Response response = to_response(error, named, form(), request_id_);
  for (auto& header : headers) response.headers.push_back(std::move(header));
  answer_directly(std::move(response));
}

void Connection::answer_directly(Response response) {
  // The rest of the request, its body, is not read, so the connection cannot go on to a next request.
  if (reader_.state() != RequestReader::State::kHeadComplete || reader_.head().has_body())
    keeps_alive_ = false;
  if (reader_.state() == RequestReader::State::kHead ||
      reader_.state() == RequestReader::State::kFailed)
    head_complete_ = system_clock().now();
  request_ = Request{};
  drop_body();
  begin_exchange();
  queue_whole(std::move(response));
  flush();
}

void Connection::queue_whole(Response response) {
  FATHOM_CHECK(response.status >= 200 && response.status < 600, "status " << response.status);
  status_ = response.status;
  keeps_alive_ = keeps_alive_ && !is_draining();
  {
    const AnswerContext context = answer_context();
    const bool is_large = response.body.size() > kLargeBodyBytes && sends_body(response, context);
    std::string bytes = is_large ? whole_head(response, context) : whole_answer(response, context);
    const memory::MustSucceed scope;  // from here on nothing throws: the answer is queued whole
    append(std::move(bytes), &framed_);
    if (is_large) {
      large_body_ = std::move(response.body);
      large_body_lease_ = std::move(response.lease);
    }
  }
  answer_ = Answer::kComplete;
  on_close_ = nullptr;
  on_behind_ = nullptr;
}

void Connection::send(uint64_t serial, Response response) {
  if (!is_current(serial) || answer_ != Answer::kDue) return;
  try {
    const memory::MayFail scope;
    queue_whole(std::move(response));
  } catch (const std::bad_alloc&) {
    queue_whole(to_response(TransportError::kOutOfMemory, {}, form(), request_id_));
  }
  flush();
}

void Connection::begin_stream(uint64_t serial, std::function<std::string()> on_silence) {
  if (!is_current(serial) || answer_ != Answer::kDue) return;
  status_ = 200;
  // Without chunks only the close tells HTTP/1.0 where the answer ends.
  keeps_alive_ = keeps_alive_ && !is_draining() && version_minor_ == 1;
  append(stream_head(answer_context()), &framed_);
  answer_ = Answer::kStreaming;
  behind_since_.reset();
  is_behind_ = false;
  on_silence_ = std::move(on_silence);
  last_event_ = system_clock().now();
  counters().open_streams.fetch_add(1, std::memory_order_relaxed);
  queue_flush();
}

void Connection::write(uint64_t serial, std::string_view bytes) {
  if (!is_current(serial) || answer_ != Answer::kStreaming || is_head_ || bytes.empty()) return;
  // The bound is on what was queued before this write. A single event may be larger than the bound (an answer whose
  // text was held back, the log-probabilities of a prompt), and a client that keeps up must get it.
  if (queued_bytes() > limits().hard_backlog_bytes) return cut(true);
  payload_.append(bytes);  // first: if it throws for want of memory, nothing has changed
  last_event_ = system_clock().now();
  queue_flush();
}

void Connection::finish_stream(uint64_t serial, bool complete) {
  if (!is_current(serial) || answer_ != Answer::kStreaming) return;
  ends_stream_ = complete && version_minor_ == 1 && !is_head_;
  if (!complete) keeps_alive_ = false;
  counters().open_streams.fetch_sub(1, std::memory_order_relaxed);
  answer_ = Answer::kComplete;
  on_close_ = nullptr;
  on_behind_ = nullptr;
  on_silence_ = nullptr;
  queue_flush();
}

void Connection::drop(uint64_t serial) {
  if (!is_current(serial)) return;
  if (answer_ == Answer::kStreaming) return finish_stream(serial, false);
  send(serial, to_response(TransportError::kDropped, {}, form(), request_id_));
}

void Connection::set_on_close(uint64_t serial, std::function<void()> callback) {
  if (is_current(serial)) {
    on_close_ = std::move(callback);
  } else if (serial == serial_ && phase_ == Phase::kClosed && answer_ != Answer::kComplete) {
    thread_->post(std::move(callback));
  }
}

void Connection::claim_log_line(uint64_t serial) {
  if (is_current(serial)) has_own_line_ = true;
}

void Connection::set_on_behind(uint64_t serial, std::function<void(bool)> callback) {
  if (is_current(serial)) on_behind_ = std::move(callback);
}

size_t Connection::backlog_bytes(uint64_t serial) const {
  return is_current(serial) ? queued_bytes() : 0;
}

size_t Connection::queued_bytes() const {
  return framed_.size() + payload_.size() + large_body_.size() + writing_.size() - written_;
}

void Connection::count_backlog() {
  const size_t queued = phase_ == Phase::kClosed ? 0 : queued_bytes();
  const int64_t change = static_cast<int64_t>(queued) - counted_backlog_;
  counted_backlog_ += change;
  if (change != 0) counters().backlog_bytes.fetch_add(change, std::memory_order_relaxed);
  const bool is_over = answer_ == Answer::kStreaming && queued > limits().max_backlog_bytes;
  if (is_over && !is_over_backlog_) over_backlog_since_ = system_clock().now();
  is_over_backlog_ = is_over;
  if (answer_ == Answer::kStreaming) note_behind(queued);
}

void Connection::note_behind(size_t queued) {
  if (queued > 0) {
    if (!behind_since_) behind_since_ = system_clock().now();
    return;
  }
  behind_since_.reset();
  if (std::exchange(is_behind_, false) && on_behind_) on_behind_(false);
}

void Connection::queue_flush() {
  const memory::MustSucceed scope;
  count_backlog();
  if (!std::exchange(is_flush_due_, true)) thread_->flush_later(shared_from_this());
}

void Connection::flush() {
  const memory::MustSucceed scope;
  is_flush_due_ = false;
  if (is_writing_ || phase_ == Phase::kClosed) return;
  if (!payload_.empty()) {
    if (version_minor_ == 1) {
      append_chunk(payload_, &framed_);
    } else {
      framed_.append(payload_);
    }
    clear_buffer(payload_);
  }
  if (std::exchange(ends_stream_, false)) framed_.append(kLastChunk);
  if (framed_.empty()) framed_.swap(large_body_);
  if (framed_.empty()) {
    large_body_lease_.reset();
    return on_all_written();
  }
  writing_.swap(framed_);
  last_progress_ = system_clock().now();
  write_rest();
}

void Connection::write_rest() {
  is_writing_ = true;
  count_backlog();
  socket_->write_some(asio::buffer(writing_) + written_,
                      [self = shared_from_this()](error_code error, size_t num_bytes) {
                        self->is_writing_ = false;
                        self->on_written(error, num_bytes);
                      });
}

void Connection::on_written(const error_code& error, size_t num_bytes) {
  if (phase_ == Phase::kClosed) return std::string().swap(writing_);
  if (error) return cut(false);
  written_ += num_bytes;
  sent_bytes_ += static_cast<int64_t>(num_bytes);
  counters().sent_bytes.fetch_add(static_cast<int64_t>(num_bytes), std::memory_order_relaxed);
  last_progress_ = system_clock().now();
  if (written_ < writing_.size()) return write_rest();
  clear_buffer(writing_);
  written_ = 0;
  count_backlog();
  flush();
}

// Nothing is queued: when the answer is complete, the connection goes on or ends.
void Connection::on_all_written() {
  if (phase_ != Phase::kAnswering || answer_ != Answer::kComplete) return;
  end_exchange(false);
  if (!keeps_alive_ || has_input_ended_ || is_draining()) return linger();
  next_request();
}

// Closing with unread input would reset the connection, and the client might never see the answer.
void Connection::linger() {
  phase_ = Phase::kLinger;
  phase_since_ = system_clock().now();
  if (has_input_ended_) return close();
  wait();
  std::string().swap(pipelined_);
  socket_->shutdown_send([self = shared_from_this()](error_code error) {
    const bool is_tls = self->shared_->has_tls();
    if (self->phase_ == Phase::kLinger && static_cast<bool>(error) != is_tls) self->close();
  });
  read_more();
}

void Connection::cut(bool stalled) {
  if (phase_ == Phase::kClosed) return;
  if (stalled) counters().rejected_for(Rejection::kStalled).fetch_add(1, std::memory_order_relaxed);
  if (is_exchange_open_) {
    // The client does not take its answer: a reset instead of an orderly close frees the kernel's send buffer at once.
    error_code ignored;
    socket_->tcp_socket().set_option(asio::socket_base::linger(true, 0), ignored);
  }
  const std::function<void()> callback = std::exchange(on_close_, nullptr);
  on_silence_ = nullptr;
  on_behind_ = nullptr;
  close();
  if (callback) callback();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  end_exchange(true);
  phase_ = Phase::kClosed;
  route_ = nullptr;  // the router may be destroyed before the last exchange
  socket_->close();
  drop_body();
  count_backlog();
  // A slow handler's exchange may keep this object alive for long, so its buffers are freed now, all but the one that
  // the socket is still reading from.
  std::string().swap(framed_);
  std::string().swap(payload_);
  std::string().swap(large_body_);
  large_body_lease_.reset();
  std::string().swap(pipelined_);
  reader_.reset();
  stop_waiting();
  shared_->admission->leave(place_);
  counters().open_connections.fetch_sub(1, std::memory_order_relaxed);
  thread_->remove(self);
}

void Connection::abort() { cut(false); }

void Connection::close_if_idle() {
  if (phase_ != Phase::kReading || reader_.has_begun() || !has_brought_request_) return;
  error_code error;
  // Bytes that are there already are the next request, which is read first.
  if (socket_->tcp_socket().available(error) == 0) linger();
}

bool Connection::give_way() {
  if (phase_ == Phase::kClosed) return true;
  if (phase_ == Phase::kAnswering) return false;
  if (phase_ == Phase::kReading) {
    const bool has_begun = reader_.has_begun();
    error_code error;
    const bool has_unread = !has_begun && socket_->tcp_socket().available(error) > 0;
    if (has_unread) wait();
    if (has_unread || (has_begun && !place_.is_reserve)) return false;
  }
  if (!place_.is_reserve)
    counters().closed_idle_connections.fetch_add(1, std::memory_order_relaxed);
  close();
  return true;
}

void Connection::check_time(Clock::time_point now) {
  const auto elapsed = now - phase_since_;
  switch (phase_) {
    case Phase::kHandshake:
      if (elapsed > timeouts().header) close();
      break;
    case Phase::kReading:
      if (!reader_.has_begun()) {
        const bool is_brief = is_draining() || place_.is_reserve;
        if (elapsed > (is_brief ? timeouts().header : timeouts().keep_alive)) linger();
      } else if (reader_.state() == RequestReader::State::kBody ? is_body_overdue(now)
                                                                : elapsed > timeouts().header) {
        reject(TransportError::kRequestTimeout);
      }
      break;
    case Phase::kAnswering:
      check_answer_time(now);
      break;
    case Phase::kLinger:
      if (elapsed > timeouts().linger) close();
      break;
    case Phase::kClosed:
      break;
  }
}

bool Connection::is_body_overdue(Clock::time_point now) const {
  const auto earned = std::chrono::milliseconds(static_cast<int64_t>(reader_.body_bytes()) * 1000 /
                                                kBodyBytesPerSecond);
  return now - phase_since_ > timeouts().body_idle ||
         now - head_complete_ > timeouts().body + earned;
}

void Connection::check_answer_time(Clock::time_point now) {
  if ((is_writing_ && now - last_progress_ > timeouts().write_stall) ||
      (is_over_backlog_ && now - over_backlog_since_ > timeouts().write_stall))
    return cut(true);
  if (!is_reading_ && !has_input_ended_) {
    watch_for_end();
    if (phase_ == Phase::kClosed) return;
  }
  if (answer_ == Answer::kStreaming && behind_since_ && !is_behind_ &&
      now - *behind_since_ > timeouts().behind) {
    is_behind_ = true;
    if (on_behind_) on_behind_(true);
  }
  if (answer_ == Answer::kStreaming && !is_head_ && queued_bytes() == 0 &&
      now - last_event_ > timeouts().stream_comment) {
    const std::string events = on_silence_ ? on_silence_() : "";
    payload_.append(events.empty() ? kStreamComment : events);
    last_event_ = now;
    flush();
  }
}

ConnectionExchange::ConnectionExchange(std::shared_ptr<Connection> connection, uint64_t serial,
                                       Request request)
    : connection_(std::move(connection)),
      serial_(serial),
      request_(std::move(request)),
      body_lease_bytes_(static_cast<int64_t>(request_.body.size())) {}

ConnectionExchange::~ConnectionExchange() {
  const memory::MustSucceed scope;  // a destructor, perhaps run because memory ran out
  connection_->counters().bodies_bytes.fetch_sub(body_lease_bytes_, std::memory_order_relaxed);
  IoThread& thread = connection_->thread();
  thread.post(
      [connection = std::move(connection_), serial = serial_] { connection->drop(serial); });
}

std::string ConnectionExchange::take_body() {
  connection_->counters().bodies_bytes.fetch_sub(std::exchange(body_lease_bytes_, 0),
                                                 std::memory_order_relaxed);
  return std::exchange(request_.body, std::string());
}

int ConnectionExchange::thread_idx() const { return connection_->thread().thread_idx(); }
void ConnectionExchange::post(std::function<void()> task) {
  connection_->thread().post(std::move(task));
}
void ConnectionExchange::send(Response response) {
  connection_->send(serial_, std::move(response));
}
void ConnectionExchange::begin_stream(std::function<std::string()> on_silence) {
  connection_->begin_stream(serial_, std::move(on_silence));
}
void ConnectionExchange::write(std::string_view bytes) { connection_->write(serial_, bytes); }
void ConnectionExchange::finish_stream(bool complete) {
  connection_->finish_stream(serial_, complete);
}
size_t ConnectionExchange::backlog_bytes() const { return connection_->backlog_bytes(serial_); }
void ConnectionExchange::on_behind(std::function<void(bool)> callback) {
  connection_->set_on_behind(serial_, std::move(callback));
}
bool ConnectionExchange::is_closed() const { return connection_->is_closed(); }
void ConnectionExchange::on_close(std::function<void()> callback) {
  connection_->set_on_close(serial_, std::move(callback));
}
void ConnectionExchange::claim_log_line() { connection_->claim_log_line(serial_); }

}  // namespace fathom::http
