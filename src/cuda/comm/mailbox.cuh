#pragma once
// How GPUs pass data in a collective (TensorRT-LLM calls it Lamport style): a rank writes packets of 16 bytes straight
// into the memory of its peers, and a packet is its own flag. A place that waits for one holds kEmpty in all of its
// words, which no packet has, so whoever looks there until no word is kEmpty has the packet. It costs one way over
// NVLink, where data with a flag behind it costs two.
//
//   const int slot = mailbox.turns[blockIdx.x] % kSlots;                       // after wait_for_previous()
//   post(mailbox.place(peer, slot, mailbox.rank) + i, without_empty(packet, nan_word));
//   uint4* const place = mailbox.place(mailbox.rank, slot, peer) + i;
//   const uint4 theirs = take(look(place), place, peer, mailbox);              // waits, and empties the place
//
// A block of a kernel talks to the blocks of the same number in the kernels of its peers, and has places of its own:
// kSlots slots that it takes in turn. The number of turns lies on the device and counts on when a graph is replayed.
//
// Why a slot is free again: a block sends for turn t + 2 at the earliest when all of its threads have what came in turn
// t, or a kernel later. What a peer sent for turn t it sent when it had read what came in turn t - 2. So for turn t + 2
// the places of turn t - 2 may be written, which are its own with kSlots = 4. This needs each turn to bring something
// from every peer: where a peer may have no data a token comes (`tokens`).
//
// A peer that does not come for deadline_ns is written down in `lost` once, and from then on nobody waits: what is
// computed is worthless, and the host ends the service with the name (PeerRanks::failure()).

#include <cstdint>

#include "cuda/comm/lost_peer.h"

namespace fathom::cuda {

inline constexpr int kMaxRanks = 16;  // of a group
inline constexpr int kMaxBlocks =
    128;  // of a collective's kernel; a Hopper GPU has 132 multiprocessors
inline constexpr int kBlockPackets = 1024;  // most of one turn of a block
inline constexpr int kSlots = 4;
inline constexpr uint32_t kEmpty = 0xffffffffu;

// A rank's view of its group. Passed to kernels by value.
struct Mailbox {
  int rank = 0, size = 1;
  // [rank] -> uint4[kSlots][size][kMaxBlocks][kBlockPackets]: what the ranks send to this one.
  uint4* inbox[kMaxRanks] = {};
  // [rank] -> uint4[kSlots][size][kMaxBlocks]
  uint4* tokens[kMaxRanks] = {};
  uint32_t* turns = nullptr;    // [kMaxBlocks] of this rank's device
  uint32_t* gave_up = nullptr;  // of this rank's device; 1 = nobody waits any more
  LostPeer* lost = nullptr;     // in host memory
  uint64_t deadline_ns = 0;
  uint32_t collective = 0;  // for `lost`

#ifdef __CUDACC__
  __device__ __forceinline__ uint4* place(int to, int slot, int from) const {
    return inbox[to] +
           (static_cast<int64_t>(slot * size + from) * kMaxBlocks + blockIdx.x) * kBlockPackets;
  }
  __device__ __forceinline__ uint4* token(int to, int slot, int from) const {
    return tokens[to] + (slot * size + from) * kMaxBlocks + blockIdx.x;
  }
#endif
};

#ifdef __CUDACC__

__device__ __forceinline__ void post(uint4* to, uint4 packet) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(packet.x),
               "r"(packet.y), "r"(packet.z), "r"(packet.w)
               : "memory");
}
__device__ __forceinline__ uint4 look(const uint4* place) {
  uint4 packet;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packet.x), "=r"(packet.y), "=r"(packet.z), "=r"(packet.w)
               : "l"(place)
               : "memory");
  return packet;
}
__device__ __forceinline__ bool arrived(uint4 packet) {
  return packet.x != kEmpty && packet.y != kEmpty && packet.z != kEmpty && packet.w != kEmpty;
}
__device__ __forceinline__ void empty(uint4* place) {
  *place = make_uint4(kEmpty, kEmpty, kEmpty, kEmpty);
}
// A word of numbers that looks empty is a negative NaN; nan_word is the positive one.
__device__ __forceinline__ uint4 without_empty(uint4 packet, uint32_t nan_word) {
  packet.x = packet.x == kEmpty ? nan_word : packet.x;
  packet.y = packet.y == kEmpty ? nan_word : packet.y;
  packet.z = packet.z == kEmpty ? nan_word : packet.z;
  packet.w = packet.w == kEmpty ? nan_word : packet.w;
  return packet;
}

__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

static __device__ __noinline__ void give_up(int peer, const Mailbox& mailbox) {
  if (atomicExch(mailbox.gave_up, 1u) != 0) return;
  LostPeer& lost = *mailbox.lost;
  lost.peer = peer;
  lost.collective = mailbox.collective;
  __threadfence_system();
  *const_cast<volatile uint32_t*>(&lost.is_lost) = 1;
}

// The packet, or zeros of a peer that is lost.
static __device__ __noinline__ uint4 wait_for(const uint4* place, int peer,
                                              const Mailbox& mailbox) {
  constexpr int kLooks = 1024;
  const uint64_t begin = nanoseconds();
  while (true) {
    for (int i = 0; i < kLooks; ++i) {
      const uint4 packet = look(place);
      if (arrived(packet)) return packet;
    }
    if (nanoseconds() - begin > mailbox.deadline_ns) give_up(peer, mailbox);
    if (*const_cast<volatile uint32_t*>(mailbox.gave_up) != 0) return make_uint4(0, 0, 0, 0);
  }
}

__device__ __forceinline__ uint4 take(uint4 packet, uint4* place, int peer,
                                      const Mailbox& mailbox) {
  if (!arrived(packet)) packet = wait_for(place, peer, mailbox);
  empty(place);
  return packet;
}

#endif

}  // namespace fathom::cuda
