#pragma once
// CheckedStream: one stream of POST /generate from a server on the simulation backend, whose tokens are known
// beforehand. Each event must repeat all tokens so far and add the next: a token that is lost, comes twice or
// out of order is noticed at once. Arrival times are kept for delays.
//
//   CheckedStream stream({.index = 7, .num_tokens = 300, .vocab_size = 2048});
//   client.send({.method = "POST", .url = url, .body = stream.body()},
//               {.on_body = [&](std::string_view bytes) { stream.feed(bytes); }, ...});
//   stream.finish(response.error);  ->  stream.problem() is empty when all was right
//
// Not thread-safe: one thread at a time.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "client/sse_parser.h"

namespace fathom::bench {

struct StreamPlan {
  int index = 0;  // makes its prompt different from all others
  int num_prompt_tokens = 8;
  int num_tokens = 0;  // of the answer
  int vocab_size = 0;
};

class CheckedStream {
 public:
  explicit CheckedStream(const StreamPlan& plan);
  CheckedStream(const CheckedStream&) = delete;
  CheckedStream& operator=(const CheckedStream&) = delete;

  std::string body() const;
  void feed(std::string_view bytes);
  // The connection's end; `error` empty when the transport saw a complete answer.
  void finish(int status, const std::string& error);

  bool has_begun() const { return !arrivals_.empty(); }
  const std::string& problem() const { return problem_; }
  // When each token came.
  const std::vector<Clock::time_point>& arrivals() const { return arrivals_; }
  // Tokens that came together with a later one, in one event.
  int num_joined_tokens() const { return num_joined_tokens_; }

 private:
  void take_event(std::string_view data);
  void note(const std::string& problem);
  void extend_expected();

  StreamPlan plan_;
  std::vector<int32_t> tokens_;  // prompt and expected answer
  std::string expected_ids_;     // of the answer, "5,17,3"
  std::vector<Clock::time_point> arrivals_;
  client::SseParser parser_;
  bool is_done_ = false;
  int num_joined_tokens_ = 0;
  std::string problem_;
};

}  // namespace fathom::bench
