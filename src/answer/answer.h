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
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/choice.h"
#include "answer/gap_histogram.h"
#include "answer/renderer.h"
#include "api/api_error.h"
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
};

class Answer {
 public:
  struct Setup {
    AnswerHead head;
    std::vector<ChoiceSetup> choices;
    std::unique_ptr<Renderer> renderer;
    Stopwatch since_arrival;
    // Text is held back, and nothing lost, while the client has this much to take.
    size_t max_backlog_bytes = 64 << 10;
  };

  Answer(Setup setup, http::ExchangePtr exchange);

  // The engine took the request: a stream's head goes out.
  void begin();
  // True: a stop string is complete, the engine may stop.
  bool take(size_t choice_idx, std::span<const core::SampledToken> tokens,
            const engine::RequestUpdate& update);
  // Writes what is new, or the whole answer when all choices have finished. done() then.
  void flush();
  // Ends it with an error: the whole answer, or an event in the stream and no [DONE].
  void fail(const api::ApiError& error);
  // The client has gone; nothing more is written.
  void client_gone();

  bool done() const { return done_; }
  // The engine's requests, one per choice, once they were submitted.
  void set_request_ids(std::vector<core::RequestId> ids) { request_ids_ = std::move(ids); }
  const std::vector<core::RequestId>& request_ids() const { return request_ids_; }
  // True at the first call since the last flush(): the caller collects what to flush.
  bool touch() { return !std::exchange(is_touched_, true); }
  // Something that the request has until it is over.
  void hold(std::shared_ptr<void> lease) { lease_ = std::move(lease); }
  // True at the first call: the caller is the one who closes it.
  bool retire() { return !std::exchange(is_retired_, true); }
  const std::vector<Choice>& choices() const { return choices_; }
  const http::ExchangePtr& exchange() const { return exchange_; }
  // REQUIRES: done().
  AnswerRecord record() const;

 private:
  void note_tokens(size_t num_tokens);
  void write_whole();

  AnswerHead head_;
  std::unique_ptr<Renderer> renderer_;
  Stopwatch since_arrival_;
  size_t max_backlog_bytes_;
  http::ExchangePtr exchange_;
  std::vector<Choice> choices_;
  std::vector<core::RequestId> request_ids_;
  std::shared_ptr<void> lease_;
  std::vector<bool> written_end_;  // per choice: write_news() has shown its end
  std::string events_;             // scratch
  size_t num_unfinished_;
  bool is_touched_ = false, is_retired_ = false, done_ = false, stream_begun_ = false,
       client_gone_ = false;
  int status_ = 200;
  double queue_seconds_ = -1, first_token_seconds_ = -1, last_token_seconds_ = -1;
  double total_seconds_ = 0;
  GapHistogram gaps_;
};

}  // namespace fathom::answer
