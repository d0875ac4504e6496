#pragma once
// A rope table of random positions (ops/rope.h): true angles, so that what is rotated keeps its length.
//
//   const tensor::Tensor table = random_rope_table(operands, tokens, qk_rope_head_dim);

#include <cmath>
#include <numbers>

#include "apps/bench_ops/operands.h"

namespace fathom::apps {

inline tensor::Tensor random_rope_table(Operands& operands, int64_t tokens, int64_t dim) {
  constexpr int64_t kAngles = 1024;
  std::vector<float> cosines, sines, table;
  for (int64_t i = 0; i < kAngles; ++i) {
    const float angle = 2 * std::numbers::pi_v<float> * static_cast<float>(i) / kAngles;
    cosines.push_back(std::cos(angle));
    sines.push_back(std::sin(angle));
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<size_t>(operands.draw(kAngles));
    for (int64_t i = 0; i < dim; ++i) {
      const size_t pair = static_cast<size_t>(i % (dim / 2));
      const size_t angle = (first + 37 * pair) % kAngles;
      table.push_back(i < dim / 2 ? cosines[angle] : sines[angle]);
    }
  }
  return operands.upload(table, {tokens, dim});
}

}  // namespace fathom::apps
