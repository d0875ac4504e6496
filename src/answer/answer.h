#pragma once
// Answer: one HTTP request being answered by the engine: its choices, their renderer, the connection they go
// to, and what its access line will say.
//
//   auto answer = std::make_shared<Answer>(std::move(setup), exchange);
//   answer->begin();
//   answer->take(choice_idx, tokens, update);      // per update of the engine
//   answer->flush();                               // once per step: what is new goes out
//
// Lives on the I/O thread of its connection; everything is called there.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/answer_size.h"
#include "answer/choice.h"
#include "answer/pieces/gap_histogram.h"
#include "answer/renderer.h"
#include "api/tables/api_error.h"
#include "base/clock.h"
#include "engine/updates.h"
#include "http/exchange.h"

namespace fathom::answer {

// How an answer ended, for logs and metrics.
struct AnswerRecord {
  std::string request_id, key_name, model;
  std::string_view endpoint;
  ChoiceCounts counts{};
  int num_choices = 0;
  double queue_seconds = -1, first_token_seconds = -1, total_seconds = 0, gap_p50_seconds = 0;
  std::string_view finish{};  // stop, length, abort, error, client_gone
  int status = 200;
  bool client_gone = false, stream = false;
  std::string traceparent{}, tracestate{};  // the request's headers, as they came
};

class Answer {
 public:
  struct Setup {
    std::vector<ChoiceSetup> choices;
    std::unique_ptr<Renderer> renderer;
    Stopwatch since_arrival;
    // While this much waits for a slow client, new text is collected instead of written; nothing is lost.
    size_t max_backlog_bytes = 64 << 10;
    // Never null, kept as long as the answer (answer_size.h): of values of the prompts, and of memory, which grows with
    // what is kept of the answer.
    std::shared_ptr<SizeLease> size_lease, memory_lease;
  };

  Answer(Setup setup, http::ExchangePtr exchange);

  // The engine took the request: a stream's head goes out, and the events that need no token.
  void begin();
  // The tokens of one choice. Returns true when they complete a stop string: the engine may stop this choice.
  bool take(size_t choice_idx, std::span<const core::SampledToken> tokens,
            const engine::RequestUpdate& update);
  // Streams: writes what is new. Others: writes the whole answer once all choices have finished, unless it is large:
  // then is_due() turns true. done() is true when nothing more will be written.
  void flush();
  // A stream whose next event takes long to write is written in pieces: somebody calls flush() again in a later turn of
  // the thread. True once for each of these turns; turn_comes() ends it.
  bool wants_turn() { return is_preparing_ && !done_ && !std::exchange(has_turn_, true); }
  void turn_comes() { has_turn_ = false; }
  // A large answer wants to be rendered beside the I/O thread: somebody calls render() there, once, and then
  // send_whole() here. Nothing else touches the renderer from then on.
  bool is_due() const { return is_due_ && !done_; }
  std::string render();
  void send_whole(std::string body);
  // It was large, or its choices held much of its prompts.
  bool took_much() const;
  // Ends it with an error: the whole answer, or an event in the stream and no [DONE].
  void fail(const api::ApiError& error);
  // The client has gone; nothing more is written.
  void client_gone();

  bool done() const { return done_; }
  // The engine's requests, one per choice, once they were submitted.
  void set_request_ids(std::vector<core::RequestId> ids) { request_ids_ = std::move(ids); }
  const std::vector<core::RequestId>& request_ids() const { return request_ids_; }
  // Marks it for flush(). Returns true at the first call since the last flush(), so that the caller lists it once.
  bool touch() { return !std::exchange(is_touched_, true); }
  // Keeps `lease` (the request's claim to its rids) until just before the end of the answer is written, so that who has
  // read it finds them free; null lets go of it.
  void hold(std::shared_ptr<void> lease) { lease_ = std::move(lease); }
  // Returns true at the first call only: whoever gets it does the closing, once.
  bool retire() { return !std::exchange(is_retired_, true); }
  const std::vector<Choice>& choices() const { return choices_; }
  const http::ExchangePtr& exchange() const { return exchange_; }
  // REQUIRES: done().
  AnswerRecord record() const;

 private:
  // The choices of one prompt have the same: the engine computes them for one of those.
  void share_prompt_logprobs(size_t choice_idx, const PromptLogprobs& logprobs);
  void note_tokens(size_t num_tokens);
  bool is_large() const;
  // A stream's: writes what is new of choices, some milliseconds of work, and their ends. False: there is more.
  bool write_choices();
  // Whether its client or its size lets a stream wait with what is new.
  bool waits() const;
  // So much is new that it is written as events now, though they cannot go out yet.
  bool has_much_unwritten() const;
  // Counts what is kept of new tokens; an error where that is too much, of this answer or of all.
  std::optional<api::ApiError> keep(const Choice& choice, size_t num_tokens);

  std::shared_ptr<const api::ShownForm> form_;
  std::shared_ptr<Renderer> renderer_;  // also of the connection while it streams
  Stopwatch since_arrival_;
  size_t max_backlog_bytes_;
  http::ExchangePtr exchange_;
  std::vector<Choice> choices_;
  std::vector<core::RequestId> request_ids_;
  std::shared_ptr<void> lease_;
  std::shared_ptr<SizeLease> size_lease_, memory_lease_;
  int64_t kept_bytes_ = 0;         // of tokens so far
  std::vector<bool> written_end_;  // per choice: write_news() has shown its end
  std::string events_;             // not yet handed to the transport
  size_t next_choice_ = 0;         // that write_choices() begins with
  double next_write_seconds_ = 0;  // not before, but for the end
  size_t num_unfinished_;
  bool is_touched_ = false, is_retired_ = false, done_ = false, stream_begun_ = false,
       client_gone_ = false, is_due_ = false, is_preparing_ = false, has_turn_ = false;
  int status_ = 200;
  double queue_seconds_ = -1, first_token_seconds_ = -1, last_token_seconds_ = -1;
  double total_seconds_ = 0;
  GapHistogram gaps_;
};

}  // namespace fathom::answer
