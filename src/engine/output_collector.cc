#include "engine/output_collector.h"

#include <utility>

namespace fathom::engine {

void OutputCollector::take(StepUpdates updates) {
  for (RequestUpdate& update : updates.requests) {
    std::vector<core::SampledToken>& tokens = tokens_[update.id];
    const auto num_new = static_cast<size_t>(update.tokens_end - update.tokens_begin);
    for (int32_t i = update.tokens_begin; i < update.tokens_end; ++i)
      tokens.push_back(std::move(updates.tokens[static_cast<size_t>(i)]));
    if (num_new > 0 && on_tokens) on_tokens(update.id, std::span(tokens).last(num_new));
    if (update.prompt_logprobs != nullptr) prompts_[update.id] = *update.prompt_logprobs;
    if (update.end == nullptr) continue;
    core::RequestOutput output{.id = update.id,
                               .tokens = std::move(tokens),
                               .prompt_logprobs = std::move(prompts_[update.id]),
                               .finish_reason = update.end->reason,
                               .matched_stop_token = update.end->matched_stop_token,
                               .seed = update.end->seed,
                               .num_cached_tokens = update.end->num_cached_tokens,
                               .num_retractions = update.end->num_retractions,
                               .speculation = std::move(update.end->speculation),
                               .error = std::move(update.end->error)};
    tokens_.erase(update.id);
    prompts_.erase(update.id);
    if (on_finish) on_finish(std::move(output));
  }
}

bool OutputCollector::step(StepLoop& loop) {
  StepUpdates updates;
  const bool busy = loop.step(updates);
  take(std::move(updates));
  return busy;
}

void OutputCollector::run(StepLoop& loop) {
  while (step(loop)) {
  }
}

}  // namespace fathom::engine
