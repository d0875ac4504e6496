#pragma once
// How large an answer will be, in values: a token's id, its log-probability, an alternative to it. What of an answer
// repeats the prompt is known before any work is done, and a request that asks for too much of it is refused then.
//
//   if (std::optional<api::ApiError> error = problem_of_size(request)) return *error;
//
// Pure functions, thread-safe.

#include <atomic>
#include <cstdint>
#include <optional>

#include "api/generation_request.h"
#include "api/tables/api_error.h"

namespace fathom::answer {

// Some 25 bytes of JSON each. A processor writes a million or two in a second, beside the others; collecting and
// freeing them takes the threads of all a quarter as long.
inline constexpr int64_t kMaxPromptValues = 600'000;
// The events of a stream are written by the thread that serves other streams.
inline constexpr int64_t kMaxStreamedPromptValues = 200'000;
// Of all answers in work.
inline constexpr int64_t kMaxPromptValuesInWork = 6'000'000;

// Of the prompts, as often as the answer repeats them.
int64_t num_prompt_values(const api::GenerationRequest& request);
std::optional<api::ApiError> problem_of_size(const api::GenerationRequest& request);

// A part of what all answers in work may have, given back at the end. `num_in_work` must outlive it.
class SizeLease {
 public:
  SizeLease(int64_t num_values, int64_t most, std::atomic<int64_t>& num_in_work)
      : num_in_work_(num_in_work), num_values_(num_values) {
    is_granted_ = num_in_work_.fetch_add(num_values_) + num_values_ <= most;
  }
  ~SizeLease() { num_in_work_.fetch_sub(num_values_); }
  SizeLease(const SizeLease&) = delete;
  SizeLease& operator=(const SizeLease&) = delete;

  bool is_granted() const { return is_granted_; }
  int64_t num_values() const { return num_values_; }

 private:
  std::atomic<int64_t>& num_in_work_;
  const int64_t num_values_;
  bool is_granted_ = false;
};

}  // namespace fathom::answer
