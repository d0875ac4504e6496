#pragma once
// RowShares: the rows of a large step, shared among the ranks of tensor parallelism: each adds up, normalises and
// quantises its own, chooses their experts, and holds the residual stream of no others (sequence parallelism).
//
//   const RowShares shares = RowShares::of(tokens, *rank.tp);
//   if (shares.are_shared()) group.reduce_scatter_rows(branch, shares.starts, stream);
//   const tensor::Tensor own = shares.own(branch);
//
// A sum that every rank gets of all rows sends twice as much as one that each gets of its own. What is gathered
// instead are quantised rows, half of the bytes, and norms and gates run once.

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "ops/activation.h"
#include "tensor/tensor.h"

namespace fathom::layers {

struct RowShares {
  std::vector<int64_t> starts;  // [ranks + 1]; empty = every rank has all rows
  int rank = 0;

  // Below it more collectives cost more than fewer bytes gain.
  static constexpr int64_t kLeastRows = 512;

  // The same on all ranks of the group.
  static RowShares of(int64_t rows, const comm::Communicator& group) {
    return group.size() == 1 || rows < kLeastRows ? RowShares() : evenly(rows, group);
  }
  // However many rows there are.
  static RowShares evenly(int64_t rows, const comm::Communicator& group) {
    RowShares shares{.starts = {}, .rank = group.rank()};
    for (int64_t r = 0; r <= group.size(); ++r) shares.starts.push_back(rows * r / group.size());
    return shares;
  }

  bool are_shared() const { return !starts.empty(); }
  // This rank's rows of a tensor with all of them.
  tensor::Tensor own(const tensor::Tensor& t) const {
    return are_shared() && !t.is_null() ? t.slice(0, begin(), end()) : t;
  }
  ops::Activation own(const ops::Activation& rows) const {
    return are_shared() && !rows.is_null() ? rows.rows(begin(), end()) : rows;
  }

  int64_t begin() const { return starts[static_cast<size_t>(rank)]; }
  int64_t end() const { return starts[static_cast<size_t>(rank) + 1]; }
};

}  // namespace fathom::layers
