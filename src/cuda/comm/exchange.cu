// exchange: all-reduce, reduce-scatter and gather of rows, by packets (mailbox.cuh). One-shot: everybody sends what
// others need straight to them, and adds what came in a tree (sum.cuh). Bound by NVLink's latency up to some 64 KB,
// then by its rate.
// Grid: up to kMaxBlocks blocks, which take chunks of packets in turn; a thread has kThreadPackets of a chunk. A block
// sends two chunks before it waits for the first one: behind a chunk it waits until all that it sent has arrived
// (__threadfence()), and the wire would be empty until it sends the next one.

#include <algorithm>

#include "base/check.h"
#include "cuda/comm/exchange.cuh"
#include "cuda/comm/sum.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

using tensor::DType, tensor::Tensor;

constexpr int kThreads = 512, kThreadPackets = kBlockPackets / kThreads;
constexpr int64_t kPacketBytes = 16;

struct Params {
  Exchange what;
  uint32_t nan_word;
  int chunk_packets;
  int64_t num_chunks;  // of the longest piece
};

__device__ __forceinline__ char* locate(const Piece& piece, int64_t offset) {
  if (piece.stride == piece.row_bytes) return piece.data + offset;
  const int64_t row = offset / piece.row_bytes;
  return piece.data + row * piece.stride + (offset - row * piece.row_bytes);
}
// What is beyond the end is 0.
__device__ __forceinline__ uint4 load(const Piece& piece, int64_t packet) {
  const int64_t offset = packet * kPacketBytes;
  if (piece.aligned && offset + kPacketBytes <= piece.bytes)
    return *reinterpret_cast<const uint4*>(locate(piece, offset));
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = offset + 4 * i < piece.bytes
                   ? *reinterpret_cast<const uint32_t*>(locate(piece, offset + 4 * i))
                   : 0;
  return make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ void store(const Piece& piece, int64_t packet, uint4 value) {
  const int64_t offset = packet * kPacketBytes;
  if (piece.aligned && offset + kPacketBytes <= piece.bytes) {
    *reinterpret_cast<uint4*>(locate(piece, offset)) = value;
    return;
  }
  const uint32_t words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (offset + 4 * i < piece.bytes)
      *reinterpret_cast<uint32_t*>(locate(piece, offset + 4 * i)) = words[i];
}
__device__ __forceinline__ bool has(const Piece& piece, int64_t packet) {
  return packet * kPacketBytes < piece.bytes;
}

// A chunk that this block exchanges in one turn.
template <Exchange::Form kForm>
class Chunk {
 public:
  __device__ __forceinline__ Chunk(const Params& p, int64_t number, uint32_t turn)
      : p_(p),
        box_(p.what.mailbox),
        first_(number * p.chunk_packets),
        slot_(static_cast<int>(turn % kSlots)) {}

  __device__ __forceinline__ void send() const {
#pragma unroll
    for (int k = 0; k < kThreadPackets; ++k) {
      const int at = static_cast<int>(threadIdx.x) + k * kThreads;
      if (at >= p_.chunk_packets) break;
      if constexpr (kForm == Exchange::kReduceScatter) {
        for (int i = 1; i < box_.size; ++i) send(piece_of_rank(next_peer(i)), next_peer(i), at);
      } else {
        const Piece& own = piece_of_rank(box_.rank);
        if (!has(own, first_ + at)) continue;
        const uint4 packet = without_empty(load(own, first_ + at), p_.nan_word);
        for (int i = 1; i < box_.size; ++i)
          post(box_.place(next_peer(i), slot_, box_.rank) + at, packet);
      }
    }
    if (kForm != Exchange::kAllReduce && threadIdx.x < box_.size && threadIdx.x != box_.rank)
      post(box_.token(static_cast<int>(threadIdx.x), slot_, box_.rank), make_uint4(0, 0, 0, 0));
  }

  template <class T, int kRanks>
  __device__ __forceinline__ void sum() const {
    const Piece& own = piece_of_rank(box_.rank);
#pragma unroll
    for (int k = 0; k < kThreadPackets; ++k) {
      const int at = static_cast<int>(threadIdx.x) + k * kThreads;
      if (at >= p_.chunk_packets || !has(own, first_ + at)) break;
      uint4 packets[kRanks];
#pragma unroll
      for (int r = 0; r < kRanks; ++r)
        if (r < box_.size && r != box_.rank)
          packets[r] = look(box_.place(box_.rank, slot_, r) + at);
      const uint4 mine = load(own, first_ + at);
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r >= box_.size) break;
        packets[r] =
            r == box_.rank ? mine : take(packets[r], box_.place(box_.rank, slot_, r) + at, r, box_);
      }
      store(own, first_ + at, sum_in_tree<T>(packets, box_.size));
    }
  }

  __device__ __forceinline__ void gather() const {
    for (int i = 1; i < box_.size; ++i) {
      const int from = next_peer(i);
      const Piece& piece = p_.what.pieces[from];
      uint4 packets[kThreadPackets];
#pragma unroll
      for (int k = 0; k < kThreadPackets; ++k)
        if (is_mine(piece, k)) packets[k] = look(box_.place(box_.rank, slot_, from) + at(k));
#pragma unroll
      for (int k = 0; k < kThreadPackets; ++k)
        if (is_mine(piece, k))
          store(piece, first_ + at(k),
                take(packets[k], box_.place(box_.rank, slot_, from) + at(k), from, box_));
    }
  }

  // Every peer has come to this turn, also those without data.
  __device__ __forceinline__ void take_tokens() const {
    const int from = static_cast<int>(threadIdx.x);
    if (from >= box_.size || from == box_.rank) return;
    uint4* const token = box_.token(box_.rank, slot_, from);
    take(look(token), token, from, box_);
  }

 private:
  __device__ __forceinline__ int next_peer(int i) const { return (box_.rank + i) % box_.size; }
  __device__ __forceinline__ const Piece& piece_of_rank(int rank) const {
    return p_.what.pieces[kForm == Exchange::kAllReduce ? 0 : rank];
  }
  __device__ __forceinline__ int at(int k) const {
    return static_cast<int>(threadIdx.x) + k * kThreads;
  }
  __device__ __forceinline__ bool is_mine(const Piece& piece, int k) const {
    return at(k) < p_.chunk_packets && has(piece, first_ + at(k));
  }
  __device__ __forceinline__ void send(const Piece& piece, int peer, int at) const {
    if (has(piece, first_ + at))
      post(box_.place(peer, slot_, box_.rank) + at,
           without_empty(load(piece, first_ + at), p_.nan_word));
  }

  const Params& p_;
  const Mailbox& box_;
  const int64_t first_;
  const int slot_;
};

