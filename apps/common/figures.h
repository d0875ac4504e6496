#pragma once
// What the benches' figures are made of.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fathom::apps {

// 0 without values; the mean of the middle two of an even number.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// 0 when no time has passed.
inline double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

}  // namespace fathom::apps
