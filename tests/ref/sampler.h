#pragma once
// The sampler's rules (ops/sample.h) for one row in float64, by sorting everything.
//
//   const ref::Distribution d = ref::restricted({.logits = logits, .temperature = 0.7, .top_p = 0.9});
//   int32_t token = d.draw(u);
//
// Pure functions.

#include <cstdint>
#include <utility>
#include <vector>

namespace fathom::ref {

struct SamplerRow {
  std::vector<double> logits = {};
  double temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  double repetition = 1, frequency = 0, presence = 0;
  std::vector<int32_t> counts = {};  // empty = no penalties; bit 31 = in the prompt
  std::vector<std::pair<int32_t, double>> bias = {};  // -inf bans
  std::vector<bool> allowed = {};                     // empty = all
};

// What is left to draw from, by rising id; probabilities sum to 1.
struct Distribution {
  std::vector<int32_t> ids;
  std::vector<double> probabilities;
  // How close top_p and min_p came to another choice of tokens, as a probability.
  double margin = 1;
  // The token that inverse CDF picks for u in [0, 1), and whether that or the choice of tokens is so close
  // to a border that float32 may fall on its other side.
  int32_t draw(double u) const;
  bool is_near_border(double u, double tolerance) const;
};

std::vector<double> log_softmax(const std::vector<double>& logits);
// Logits after penalties, bias, bans and mask.
std::vector<double> adjusted_logits(const SamplerRow& row);
Distribution restricted(const SamplerRow& row);
// Ids by falling value, ties by lower id.
std::vector<int32_t> ranking(const std::vector<double>& values);

}  // namespace fathom::ref
