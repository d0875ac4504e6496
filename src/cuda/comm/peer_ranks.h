#pragma once
// PeerRanks: a group whose ranks are GPUs of one process that write into one another's memory over NVLink. All
// collectives are kernels of our own (mailbox.cuh): they may be captured, and sums are in one tree (comm/tree_sum.h),
// so that all members have the same bits.
//
//   std::unique_ptr<comm::Group> tp = make_peer_ranks({.deadline = 5s})("tp", {0, 1});     // StartupError
//   tp->of(1).all_reduce(branch, stream);                                                  // on rank 1's thread
//
// Sums are of f32 and bf16 (added in f32, every sum of two rounded); gathers also of f8_e4m3, and of i32, in which -1
// may become another negative number. Tensors of at least two axes may be strided in rows. A rank that does not come
// to a collective for the deadline is told by failure(); what this group computes afterwards is worthless, and nobody
// waits in it any more.
//
// REQUIRES: a device's thread is the only one that enqueues a group's collectives there, on one stream.

#include <chrono>
#include <string>

#include "comm/group.h"

namespace fathom::cuda {

struct PeerOptions {
  std::chrono::milliseconds deadline = std::chrono::seconds(5);
  // For large sums that are not captured. Without the library kernels of our own take those too.
  bool use_nccl = true;
  // A file; "" = where the system has it. One that is named and cannot be opened is an error.
  std::string nccl_library = {};
  // NCCL for all sums, to compare. Without the library that is an error.
  bool disable_custom_all_reduce = false;
};

comm::MakeGroup make_peer_ranks(const PeerOptions& options);

}  // namespace fathom::cuda
