#pragma once
// RateWindow: tokens per second, cache hit rate and acceptance of drafts over the last second of work, for gauges.
//
//   RateWindow window;
//   window.open(now, totals);                         // work begins
//   window.advance(now, totals);                      // after each step
//   window.close(now, totals);                        // the last request ended
//   window.tokens_per_second();                       // of the last window that was full or closed
//
// Plain data of one thread.

#include <chrono>
#include <cstdint>

namespace fathom::engine {

class RateWindow {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Totals {
    int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
    int64_t verify_slices = 0, verified_drafts = 0, accepted_drafts = 0;
  };

  void open(TimePoint now, const Totals& totals) {
    begin_ = now;
    at_begin_ = totals;
  }
  void advance(TimePoint now, const Totals& totals) {
    if (now - begin_ >= std::chrono::seconds(1)) close(now, totals);
  }
  void close(TimePoint now, const Totals& totals) {
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const int64_t output = totals.output_tokens - at_begin_.output_tokens;
    const int64_t prompt = totals.prompt_tokens - at_begin_.prompt_tokens;
    if (seconds > 0 && output > 0) tokens_per_second_ = static_cast<double>(output) / seconds;
    if (prompt > 0)
      hit_rate_ = static_cast<double>(totals.cached_tokens - at_begin_.cached_tokens) /
                  static_cast<double>(prompt);
    const auto slices = static_cast<double>(totals.verify_slices - at_begin_.verify_slices);
    const auto verified = static_cast<double>(totals.verified_drafts - at_begin_.verified_drafts);
    const auto accepted = static_cast<double>(totals.accepted_drafts - at_begin_.accepted_drafts);
    accept_length_ = slices > 0 ? 1 + accepted / slices : 0;
    accept_rate_ = verified > 0 ? accepted / verified : 0;
    open(now, totals);
  }

  double tokens_per_second() const { return tokens_per_second_; }
  double hit_rate() const { return hit_rate_; }
  // Tokens of a verifying step of one sequence, and the part of its drafts that held; 0 when none verified.
  double accept_length() const { return accept_length_; }
  double accept_rate() const { return accept_rate_; }

 private:
  TimePoint begin_{};
  Totals at_begin_{};
  double tokens_per_second_ = 0, hit_rate_ = 0, accept_length_ = 0, accept_rate_ = 0;
};

}  // namespace fathom::engine
