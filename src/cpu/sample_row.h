#pragma once
// What both CPU backends do the same way for one row of sample() (ops/sample.h): its parameters, the logits
// after penalties, bias and mask, and the marks of a row that failed.
//
//   const SampleRow row(args, 3);
//   row.adjust(adjusted);                       // f32[vocab_size]
//   if (row.wants_draw()) token = draw(adjusted, row);
//
// Views of the caller's tensors; nothing is owned. Thread-safe.

#include <cstdint>
#include <span>

#include "ops/sample.h"

namespace fathom::cpu {

class SampleRow {
 public:
  static constexpr uint8_t kNonFinite = 1, kNothingLeft = 2;

  SampleRow(const ops::SampleArgs& args, int64_t row);

  const float* logits() const { return args_.logits.row<float>(row_); }
  int64_t vocab_size() const { return args_.logits.dim(1); }
  int64_t forced() const { return of_row(args_.forced); }
  float temperature() const { return of_slot<float>(args_.slots.temperature, 0); }
  float top_p() const { return of_slot<float>(args_.slots.top_p, 1); }
  float min_p() const { return of_slot<float>(args_.slots.min_p, 0); }
  // Tokens that top_k keeps, at most vocab_size.
  int64_t top_k() const;
  bool is_greedy() const { return temperature() == 0 || top_k_given() == 1; }
  // The randomness of the draw: 64 bits that depend on seed and position alone.
  uint64_t bits() const;

  // Whether adjust() would change nothing.
  bool is_plain() const;
  // Steps 3 and 4: `adjusted` f32[vocab_size] = logits after penalties, bias, bans and mask.
  void adjust(float* adjusted) const;
  // Whether every logit of -inf is of a token that the mask forbids.
  bool mask_explains_minus_infinity() const;

  // Writes a row without top log-probabilities.
  void write(int64_t token, float logprob) const;
  void write_failure(uint8_t failed) const;
  // How many top log-probabilities are wanted and have room, and where they go.
  int64_t num_top() const;
  int32_t* top_ids() const { return args_.top_ids.row<int32_t>(row_); }
  float* top_logprobs() const { return args_.top_logprobs.row<float>(row_); }

 private:
  // Entries [begin, end) of bias_ids and bias_values: biases, then bans that hold.
  struct Biases {
    int32_t begin = 0, end = 0;
  };

  int32_t of_row(const tensor::Tensor& parameter) const { return *parameter.row<int32_t>(row_); }
  // `padding`: what a row without a slot has.
  template <class T>
  T of_slot(const tensor::Tensor& parameter, T padding) const {
    return slot_ < 0 ? padding : *parameter.row<T>(slot_);
  }
  int32_t top_k_given() const { return of_slot<int32_t>(args_.slots.top_k, 0); }
  // -1 = no penalties.
  int32_t penalty_row() const;
  Biases biases() const;
  bool is_allowed(int64_t id) const;
  bool allows_all() const;
  void add_penalties(float* adjusted) const;
  std::span<const int32_t> path() const;

  const ops::SampleArgs& args_;
  int64_t row_;
  int32_t slot_;
};

}  // namespace fathom::cpu
