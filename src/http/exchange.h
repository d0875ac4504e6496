#pragma once
// Exchange: one request being answered. Handlers get it on the I/O thread of its connection; they may keep
// the pointer, answer later, or stream.
//
//   router.add({"POST", "/v1/completions", Access::kInference, [](ExchangePtr exchange) {
//     workers.post([exchange] {
//       Response response = compute(exchange->request());
//       exchange->post([exchange, response] { exchange->send(response); });
//     });
//   }});
//
// Everything but post(), thread_idx(), request() and take_body() is called on the I/O thread of the connection
// (thread_idx()). After the answer is complete, or the client has gone, every call is a no-op. The answer is
// complete with send() or finish_stream(); an exchange that is dropped without one is answered with 500.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace fathom::http {

class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  // Moves the body out of the request, so that a long stream does not hold it, and stops counting it towards
  // Limits::max_bodies_bytes. Call it once what was parsed from the body has been freed or handed on. Any one thread,
  // as long as no other reads the request.
  virtual std::string take_body() { return request().body; }
  virtual int thread_idx() const = 0;
  // Runs a task on the connection's I/O thread, in order. Any thread; never runs it inside the call.
  virtual void post(std::function<void()> task) = 0;

  // The whole answer at once.
  virtual void send(Response response) = 0;
  // Or a stream of server-sent events. From here on, whenever nothing else went out for Timeouts::stream_comment, the
  // events that `on_silence` returns do (called on the I/O thread), or a comment line if it is null or returns none.
  virtual void begin_stream(std::function<std::string()> on_silence) = 0;
  void begin_stream() { begin_stream(nullptr); }
  // Queues bytes (whole events, "data: ...\n\n"); several calls in one turn go out in one write.
  virtual void write(std::string_view bytes) = 0;
  // complete = false: the connection is closed after what is queued (an error in the stream).
  virtual void finish_stream(bool complete) = 0;
  // Bytes queued and not yet taken by the socket.
  virtual size_t backlog_bytes() const = 0;

  // Called on the I/O thread with true when the client of a stream has not taken all that was written for
  // Timeouts::behind, and with false when it has again. Dropped once the answer is complete.
  virtual void on_behind(std::function<void(bool is_behind)> callback) = 0;

  // The client has gone (also when it stalled too long), for streams and for answers not yet sent alike.
  virtual bool is_closed() const = 0;
  // Called once, on the I/O thread, when the client goes before the answer is complete; in a later turn when it
  // has already gone. Dropped with everything it holds once the answer is complete.
  virtual void on_close(std::function<void()> callback) = 0;
  // The handler writes a log line of its own for this exchange: AccessRecord::has_own_line.
  virtual void claim_log_line() {}
};

using ExchangePtr = std::shared_ptr<Exchange>;

}  // namespace fathom::http
