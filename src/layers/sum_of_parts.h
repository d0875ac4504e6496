#pragma once
// sum_of_parts: what a rank computes of a sum in several parts (RankContext::sum_parts), added in the tree of
// comm/tree_sum.h, so that the ranks' sums are added as the parts are.
//
//   sum_of_parts(o_proj_.size(), out, step, [&](size_t part, const Tensor& to) {
//     ops::linear({.x = heads_of(part), .weight = o_proj_[part], .out = to}, step.stream);
//   });

#include <bit>
#include <cstddef>
#include <utility>

#include "layers/attention.h"
#include "ops/add_rows.h"

namespace fathom::layers {

// compute(part, to) writes a part of what becomes `out`. REQUIRES: num_parts is a power of two.
template <class Compute>
void sum_of_parts(size_t num_parts, const tensor::Tensor& out, const LayerStep& step,
                  Compute&& compute) {
  // Sums of 1, 2, 4, ... parts wait for one of as many: as many of them as the number of parts so far has ones.
  const auto place = [&](int depth) {
    if (depth == 0) return out;
    return step.buffers.part_sums[depth - 1].slice(0, 0, out.dim(0));
  };
  for (size_t part = 0; part < num_parts; ++part) {
    int depth = std::popcount(part);
    compute(part, place(depth));
    for (size_t sums = part; (sums & 1) != 0; sums >>= 1, --depth)
      ops::add_rows({.x = place(depth), .sum = place(depth - 1)}, step.stream);
  }
}

}  // namespace fathom::layers
