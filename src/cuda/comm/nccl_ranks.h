#pragma once
// NcclRanks: a group whose ranks are GPUs of several nodes, one in each node's process. NCCL moves what they exchange:
// in one host over NVLink, PCIe or memory that both map, between hosts over the network.
//
//   comm::MakeNodeGroup make = make_nccl_ranks({.network_interface = "eth0"});
//   auto tp = make("tp", {0}, {.node = 1, .starts = {0, 1, 2}, .links = links, .channel = channel});    // StartupError
//   tp->of(1).all_reduce(branch, stream);                                                  // on rank 1's thread
//
// Sums are of f32 and bf16, in an order of NCCL's; all ranks get the same bits, and of two ranks those of PeerRanks.
// Gathers are of any type and keep every bit. Tensors are contiguous. Collectives may be captured.
//
// The nodes first tell one another through their links which NCCL and which GPU each has. A node that ends before all
// have met is a StartupError on the others. Afterwards NCCL waits for a rank as long as its process lives: who sees a
// link fail must end this process, since what the GPU waits for will not come. failure() says what NCCL itself notices.
//
// REQUIRES: the rank's thread is the only one that enqueues a group's collectives, on one stream. Links outlive it.

#include <string>

#include "comm/node_ranks.h"

namespace fathom::cuda {

struct NcclOptions {
  std::string library = {};  // a file; "" = where the system has it
  // Through which the ranks find one another, and exchange where there is no RDMA; "" = NCCL's choice.
  // NCCL_SOCKET_IFNAME goes before.
  std::string network_interface = {};
};

comm::MakeNodeGroup make_nccl_ranks(const NcclOptions& options);

}  // namespace fathom::cuda
