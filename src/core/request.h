#pragma once
// A request as the engine sees it and how it ended. Plain data.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/batch.h"
#include "core/sampling_params.h"
#include "core/token_constraint.h"

namespace fathom::core {

using RequestId = int64_t;

struct Request {
  RequestId id = 0;
  std::vector<int32_t> prompt{};  // token ids, at least one
  SamplingParams sampling{};
  int priority = 0;  // higher goes first; equal ones by arrival (or by cached prefix, policy lpm)
  // Two requests share cached blocks only when their salts are equal.
  std::string cache_salt{};
  // Requests that one body asks for (its choices and prompts) have the same, and take their turns together: they get
  // no more of the engine than others that wait. 0 = it is alone.
  int64_t fan_out = 0;
  // Whose it is (the API key's), any number: while those of others wait, one has no more than half of what may run.
  uint64_t owner = 0;
  // Limits every sampled token; null = free. The request owns its state.
  std::shared_ptr<TokenConstraint> constraint{};
};

// Every request reaches exactly one of these.
enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kFailed };

// What speculative decoding did for one request. Tokens behind its end are not counted.
struct SpeculationCounts {
  int64_t num_verify_steps = 0;  // steps that verified drafts of it: SGLang's spec_verify_ct
  int64_t num_drafts_proposed = 0, num_drafts_verified = 0, num_drafts_accepted = 0;
  std::vector<int64_t> accept_histogram{};  // [n]: steps that accepted n drafts
  // All but the histogram.
  void add(const SpeculationCounts& other) {
    num_verify_steps += other.num_verify_steps;
    num_drafts_proposed += other.num_drafts_proposed;
    num_drafts_verified += other.num_drafts_verified;
    num_drafts_accepted += other.num_drafts_accepted;
  }
  // Tokens that a verifying step yields, on average: SGLang's spec_accept_length.
  double accept_length() const {
    return num_verify_steps == 0 ? 0
                                 : 1 + static_cast<double>(num_drafts_accepted) /
                                           static_cast<double>(num_verify_steps);
  }
};

// How the `error` ends of a request that ended because no step of the runner can succeed any more.
inline constexpr std::string_view kStartAgain = "start the server again";

// The `error` of a request that its constraint ended; the server tells its client which of these it was. None of them
// says anything of the model: nothing that it computed was wrong.
inline constexpr std::string_view kNoMemory = "there is no memory for the masks of its grammar";
inline constexpr std::string_view kGrammarDeadEnd =
    "no token of the vocabulary can go on as the grammar asks";
inline constexpr std::string_view kGrammarRefusal =
    "the grammar refused the token that its mask allowed";
// What is in the error of a slice for which grammar, biases and stop tokens leave nothing (docs/contracts/runner.md):
// the request's own doing, too.
inline constexpr std::string_view kNoTokenToChoose = "no token to choose";
inline bool leaves_no_token(std::string_view error) {
  return error.find(kNoTokenToChoose) != std::string_view::npos;
}

struct RequestOutput {
  RequestId id = 0;
  std::vector<SampledToken> tokens{};
  std::vector<SampledToken> prompt_logprobs{};  // entry i is about prompt token i + 1
  FinishReason finish_reason = FinishReason::kNone;
  int32_t matched_stop_token = -1;  // kStop by token: which; it is the last of `tokens`
  uint64_t seed = 0;                // the one used
  int num_cached_tokens = 0;  // of the prompt, found in the prefix cache at the first admission
  int num_retractions = 0;
  SpeculationCounts speculation{};
  std::string error{};  // kFailed: why
};

}  // namespace fathom::core
