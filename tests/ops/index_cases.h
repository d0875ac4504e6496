#pragma once
// What the tests of the indexer's operators share: sizes, values that are no scores, the keys that a backend takes.

#include <limits>
#include <vector>

#include "tests/ops/device.h"

namespace fathom::ops_test {

inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct IndexDims {
  int64_t heads, dim, rope;
};
inline constexpr IndexDims kIndexDims[] = {{64, 128, 64}, {3, 64, 16}, {100, 32, 32}};

class IndexFixture : public OpsTest {
 protected:
  // Whether keys may be FP8: the types that the backend has.
  std::vector<bool> key_forms() const {
    if (backend().supports("index_scores", DType::kF32)) return {false, true};
    return {true};
  }
};

}  // namespace fathom::ops_test
