#pragma once
// Connection: reads requests, hands them to their routes, writes the answers; and the Exchange that a handler
// holds. Only .cc files of this module include it (it brings Asio).
//
//   auto connection = std::make_shared<Connection>(io_thread, shared, std::move(socket));
//   connection->start();                         // on io_thread
//
// A read is always pending, also while an answer is due, so that a client that goes is noticed. What arrives
// then is the next request: kept up to Limits::max_pipelined_bytes, after which the socket is only watched for
// the end. One request is in work at a time; the serial tells an exchange whether it still is that one.
//
// Everything runs on the I/O thread. Held by its pending operations, its thread's set and its exchanges.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "http/exchange.h"
#include "http/io_thread_internal.h"
#include "http/request_reader.h"
#include "http/response_writer.h"
#include "http/socket_internal.h"
#include "http/target.h"

namespace fathom::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<IoThread> thread, std::shared_ptr<ServerShared> shared,
             std::unique_ptr<Socket> socket, Admission::Place place);
  ~Connection();

  void start();  // on its thread
  void abort();  // closes now; an answer that is due is cut
  // Closes a kept connection between two requests. One that has brought no request yet stays open: its client has just
  // connected to send one and must get an answer.
  void close_if_idle();
  // Closes to make room for another connection, if nothing is lost by it: between two requests, when the last answer is
  // out, or, in the reserve, before a request is there. Returns false when a request has just begun to come.
  bool give_way();
  // Puts the connection at the end of those that may be asked to give way. Any thread.
  void wait();
  void check_time(Clock::time_point now);
  void flush();

  // For exchanges: each does nothing unless `serial` is the request in work.
  void send(uint64_t serial, Response response);
  void begin_stream(uint64_t serial, std::function<std::string()> on_silence);
  void write(uint64_t serial, std::string_view bytes);
  void finish_stream(uint64_t serial, bool complete);
  void set_on_behind(uint64_t serial, std::function<void(bool)> callback);
  void set_on_close(uint64_t serial, std::function<void()> callback);
  size_t backlog_bytes(uint64_t serial) const;
  void claim_log_line(uint64_t serial);
  void drop(uint64_t serial);  // the handler let go of it
  bool is_closed() const { return phase_ == Phase::kClosed; }
  IoThread& thread() const { return *thread_; }
  ServerCounters& counters() const { return shared_->counters; }

 private:
  enum class Phase {
    kHandshake,
    kReading,    // idle, or head or body of a request are coming
    kAnswering,  // a request is in work, or its answer not yet with the socket
    kLinger,     // the last answer is out; what the client still sends is dropped
    kClosed,
  };
  enum class Answer { kDue, kStreaming, kComplete };

  // connection.cc: reading and dispatch.
  void read_more();
  void on_read(const error_code& error, size_t num_bytes);
  void on_end_of_input();
  void take_input(std::string_view bytes);
  bool feed_reader(std::string_view& bytes);
  void on_head_complete();
  void admit(Target target);
  void begin_request(const Router::Found& found, Target target);
  void answer_unrouted(const Router::Found& found, const std::string& path);
  void answer_preflight(const Router::Found& found);
  std::optional<TransportError> body_problem() const;
  bool take_body_lease();
  void drop_body();
  void dispatch();
  void next_request();
  void watch_for_end();

  void stop_waiting();

  // connection_answer.cc: writing, the end, time.
  bool is_current(uint64_t serial) const;
  // The transport's own answer: an error, or what needs no handler.
  void reject(TransportError error, Headers headers = {}, std::string_view named = {});
  void answer_directly(Response response);
  void begin_exchange();
  void end_exchange(bool client_gone);
  void queue_whole(Response response);
  AnswerContext answer_context() const;
  void queue_flush();
  void write_rest();
  void on_written(const error_code& error, size_t num_bytes);
  void on_all_written();
  void linger();
  void cut(bool stalled);
  void close();
  bool is_body_overdue(Clock::time_point now) const;
  void check_answer_time(Clock::time_point now);
  void count_backlog();
  void note_behind(size_t queued);
  size_t queued_bytes() const;

  const Timeouts& timeouts() const { return shared_->config.timeouts; }
  const Limits& limits() const { return shared_->config.limits; }
  ClientForm form() const { return form_; }
  bool is_draining() const { return shared_->is_draining.load(std::memory_order_relaxed); }

  std::shared_ptr<IoThread> thread_;
  std::shared_ptr<ServerShared> shared_;
  std::unique_ptr<Socket> socket_;
  Admission::Place place_;
  WaitingConnections::Spot spot_;
  Phase phase_ = Phase::kHandshake;
  // Of kReading: since the last byte of a body or the start of the head.
  Clock::time_point phase_since_;

  // Reading.
  RequestReader reader_;
  std::vector<char> read_buffer_;
  std::string pipelined_;
  bool is_reading_ = false, has_input_ended_ = false, has_brought_request_ = false;

  // The request in work.
  uint64_t serial_ = 0;
  const Route* route_ = nullptr;
  ClientForm form_ = ClientForm::kOpenAi;       // of errors
  Request request_;                             // until it is dispatched
  std::string method_, request_id_, key_name_;  // for the answer and the access record
  std::string cors_origin_;                     // of the answer
  int version_minor_ = 1;
  bool is_head_ = false, keeps_alive_ = true;
  int64_t body_lease_bytes_ = 0, request_body_bytes_ = 0;
  Clock::time_point head_complete_;
  bool is_exchange_open_ = false;  // counted as active, its access record is due
  bool has_own_line_ = false;      // see Exchange::claim_log_line
  std::function<void()> on_close_;
  std::function<std::string()> on_silence_;
  std::function<void(bool)> on_behind_;

  // The answer.
  Answer answer_ = Answer::kComplete;
  int status_ = 0;
  std::string framed_;      // bytes as they go out, before payload_
  std::string payload_;     // of a stream, framed when it is flushed
  std::string writing_;     // with the socket
  std::string large_body_;  // of a whole answer, behind framed_
  std::shared_ptr<const void> large_body_lease_;
  size_t written_ = 0;  // of writing_
  bool is_writing_ = false, is_flush_due_ = false, ends_stream_ = false;
  int64_t sent_bytes_ = 0;       // of this answer
  int64_t counted_backlog_ = 0;  // our share of ServerCounters::backlog_bytes
  Clock::time_point last_progress_, last_event_, over_backlog_since_;
  bool is_over_backlog_ = false;
  std::optional<Clock::time_point>
      behind_since_;        // of a stream: something has been queued ever since
  bool is_behind_ = false;  // and on_behind_ was told
};

// What a handler holds. Keeps the connection's memory, not its socket.
class ConnectionExchange final : public Exchange {
 public:
  // Takes over the request's share of ServerCounters::bodies_bytes.
  ConnectionExchange(std::shared_ptr<Connection> connection, uint64_t serial, Request request);
  ~ConnectionExchange() override;

  const Request& request() const override { return request_; }
  std::string take_body() override;
  int thread_idx() const override;
  void post(std::function<void()> task) override;
  void send(Response response) override;
  using Exchange::begin_stream;
  void begin_stream(std::function<std::string()> on_silence) override;
  void write(std::string_view bytes) override;
  void finish_stream(bool complete) override;
  size_t backlog_bytes() const override;
  void on_behind(std::function<void(bool)> callback) override;
  bool is_closed() const override;
  void on_close(std::function<void()> callback) override;
  void claim_log_line() override;

 private:
  std::shared_ptr<Connection> connection_;
  uint64_t serial_;
  Request request_;
  int64_t body_lease_bytes_;
};

}  // namespace fathom::http
