#pragma once
// Runs requests on an engine and turns their tokens into text as they come.
//
//   TextGeneration generation(runner, tokenizer, {.eos_token_ids = config.eos_token_ids});
//   generation.on_text = [](size_t index, std::string_view text) { print(text); return true; };
//   std::vector<Completion> completions = generation.run(std::move(requests));
//
// An interrupt (interrupt.h) cancels what is running; the completions then hold what was there. One thread
// uses it; runner and tokenizer outlive it.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "core/request.h"
#include "engine/output_collector.h"
#include "engine/step_loop.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace fathom::apps {

struct Completion {
  std::string text;  // without the token that ended it
  int num_prompt_tokens = 0;
  core::RequestOutput output;
  double first_token_seconds = 0, seconds = 0;  // since run() began
  bool stopped_by_reader = false;  // on_text said so; output.finish_reason is kCancelled then
};

// Tokens of all completions over the time that run() took.
struct GenerationStats {
  int64_t num_prompt_tokens = 0, num_output_tokens = 0;
  core::SpeculationCounts speculation{};  // of all; without a histogram
  double seconds = 0;
  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(num_output_tokens) / seconds : 0;
  }
};

class TextGeneration {
 public:
  TextGeneration(runner::Runner& runner, const text::Tokenizer& tokenizer,
                 engine::StepLoopConfig config);

  // New text of request `index`, whole characters; false = that is enough of it.
  std::function<bool(size_t index, std::string_view text)> on_text;
  std::function<void(size_t index, const Completion& completion)> on_done;
  // Special tokens whose text is kept, because something reads it (text::output_markers()).
  std::vector<int32_t> visible_special_ids;

  // One completion per request, in their order; the ids of the requests are set here. Throws StartupError
  // when a request is not valid; the message names its index.
  std::vector<Completion> run(std::vector<core::Request> requests);
  const GenerationStats& stats() const { return stats_; }

 private:
  // What has come of one request of the current run.
  struct Progress {
    text::Detokenizer detokenizer;
    std::vector<int32_t> stop_ids;  // not shown
    Completion completion;
  };

  void add(core::Request request);
  Progress& progress_of(core::RequestId id);
  void take_tokens(core::RequestId id, std::span<const core::SampledToken> tokens);
  void take_text(core::RequestId id, const std::string& text);
  void take_output(core::RequestOutput output);
  std::string text_of(Progress& progress, int32_t token_id) const;

  const text::Tokenizer& tokenizer_;
  std::vector<int32_t> eos_token_ids_;
  // One loop for all runs: a runner wants the steps of its life numbered in one row.
  engine::StepLoop loop_;
  engine::OutputCollector collector_;
  core::RequestId first_id_ = 0;  // of the current run
  std::vector<Progress> progress_;
  Stopwatch watch_;
  GenerationStats stats_;
};

}  // namespace fathom::apps
