#include "answer/pieces/draw_id.h"

#include <cstdint>
#include <random>

#include "base/entropy.h"

namespace fathom::answer {

std::string draw_id(std::string_view prefix) {
  thread_local std::mt19937_64 random = [] {
    const uint64_t high = entropy_bits(), low = entropy_bits();
    std::seed_seq seed{high >> 32, high & 0xFFFFFFFF, low >> 32, low & 0xFFFFFFFF};
    return std::mt19937_64(seed);
  }();
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id(prefix);
  for (int half = 0; half < 2; ++half) {
    uint64_t bits = random();
    for (int i = 0; i < 16; ++i, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

}  // namespace fathom::answer
