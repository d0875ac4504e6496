#pragma once
// GapHistogram: times between the tokens of one answer, for the p50 of its access line, in 200 bytes however
// long the answer is. Buckets grow by a quarter from 0.1 ms to 2 minutes.
//
//   gaps.add(0.012, /*count=*/1);  ...  gaps.p50_seconds();
//
// Not synchronised.

#include <array>
#include <cstdint>

namespace fathom::answer {

class GapHistogram {
 public:
  void add(double seconds, uint32_t count);
  // The upper bound of the median's bucket; 0 when nothing was added.
  double p50_seconds() const;

 private:
  static constexpr double kFirstSeconds = 1e-4, kRatio = 1.25;
  std::array<uint32_t, 64> counts_{};
};

}  // namespace fathom::answer
