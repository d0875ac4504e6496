#pragma once
// Tells the reasoning of an output from its answer, byte by byte, where OutputParser does: both markers and the line
// breaks that belong to </think> come before the answer.
//
//   ReasoningTracker tracker(opens_reasoning(prompt));
//   tracker.push(piece, before, answer);   // appends each byte to one of the two, in order
//   tracker.finish(answer);                // white space at the beginning that no <think> followed
//
// Where calls end the reasoning (DSML), what begins one is the answer's although its first bytes came before.
//
// Held back is only what may still become a <think> at the beginning. Copies are cheap: nothing but that is kept.
// Not synchronised.

#include <string>
#include <string_view>

#include "text/marker_scanner.h"

namespace fathom::text {

class ReasoningTracker {
 public:
  // Of an output that the prompt opened, or that may begin with a <think> of the model's own.
  explicit ReasoningTracker(bool starts_in_reasoning, bool calls_end_it = false);

  void push(std::string_view bytes, std::string& before, std::string& answer);
  void finish(std::string& answer);
  // Whether some of these bytes would be of the answer if they came next.
  bool is_answer(std::string_view bytes) const;

  bool in_reasoning() const { return place_ == Place::kReasoning; }
  // Behind </think>, or there was no reasoning.
  bool is_over() const { return place_ >= Place::kClosed; }
  // The last push brought the whole of </think>.
  bool has_just_ended() const { return has_just_ended_; }

 private:
  enum class Place { kStart, kReasoning, kClosed, kAnswer };

  void step(char c, std::string& before, std::string& answer);
  void step_start(char c, std::string& before, std::string& answer);

  MarkerScanner ends() const;

  bool calls_end_it_;
  Place place_;
  MarkerScanner scanner_;  // <think> in kStart, ends() in kReasoning
  std::string held_;       // of kStart
  int num_newlines_ = 0;
  bool has_just_ended_ = false;
};

}  // namespace fathom::text
