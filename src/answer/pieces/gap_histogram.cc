#include "answer/pieces/gap_histogram.h"

#include <algorithm>
#include <cmath>

namespace fathom::answer {

void GapHistogram::add(double seconds, uint32_t count) {
  const double steps =
      std::log(std::max(seconds, kFirstSeconds) / kFirstSeconds) / std::log(kRatio);
  const auto bucket = static_cast<size_t>(std::ceil(steps));
  counts_[std::min(bucket, counts_.size() - 1)] += count;
}

double GapHistogram::p50_seconds() const {
  uint64_t total = 0;
  for (const uint32_t count : counts_) total += count;
  if (total == 0) return 0;
  uint64_t seen = 0;
  size_t bucket = 0;
  while (seen + counts_[bucket] < (total + 1) / 2) seen += counts_[bucket++];
  return kFirstSeconds * std::pow(kRatio, static_cast<double>(bucket));
}

}  // namespace fathom::answer
