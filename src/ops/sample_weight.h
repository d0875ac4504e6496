#pragma once
// The weight that sampling gives a token: its probability relative to the best token's, as every backend
// computes it, bit for bit. So two backends that see the same logits draw the same token.
//
//   float w = sample_weight(logit, largest, sample_factor(temperature));     // 1 for the largest
//   uint64_t share = sample_share(w);                                        // what sums are made of
//
// Each operation is one float32 operation rounded to nearest; none may be fused with the next one. A backend
// that computes several tokens at once repeats exactly these.
//   t = (logit - largest) * factor, n = t rounded to an integer (ties to even), f = t - n
//   weight = (1 + f * (c1 + f * (c2 + ... f * c6))) * 2^n, relative error of 2^f below 2^-23
//   weight = 0 unless t > -40 (so also for NaN: -inf * 0)
//
// Pure functions, thread-safe.

#include <algorithm>
#include <bit>
#include <cstdint>

namespace fathom::ops {

// c1 to c6, fitted to 2^f for |f| <= 1/2.
inline constexpr float kSampleExp2[6] = {0x1.62e43p-1f,  0x1.ebfbdcp-3f,  0x1.c6aee8p-5f,
                                         0x1.3b2d4cp-7f, 0x1.5f3e54p-10f, 0x1.41fbbep-13f};
inline constexpr float kSampleLowest = -40;  // a weight of 2^-40 is the least that counts
// Adding and subtracting it rounds |t| < 2^22 to an integer, which its low bits then hold.
inline constexpr float kSampleRound = 0x1.8p23f;

// log2(e) / temperature; bounded, so that the largest logit's 0 * factor is 0.
constexpr float sample_factor(float temperature) {
  return std::min(0x1.715476p+0f / temperature, 0x1p126f);
}

constexpr float sample_weight(float logit, float largest, float factor) {
  const float difference = logit - largest;
  const float t = difference * factor;
  if (!(t > kSampleLowest)) return 0;
  const float shifted = t + kSampleRound;
  const float f = t - (shifted - kSampleRound);
  float p = kSampleExp2[5];
  for (int i = 4; i >= 0; --i) {
    const float product = p * f;
    p = product + kSampleExp2[i];
  }
  const float product = p * f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(product + 1.0f) + exponent);
}

// floor(weight * 2^40). Vocabularies of less than 2^24 tokens sum without overflow.
constexpr uint64_t sample_share(float weight) {
  return static_cast<uint64_t>(static_cast<int64_t>(weight * 0x1p40f));
}

// The least sum of shares that top_p < 1 asks for: its part of all shares, in float64.
constexpr uint64_t sample_top_p_share(float top_p, uint64_t total) {
  const double part = static_cast<double>(top_p) * static_cast<double>(total);
  const auto whole = static_cast<uint64_t>(part);
  return static_cast<double>(whole) < part ? whole + 1 : whole;
}

}  // namespace fathom::ops
