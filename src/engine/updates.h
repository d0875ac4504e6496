#pragma once
// What the engine tells the outside after each step: the tokens and ends of all requests of that step in one
// object, so that a step costs one hand-over per I/O thread and not one per request. Plain data, immutable
// once handed over.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/request.h"

namespace fathom::engine {

// When things happened to one request, seconds of the engine's clock since it was submitted; < 0 = never.
struct RequestTimes {
  double admitted_seconds = -1;  // left the queue for the first time
  double first_token_seconds = -1;
  double finished_seconds = -1;
};

struct RequestEnd {
  core::FinishReason reason = core::FinishReason::kNone;
  int32_t matched_stop_token = -1;
  std::string error{};  // kFailed
  int num_cached_tokens = 0, num_retractions = 0, num_output_tokens = 0;
  uint64_t seed = 0;
  core::SpeculationCounts speculation{};
  RequestTimes times{};
};

struct RequestUpdate {
  core::RequestId id = 0;
  uint32_t client_tag = 0;                   // as submitted: which I/O thread it belongs to
  int32_t tokens_begin = 0, tokens_end = 0;  // in StepUpdates::tokens; several with speculation
  int32_t num_cached_tokens = 0;
  double first_token_seconds = -1;  // since it was submitted, when its first token is in here
  double token_gap_seconds = -1;    // since its tokens before, when there were some and are some
  // Of a request that wants those of its prompt, once: with its first token, or with its end, when they may be fewer.
  std::shared_ptr<const std::vector<core::SampledToken>> prompt_logprobs{};
  std::unique_ptr<RequestEnd> end{};  // null = goes on. The last update of a request
};

struct StepUpdates {
  std::vector<core::SampledToken> tokens{};
  std::vector<RequestUpdate> requests{};
};

// Called on the engine's thread, in order; returns quickly and does not throw.
class UpdateSink {
 public:
  virtual ~UpdateSink() = default;
  virtual void on_updates(std::shared_ptr<const StepUpdates> updates) = 0;
};

}  // namespace fathom::engine
