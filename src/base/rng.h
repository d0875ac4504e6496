#pragma once
// Counter-based random numbers (Philox 4x32-10, Salmon et al., SC 2011): the value depends on (seed,
// counter) only, so the same request gets the same numbers whatever else runs, on any device.
//
//   float u = uniform(philox(seed, 0, position)[0]);      // [0, 1)
//
// And the mixing step that hashes of ids are built from.
//
// Pure functions, thread-safe.

#include <array>
#include <cstdint>

namespace fathom {

constexpr std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter_high,
                                         uint64_t counter_low) {
  std::array<uint32_t, 4> c = {
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// One round of splitmix64 (Steele et al., OOPSLA 2014): every input bit reaches every output bit.
constexpr uint64_t mix64(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// The first two words as one number, uniform over all of 64 bits.
constexpr uint64_t random_bits(const std::array<uint32_t, 4>& words) {
  return uint64_t{words[0]} << 32 | words[1];
}

// floor(bits * n / 2^64): uniform in [0, n) where bits are uniform (n far below 2^64).
constexpr uint64_t scale_bits(uint64_t bits, uint64_t n) {
  const uint64_t high = bits >> 32, low = bits & 0xFFFFFFFFu;
  const uint64_t n_high = n >> 32, n_low = n & 0xFFFFFFFFu;
  const uint64_t middle = high * n_low + (low * n_low >> 32);
  const uint64_t other = low * n_high + (middle & 0xFFFFFFFFu);
  return high * n_high + (middle >> 32) + (other >> 32);
}

// Uniform in [0, 1) with 24 bits, exact in float32 on every device.
constexpr float uniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace fathom
