#include "apps/text_generation.h"

#include <algorithm>
#include <utility>

#include "apps/interrupt.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

TextGeneration::TextGeneration(runner::Runner& runner, const text::Tokenizer& tokenizer,
                               engine::StepLoopConfig config)
    : tokenizer_(tokenizer),
      eos_token_ids_(config.eos_token_ids),
      loop_(runner, std::move(config)) {
  collector_.on_tokens = [this](core::RequestId id, std::span<const core::SampledToken> tokens) {
    take_tokens(id, tokens);
  };
  collector_.on_finish = [this](core::RequestOutput output) { take_output(std::move(output)); };
}

std::vector<Completion> TextGeneration::run(std::vector<core::Request> requests) {
  first_id_ += static_cast<core::RequestId>(progress_.size());
  progress_.clear();
  watch_.restart();
  for (core::Request& request : requests) add(std::move(request));
  bool cancelled = false;
  while (collector_.step(loop_)) {
    if (!interrupted() || cancelled) continue;
    for (size_t i = 0; i < progress_.size(); ++i) {
      loop_.cancel(first_id_ + static_cast<core::RequestId>(i));
    }
    cancelled = true;
  }
  stats_ = GenerationStats();
  stats_.seconds = watch_.seconds();
  std::vector<Completion> completions;
  for (Progress& progress : progress_) {
    stats_.num_prompt_tokens += progress.completion.num_prompt_tokens;
    stats_.num_output_tokens += static_cast<int64_t>(progress.completion.output.tokens.size());
    stats_.speculation.add(progress.completion.output.speculation);
    completions.push_back(std::move(progress.completion));
  }
  return completions;
}

void TextGeneration::add(core::Request request) {
  const size_t index = progress_.size();
  request.id = first_id_ + static_cast<core::RequestId>(index);
  Progress progress{.detokenizer = text::Detokenizer(tokenizer_),
                    .stop_ids = request.sampling.stop_token_ids,
                    .completion = {}};
  progress.completion.num_prompt_tokens = static_cast<int>(request.prompt.size());
  if (!request.sampling.ignore_eos) {
    progress.stop_ids.insert(progress.stop_ids.end(), eos_token_ids_.begin(), eos_token_ids_.end());
  }
  progress_.push_back(std::move(progress));
  const Status added = loop_.add(std::move(request));
  if (!added) {
    throw StartupError("prompt " + std::to_string(index) + ": " + added.error().message);
  }
}

TextGeneration::Progress& TextGeneration::progress_of(core::RequestId id) {
  return progress_.at(static_cast<size_t>(id - first_id_));
}

void TextGeneration::take_tokens(core::RequestId id, std::span<const core::SampledToken> tokens) {
  Progress& progress = progress_of(id);
  Completion& completion = progress.completion;
  if (completion.first_token_seconds == 0) completion.first_token_seconds = watch_.seconds();
  for (const core::SampledToken& token : tokens) {
    if (completion.stopped_by_reader) return;
    if (!contains(progress.stop_ids, token.token)) take_text(id, text_of(progress, token.token));
  }
}

std::string TextGeneration::text_of(Progress& progress, int32_t token_id) const {
  if (tokenizer_.is_special(token_id) && contains(visible_special_ids, token_id)) {
    return progress.detokenizer.finish() + std::string(tokenizer_.token_bytes(token_id));
  }
  return progress.detokenizer.push(token_id);
}

void TextGeneration::take_text(core::RequestId id, const std::string& text) {
  if (text.empty()) return;
  Completion& completion = progress_of(id).completion;
  completion.text += text;
  if (on_text && !on_text(static_cast<size_t>(id - first_id_), text)) {
    completion.stopped_by_reader = true;
    loop_.cancel(id);
  }
}

void TextGeneration::take_output(core::RequestOutput output) {
  const core::RequestId id = output.id;
  Progress& progress = progress_of(id);
  if (!progress.completion.stopped_by_reader) take_text(id, progress.detokenizer.finish());
  progress.completion.seconds = watch_.seconds();
  progress.completion.output = std::move(output);
  if (on_done) on_done(static_cast<size_t>(id - first_id_), progress.completion);
}

}  // namespace fathom::apps
