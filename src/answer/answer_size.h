#pragma once
// How large an answer will be, in values: a token's id, its log-probability, an alternative to it; and what its choices
// hold of their prompts. What of an answer repeats the prompt is known before any work is done, and a request that asks
// for too much of it is refused then.
//
//   if (std::optional<api::ApiError> error = problem_of_size(request, max_bytes)) return *error;
//
// Pure functions, thread-safe.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

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

// Each choice has a copy of its prompt in the engine's queue. So many tokens of all copies but the first are checked,
// copied and freed in some ten milliseconds.
inline constexpr int64_t kMaxCopiedTokens = 8'000'000;
// Of a prompt, for each choice, on its way to the engine and there.
inline constexpr int64_t kBytesPerHeldToken = 8;
// Of an answer that is kept until it is whole: of a token, and of a value where it has log-probabilities. Each is there
// as a value and as JSON, in a text that grows by doubling.
inline constexpr int64_t kBytesPerKeptToken = 64, kBytesPerKeptValue = 128;
// What is more is handed to nobody in one piece.
inline constexpr int64_t kMaxKeptBytes = int64_t{512} << 20;
// Of a stream whose events repeat what was before them: some 25 MB each.
inline constexpr int64_t kMaxStreamedKeptBytes = int64_t{128} << 20;

// What the choices hold of the prompts.
int64_t num_held_bytes(const api::GenerationRequest& request);
// Of the prompts, as often as the answer repeats them.
int64_t num_prompt_values(const api::GenerationRequest& request);
// `max_held_bytes`: what there is for all answers in work.
std::optional<api::ApiError> problem_of_size(const api::GenerationRequest& request,
                                             int64_t max_held_bytes);

// Of an answer of which more than so many bytes would be kept.
api::ApiError answer_too_large(int64_t max_bytes);

// What all answers in work have of something, values or bytes. It lives as long as one of its leases.
using SizeInWork = std::shared_ptr<std::atomic<int64_t>>;

// A part of what all answers in work may have, given back at the end.
class SizeLease {
 public:
  SizeLease(int64_t size, int64_t most, SizeInWork in_work)
      : in_work_(std::move(in_work)), most_(most) {
    grow(size);
  }
  ~SizeLease() { in_work_->fetch_sub(size_); }
  SizeLease(const SizeLease&) = delete;
  SizeLease& operator=(const SizeLease&) = delete;

  // Of something that turns out to be larger than was known. False: there is no more, and nothing has grown, so that
  // others are not refused for what nobody got. Called by one thread at a time.
  bool grow(int64_t more) {
    int64_t now = in_work_->load();
    do {
      if (now + more > most_) return is_granted_ = false;
    } while (!in_work_->compare_exchange_weak(now, now + more));
    size_ += more;
    return is_granted_ = true;
  }
  bool is_granted() const { return is_granted_; }
  int64_t size() const { return size_; }

 private:
  const SizeInWork in_work_;
  const int64_t most_;
  int64_t size_ = 0;
  bool is_granted_ = false;
};

}  // namespace fathom::answer
