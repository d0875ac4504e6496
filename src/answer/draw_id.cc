#include "answer/draw_id.h"

#include <cstdint>
#include <random>

namespace fathom::answer {

std::string draw_id(std::string_view prefix) {
  thread_local std::mt19937_64 random = [] {
    std::random_device entropy;
    std::seed_seq seed{entropy(), entropy(), entropy(), entropy()};
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
