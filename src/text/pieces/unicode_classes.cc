#include "text/pieces/unicode_classes.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace fathom::text {
namespace {

struct Run {
  uint32_t first;
  uint16_t bits;
};

constexpr Run kRuns[] = {
#include "text/pieces/unicode_classes.inc"
};

}  // namespace

UnicodeClasses::UnicodeClasses() {
  constexpr uint32_t kPageSize = 1u << kPageBits;
  std::map<std::vector<uint16_t>, uint16_t> known;
  const Run* run = std::begin(kRuns);
  for (uint32_t page = 0; page < page_of_.size(); ++page) {
    std::vector<uint16_t> bits(kPageSize);
    for (uint32_t i = 0; i < kPageSize; ++i) {
      while (run + 1 != std::end(kRuns) && (run + 1)->first <= page * kPageSize + i) ++run;
      bits[i] = run->bits;
    }
    const auto [found, added] = known.try_emplace(bits, static_cast<uint16_t>(known.size()));
    if (added) pages_.insert(pages_.end(), bits.begin(), bits.end());
    page_of_[page] = found->second;
  }
}

const UnicodeClasses& unicode_classes() {
  static const UnicodeClasses classes;
  return classes;
}

}  // namespace fathom::text
