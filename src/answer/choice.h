#pragma once
// Choice: one answer being made. Token ids go in, what a client may see comes out: whole characters, nothing
// of a stop string, reasoning and tool calls told apart, and the counts for `usage`.
//
//   Choice choice(setup);
//   if (choice.push(tokens, /*last_is_stop_token=*/false)) engine.stop(id);   // a stop string is complete
//   renderer.write_news(choice, events);                                      // takes choice.news
//   choice.end(*update.end);
//
// Text, token ids, log-probabilities and counts all end with the token that completed the stop string, or with the stop
// token that was found here.
// Lives on one I/O thread; borrows the tokenizer.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/structure_check.h"
#include "api/generation_request.h"
#include "core/batch.h"
#include "core/request.h"
#include "engine/updates.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"
#include "text/reasoning_tracker.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace fathom::answer {

enum class Finish { kNone, kStop, kLength, kAbort };

// A token and the event that its text went to.
struct PlacedToken {
  core::SampledToken token;
  size_t event_idx = 0;  // in ChoiceNews::events
};

// What a choice has produced since its renderer last looked. Where an output parser runs (chats), the text is in the
// events and `text` stays empty.
struct ChoiceNews {
  std::string text;
  std::vector<text::OutputEvent> events;
  std::vector<core::SampledToken> tokens;
  // With places_tokens: those that made up content, by event.
  std::vector<PlacedToken> placed;
  bool empty() const { return text.empty() && events.empty() && tokens.empty(); }
};

struct ChoiceCounts {
  int prompt_tokens = 0;
  int cached_tokens = 0;      // of the prompt, found in the prefix cache
  int completion_tokens = 0;  // the token that ended it included
  int reasoning_tokens = 0;   // of the completion
  int retractions = 0;
  core::SpeculationCounts speculation{};  // once it has ended
};

struct ChoiceSetup {
  const text::Tokenizer* tokenizer = nullptr;
  int index = 0;   // in the answer
  std::string id;  // native API: meta_info.id
  int prompt_tokens = 0;
  int logprob_start_len = -1;
  std::vector<int32_t> prompt{};  // only kept when it or its log-probabilities are shown
  bool return_logprobs = false, return_prompt_logprobs = false;
  int num_top_logprobs = 0;
  bool is_cut_by_context =
      false;  // its length is what the context had left, less than what was asked for
  std::shared_ptr<const text::StopStrings> stop{};  // null: none
  bool no_stop_trim = false, skip_special_tokens = true;
  int stream_interval = 1;  // native API: tokens per event
  // Chat: how the output is told apart, and the special tokens whose text the parser reads.
  std::optional<text::OutputParser> parser{};
  std::shared_ptr<const std::vector<int32_t>> marker_ids{};
  int32_t think_end_id = -1;
  bool starts_in_reasoning = false;
  // Chat: stop strings wait for the end of the reasoning, and so do the request's stop tokens, which are looked for
  // here and not by the engine. Before `min_tokens` none of those ends the choice.
  bool stops_wait = false;
  bool calls_end_reasoning = false;  // a call is the answer's, wherever it stands
  std::vector<int32_t> stop_token_ids{};
  int min_tokens = 0;
  bool shows_reasoning = true;  // false: it is counted and dropped
  // Where stop strings may cut a structure; null: there are none of the two.
  std::shared_ptr<StructureCheck> structure{};
  bool places_tokens = false;  // tells which tokens made up each piece of content

  // Of a token of the answer (answer_size.h): itself or its log-probability, and alternatives.
  int values_per_token() const { return return_logprobs ? 1 + num_top_logprobs : 1; }
};

using PromptLogprobs = std::shared_ptr<const std::vector<core::SampledToken>>;

class Choice {
 public:
  explicit Choice(ChoiceSetup setup);

  // Takes the tokens of one step. last_is_stop_token: the last one ended the request and is not text. True:
  // a stop string is complete, or a stop token found; later tokens are dropped.
  bool push(std::span<const core::SampledToken> tokens, bool last_is_stop_token);
  // The request's end: what was held back comes out.
  void end(const engine::RequestEnd& end);

  bool finished() const { return finish_ != Finish::kNone; }
  Finish finish() const { return finish_; }
  // What ended the choice: a stop string, if stop_string_found(), or a stop token, if not -1.
  const std::string& matched_string() const { return matched_string_; }
  int32_t matched_token() const { return matched_token_; }
  bool stop_string_found() const { return stop_string_found_; }
  // A stop string ended it before its structure was whole.
  bool is_cut_structure() const { return is_cut_structure_; }
  // It has found its end itself, whatever the engine goes on with.
  bool has_stopped() const { return stop_string_found_ || stop_token_found_; }

  const ChoiceSetup& setup() const { return setup_; }
  const ChoiceCounts& counts() const { return counts_; }
  void set_cached_tokens(int num_tokens) { counts_.cached_tokens = num_tokens; }
  // Those of the prompt, which the choices of one prompt share; empty while it waits for them.
  void set_prompt_logprobs(PromptLogprobs logprobs) { prompt_logprobs_ = std::move(logprobs); }
  std::span<const core::SampledToken> prompt_logprobs() const {
    return prompt_logprobs_ == nullptr ? std::span<const core::SampledToken>() : *prompt_logprobs_;
  }
  bool waits_for_prompt_logprobs() const {
    return setup_.return_prompt_logprobs && prompt_logprobs_ == nullptr;
  }

  ChoiceNews news;

 private:
  bool push_token(const core::SampledToken& token);
  // Whether it is a stop token of the answer.
  bool is_stop_token(int32_t token) const;
  bool ends_reasoning(int32_t token) const;
  std::string text_of(int32_t token);
  bool is_marker(int32_t token) const;
  void note_structure(int32_t token);
  // Appends to `visible` what leaves the stop matcher, and reasoning that does not pass it.
  void match(std::string_view text, std::string& visible);
  void find_stop(std::string_view text, std::string& visible);
  // What the stop matcher reads of `text`; the rest is appended to `visible`.
  std::string answer_part(std::string_view text, std::string& visible);
  // What has left the stop matcher, for the text or the parser.
  void show(std::string_view text);
  void take_events();
  // The last tokens, as many as the text has bytes, are its own; those before them were markup.
  void place_tokens(size_t num_text_bytes, size_t event_idx);
  void count_reasoning(int32_t token, std::span<const text::OutputEvent> events);
  void flush();

  ChoiceSetup setup_;
  text::Detokenizer detokenizer_;
  text::StopMatcher matcher_;
  std::optional<text::ReasoningTracker> reasoning_;  // while stops wait
  ChoiceCounts counts_;
  Finish finish_ = Finish::kNone;
  std::string matched_string_;
  int32_t matched_token_ = -1;
  bool stop_string_found_ = false, stop_token_found_ = false, is_cut_structure_ = false;
  size_t num_matched_bytes_ = 0;  // that have left the stop matcher
  bool in_reasoning_ = false, saw_event_ = false;
  std::vector<text::OutputEvent> fresh_events_;  // of the token being read
  std::vector<core::SampledToken> unplaced_;     // read since the last event
  PromptLogprobs prompt_logprobs_;
};

}  // namespace fathom::answer