// kRanks: at least the group's size. T: of sums.
template <Exchange::Form kForm, class T, int kRanks>
__global__ void __launch_bounds__(kThreads) exchange_chunks(const __grid_constant__ Params p) {
  let_next_start();
  wait_for_previous();
  uint32_t turn = p.what.mailbox.turns[blockIdx.x];
  __syncthreads();  // all have read it before one counts on
  const auto send = [&](int64_t number, uint32_t in_turn) {
    if (number < p.num_chunks) Chunk<kForm>(p, number, in_turn).send();
  };
  send(blockIdx.x, turn);
  send(blockIdx.x + gridDim.x, turn + 1);
  for (int64_t number = blockIdx.x; number < p.num_chunks; number += gridDim.x, ++turn) {
    const Chunk<kForm> chunk(p, number, turn);
    if constexpr (kForm == Exchange::kGather)
      chunk.gather();
    else
      chunk.template sum<T, kRanks>();
    if constexpr (kForm != Exchange::kAllReduce) chunk.take_tokens();
    const int64_t next = number + int64_t{2} * gridDim.x;
    if (next >= p.num_chunks) continue;
    __threadfence();  // the places are empty before a peer is told so by what is sent next
    __syncthreads();
    send(next, turn + 2);
  }
  if (threadIdx.x == 0) p.what.mailbox.turns[blockIdx.x] = turn;
}

