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

  // Of all ranks of the model, and which of them this is: those that compute the same tokens follow each other. They
  // hold the FFNs in so many parts (group "mlp"): each computes its part for the tokens of all lanes.
  int count() const { return tp->size() * dp->size(); }
  int number() const { return dp->rank() * tp->size() + tp->rank(); }
};

}  // namespace fathom::comm
