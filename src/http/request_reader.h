#pragma once
// RequestReader: HTTP/1.x requests out of bytes as they arrive, cut anywhere; the outcome never depends on the
// cuts. Strict: whatever two readers could take for different requests is refused (docs/dependencies.md says
// why this is our own parser).
//
//   RequestReader reader(limits);
//   taken = reader.feed(bytes);                 // stops at the end of the head
//   if (reader.state() == RequestReader::State::kHeadComplete) reader.begin_body();   // or answer and close
//   taken += reader.feed(bytes.substr(taken));  // stops at the end of the request
//   if (reader.state() == RequestReader::State::kComplete) use(reader.head(), reader.take_body()), reader.reset();
//
// After kFailed (error() says why) the connection can only be answered and closed. Every limit is checked
// before memory is taken. Not thread-safe; the limits must outlive it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/chunk_decoder.h"
#include "http/limits.h"
#include "http/message.h"
#include "http/transport_error.h"

namespace fathom::http {

struct RequestHead {
  std::string method, target;
  int version_minor = 1;  // HTTP/1.x
  Headers headers;        // names in lower case, values trimmed
  int64_t content_length = 0;
  bool is_chunked = false;
  bool keeps_alive = true;
  bool expects_continue = false;
  bool has_body() const { return is_chunked || content_length > 0; }
};

class RequestReader {
 public:
  enum class State { kHead, kHeadComplete, kBody, kComplete, kFailed };

  explicit RequestReader(const Limits& limits) : limits_(&limits), chunks_(limits) {}

  // Takes bytes in kHead and kBody; returns how many. Throws std::bad_alloc when there is no memory for a body.
  size_t feed(std::string_view bytes);
  void begin_body();  // REQUIRES: kHeadComplete
  void reset();       // for the next request of the connection

  State state() const { return state_; }
  // Whether a byte of this request has come.
  bool has_begun() const { return num_lines_ > 0 || !line_.empty() || state_ != State::kHead; }
  TransportError error() const { return *error_; }  // REQUIRES: kFailed
  const RequestHead& head() const { return head_; }
  RequestHead& head() { return head_; }
  size_t body_bytes() const { return body_.size(); }
  std::string take_body() { return std::move(body_); }
  void drop_body() { std::string().swap(body_); }

 private:
  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  void make_room(size_t num_bytes);
  void on_head_line();
  void on_request_line();
  void on_header_line();
  void on_head_end();
  bool take_length(std::string_view value);
  void fail(TransportError error);

  const Limits* limits_;
  State state_ = State::kHead;
  std::optional<TransportError> error_;
  RequestHead head_;
  std::string line_;  // of the head; without its end once complete
  size_t num_lines_ = 0, head_bytes_ = 0;
  bool skipped_empty_line_ = false, says_close_ = false;
  int num_hosts_ = 0, num_lengths_ = 0, num_codings_ = 0;
  ChunkDecoder chunks_;
  std::string body_;
};

}  // namespace fathom::http