// What is sent for a word that looks like an empty place.
uint32_t nan_word(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x7fffffffu;
    case DType::kBf16:
      return 0x7fff7fffu;
    case DType::kF8E4M3:
      return 0x7f7f7f7fu;
    case DType::kI32:  // -1 becomes another negative number
      return 0x80000000u;
    default:
      FATHOM_CHECK(false, "a collective of " << tensor::dtype_name(dtype) << " between GPUs");
  }
}

template <Exchange::Form kForm, class T>
void run(const Params& params, ops::Stream& stream) {
  const LaunchShape shape{
      .grid = static_cast<unsigned>(std::min<int64_t>(params.num_chunks, kMaxBlocks)),
      .block = kThreads};
  const int size = params.what.mailbox.size;
  if (kForm == Exchange::kGather || size <= 2)
    return launch(exchange_chunks<kForm, T, 2>, shape, stream, params);
  if (size <= 4) return launch(exchange_chunks<kForm, T, 4>, shape, stream, params);
  if (size <= 8) return launch(exchange_chunks<kForm, T, 8>, shape, stream, params);
  launch(exchange_chunks<kForm, T, kMaxRanks>, shape, stream, params);
}

template <Exchange::Form kForm>
void run_sum(const Params& params, ops::Stream& stream) {
  if (params.what.dtype == DType::kF32) return run<kForm, float>(params, stream);
  FATHOM_CHECK(params.what.dtype == DType::kBf16,
               "a sum of " << tensor::dtype_name(params.what.dtype) << " between GPUs");
  run<kForm, Bf16>(params, stream);
}

}  // namespace

Piece piece_of(const Tensor& t) {
  const int last = t.rank() - 1;
  const int64_t element = tensor::dtype_bytes(t.dtype());
  Piece piece{.data = static_cast<char*>(t.data()),
              .bytes = t.num_elements() * element,
              .row_bytes = t.dim(last) * element,
              .stride = t.dim(last) * element,
              .aligned = false};
  if (t.rank() >= 2) piece.stride = t.stride(last - 1) * element;
  for (int axis = last - 2; axis >= 0; --axis)
    FATHOM_CHECK(t.stride(axis) == t.dim(axis + 1) * t.stride(axis + 1),
                 "rows of " << t.describe() << " lie at different distances");
  if (piece.bytes == piece.row_bytes || piece.stride == piece.row_bytes)
    piece.stride = piece.row_bytes = piece.bytes;
  const auto multiple = [&](int64_t of) {
    return reinterpret_cast<uintptr_t>(piece.data) % static_cast<uintptr_t>(of) == 0 &&
           piece.row_bytes % of == 0 && piece.stride % of == 0;
  };
  FATHOM_CHECK(piece.bytes == 0 || multiple(4),
               "a collective between GPUs of " << t.describe() << ", not of whole words");
  piece.aligned = multiple(kPacketBytes);
  return piece;
}

void exchange(const Exchange& args, ops::Stream& stream) {
  int64_t most_bytes = 0;
  const int num_pieces = args.form == Exchange::kAllReduce ? 1 : args.mailbox.size;
  for (int i = 0; i < num_pieces; ++i) most_bytes = std::max(most_bytes, args.pieces[i].bytes);
  const int64_t packets = (most_bytes + kPacketBytes - 1) / kPacketBytes;
  if (packets == 0) return;
  // A message is spread over the blocks down to one packet for each of a few warps.
  constexpr int64_t kFewest = 128;
  const int64_t spread = (packets + kMaxBlocks - 1) / kMaxBlocks;
  const int64_t chunk =
      std::clamp<int64_t>((spread + kFewest - 1) / kFewest * kFewest, kFewest, kBlockPackets);
  const Params params{.what = args,
                      .nan_word = nan_word(args.dtype),
                      .chunk_packets = static_cast<int>(chunk),
                      .num_chunks = (packets + chunk - 1) / chunk};
  switch (args.form) {
    case Exchange::kAllReduce:
      return run_sum<Exchange::kAllReduce>(params, stream);
    case Exchange::kReduceScatter:
      return run_sum<Exchange::kReduceScatter>(params, stream);
    case Exchange::kGather:
      return run<Exchange::kGather, float>(params, stream);
  }
}

}  // namespace fathom::cuda
