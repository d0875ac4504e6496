#pragma once
// RankContext: who a rank is. A rank is one device with the thread that drives it (docs/contracts/parallel.md).
//
//   const comm::RankContext rank;                            // alone
//   auto model = Model::create(config, options, backend, rank);
//   const int64_t heads = config.num_attention_heads / rank.tp->size();
//
// Plain data. The communicators outlive whatever was created with it.

#include "comm/communicator.h"

namespace fathom::comm {

struct RankContext {
  int device = 0;  // of the backend's devices
  // Tensor parallelism: the ranks that compute the same tokens and hold the heads, FFN widths and vocabulary in parts.
  Communicator* tp = &alone();
  // Data parallelism of attention: the ranks with the same part of its weights and sequences of their own. The ranks of
  // a tp group are a lane, and dp's rank is the lane's number.
  Communicator* dp = &alone();
  // Expert parallelism: the ranks that hold the routed experts in parts, each expert as a whole. More than one: all
  // ranks of the model, tp times dp.
  Communicator* ep = &alone();

  // Sums over ranks (behind o_proj and the down projections) are computed in so many parts all together, whatever the
  // number of ranks, and added in one tree (comm/tree_sum.h): a rank computes several parts, each as a rank of so many
  // would, so their bits do not depend on the number of ranks. 1 = each rank computes one part. A power of two that is
  // a multiple of count().
  int sum_parts = 1;

  // Of all ranks of the model, and which of them this is: those that compute the same tokens follow each other. They
  // hold the FFNs in so many parts (group "mlp"): each computes its part for the tokens of all lanes.
  int count() const { return tp->size() * dp->size(); }
  int number() const { return dp->rank() * tp->size() + tp->rank(); }
  // Which part of the FFNs is this rank's: lanes are added first (over dp), then their ranks.
  int mlp_part() const { return tp->rank() * dp->size() + dp->rank(); }
  // Parts of a sum that this rank computes: over tp, and over all ranks.
  int tp_parts() const { return sum_parts <= tp->size() ? 1 : sum_parts / tp->size(); }
  int mlp_parts() const { return sum_parts <= count() ? 1 : sum_parts / count(); }
};

}  // namespace fathom::comm
