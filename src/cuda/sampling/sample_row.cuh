#pragma once
// One row of sample() (ops/sample.h) in the registers of a cluster: each block has a run of ids, each thread eight
// groups of four neighbouring ones, so all of the row is loaded at once and looked at any number of times.
//
//   SampleRow row(params, cluster.rank(), cluster.size());
//   row.load_slot();                     // where params has slots
//   row.load();                          // raw logits; -inf past the end
//   row.load_asked();                    // what the slot asks for
//   bool bad = row.has_non_finite();
//   row.adjust();                        // penalties, bias, bans, mask
//   if (row.values[i][c] > level) ... row.id(i) + c ...
//
// In the order of ids: blocks, groups i, threads, c. Every thread of a warp calls adjust().

#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "cuda/runtime/launch.cuh"
#include "cuda/sampling/cluster.cuh"
#include "tensor/tensor.h"

namespace fathom::cuda {

inline constexpr int kRowGroups = 8;  // of four ids, of a thread
inline constexpr int kRanks = 8;  // blocks of a cluster, kMaxRanks where the vocabulary is larger
inline constexpr int kIdsPerBlock = kSampleThreads * kRowGroups * 4;

// Shapes: ops/sample.h.
struct SampleParams {
  // A value for each slot.
  const float *temperature, *top_p, *min_p, *repetition, *frequency, *presence;
  const int32_t *top_k, *num_top, *penalty_row, *bias_start, *ban_start, *ban_end, *ban_until;
  const uint64_t* seed;
  const int32_t* counts;  // null allowed
  const int32_t* bias_ids;
  const float* bias_values;
  // A value for each row.
  const float* logits;  // rows logits_stride apart
  const int32_t *slot, *position, *forced;
  const int32_t* paths;  // i32[rows, max_path], -1 = the end; null allowed
  const uint32_t* mask;  // two words for each of the mask's; null allowed
  int32_t* tokens;
  float* logprobs;
  int32_t* top_ids;
  float* top_logprobs;
  uint8_t* failed;
  int64_t logits_stride, mask_words;  // mask_words: of a row, 32 bits each
  int vocab_size, max_top, max_path;
  int ids_per_block;  // a multiple of 4
  bool aligned;       // rows of logits and counts are whole groups at 16 bytes
};

// Orders floats as unsigned numbers; the two zeros are one. 0 is nobody: less than -inf.
__device__ __forceinline__ uint32_t sample_key(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float sample_logit(uint32_t key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}
// Orders by logit, ties by lower id; 0 is nobody.
__device__ __forceinline__ uint64_t sample_rank(float logit, int id) {
  return uint64_t{sample_key(logit)} << 32 | ~static_cast<uint32_t>(id);
}
__device__ __forceinline__ int rank_id(uint64_t rank) {
  return static_cast<int>(~static_cast<uint32_t>(rank));
}
__device__ __forceinline__ float rank_logit(uint64_t rank) {
  return sample_logit(static_cast<uint32_t>(rank >> 32));
}

class SampleRow {
 public:
  float values[kRowGroups][4];

  __device__ __forceinline__ SampleRow(const SampleParams& p, int row, int block)
      : p_(p),
        row_(row),
        begin_(block * p.ids_per_block),
        end_(min(begin_ + p.ids_per_block, p.vocab_size)) {}

  __device__ __forceinline__ int row() const { return row_; }
  // -1 = padding, and before load_slot().
  __device__ __forceinline__ int slot() const { return slot_; }
  __device__ __forceinline__ int id(int group) const {
    return begin_ + (group * kSampleThreads + static_cast<int>(threadIdx.x)) * 4;
  }

  // What is asked of the row, once load_asked() has run; before, of a padding row and of one without slots nothing is.
  __device__ __forceinline__ int forced() const { return forced_; }
  __device__ __forceinline__ int num_top() const { return num_top_; }
  __device__ __forceinline__ bool is_greedy() const { return is_greedy_; }

  // All loads of the three are under way at once, those of the row's slot behind one trip to memory.
  __device__ __forceinline__ void load_slot() {
    slot_ = p_.slot[row_];
    forced_ = p_.forced[row_];
    position_ = p_.position[row_];
  }
  __device__ __forceinline__ void load_asked() {
    if (slot_ < 0) return;
    const float temperature = p_.temperature[slot_];
    const int top_k = p_.top_k[slot_], num_top = p_.num_top[slot_];
    const int bias_start = p_.bias_start[slot_], ban_start = p_.ban_start[slot_];
    const int ban_end = p_.ban_end[slot_], ban_until = p_.ban_until[slot_];
    penalty_row_ = p_.penalty_row[slot_];
    is_greedy_ = temperature == 0 || top_k == 1;
    num_top_ = min(num_top, p_.max_top);
    bias_begin_ = bias_start;
    bias_end_ = position_ < ban_until ? ban_end : ban_start;
  }
  __device__ __forceinline__ void load() {
    const float* const logits = p_.logits + row_ * p_.logits_stride;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i) load_group(logits, i, -INFINITY, values[i]);
    allowed_ = 0;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i) {
      const int num = min(max(end_ - id(i), 0), 4);
      uint32_t bits = (1u << num) - 1;
      if (p_.mask != nullptr && num > 0)
        bits &= p_.mask[row_ * p_.mask_words + id(i) / 32] >> (id(i) % 32);
      allowed_ |= bits << (4 * i);
    }
  }

  // Whether one of the thread's raw logits is NaN, +inf, or -inf where the mask allows the token.
  __device__ __forceinline__ bool has_non_finite() const {
    bool has_lowest = false;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) has_lowest |= values[i][c] == -INFINITY;
    return has_too_large() || (has_lowest && has_allowed_lowest());
  }
  // Whether one of the thread's values is too large after adjust().
  __device__ __forceinline__ bool has_too_large() const {
    bool bad = false;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) bad |= !(values[i][c] < INFINITY);
    return bad;
  }

  __device__ __forceinline__ void adjust() {
    if (slot_ >= 0 && forced_ < 0) {
      if (penalty_row_ >= 0 && p_.counts != nullptr) add_penalties();
      for (int first = bias_begin_; first < bias_end_; first += 32) add_biases(first, bias_end_);
    }
    if (p_.mask == nullptr) return;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (!allows(i, c)) values[i][c] = -INFINITY;
  }

  // The thread's best token below `limit` in the order of ranks; 0 where there is none.
  __device__ __forceinline__ uint64_t best_below(uint64_t limit) const {
    uint64_t best = 0;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const uint64_t rank = id(i) + c < end_ ? sample_rank(values[i][c], id(i) + c) : 0;
        if (rank < limit && rank > best) best = rank;
      }
    return best;
  }
  // The same without a limit, and 0 where all is -inf.
  __device__ __forceinline__ uint64_t best() const {
    float most = -INFINITY;
    int where = 0;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (values[i][c] > most) {
          most = values[i][c];
          where = id(i) + c;
        }
    return most > -INFINITY ? sample_rank(most, where) : 0;
  }

 private:
  __device__ __forceinline__ bool has_allowed_lowest() const {
    bool bad = false;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) bad |= values[i][c] == -INFINITY && allows(i, c);
    return bad;
  }
  __device__ __forceinline__ bool allows(int group, int c) const {
    return (allowed_ >> (4 * group + c) & 1) != 0;
  }

  template <class T>
  __device__ __forceinline__ void load_group(const T* from, int group, T fill, T (&to)[4]) const {
    static_assert(sizeof(T) == 4);
    if (p_.aligned && id(group) < end_) {
      const uint4 words = *reinterpret_cast<const uint4*>(from + id(group));
      const uint32_t each[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int c = 0; c < 4; ++c) memcpy(&to[c], &each[c], 4);
      return;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) to[c] = id(group) + c < end_ ? from[id(group) + c] : fill;
  }

  __device__ __forceinline__ void add_penalties() {
    constexpr int32_t kCountBits = 0x7fffffff;
    const int32_t* const counts = p_.counts + int64_t{penalty_row_} * p_.vocab_size;
    const float repetition = p_.repetition[slot_], frequency = p_.frequency[slot_];
    const float presence = p_.presence[slot_];
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i) {
      int32_t seen[4];
      load_group(counts, i, 0, seen);
      add_path(id(i), seen);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (seen[c] == 0) continue;
        float logit = values[i][c];
        logit = logit > 0 ? logit / repetition : logit * repetition;
        const int32_t times = seen[c] & kCountBits;
        values[i][c] =
            logit - frequency * static_cast<float>(times) - (times > 0 ? presence : 0.0f);
      }
    }
  }

  __device__ __forceinline__ void add_path(int first, int32_t (&seen)[4]) const {
    if (p_.paths == nullptr) return;
    const int32_t* const path = p_.paths + int64_t{row_} * p_.max_path;
    for (int i = 0; i < p_.max_path && path[i] >= 0; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (path[i] == first + c) ++seen[c];
  }

  // Each lane looks at one entry; those of the warp's ids are added one after the other, because an id may
  // have several.
  __device__ __forceinline__ void add_biases(int first, int end) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, entry = first + lane;
    const int id = entry < end ? p_.bias_ids[entry] : -1;
    const float value = entry < end ? p_.bias_values[entry] : 0.0f;
    const int at = id - begin_;
    const bool mine = id >= begin_ && id < end_ && at / 4 % kSampleThreads / 32 == warp;
    for (uint32_t left = __ballot_sync(kAllLanes, mine); left != 0; left &= left - 1) {
      const int from = __ffs(static_cast<int>(left)) - 1;
      const int there = __shfl_sync(kAllLanes, at, from);
      const float bias = __shfl_sync(kAllLanes, value, from);
      if (there / 4 % 32 == lane) add_bias(there / 4 / kSampleThreads * 4 + there % 4, bias);
    }
  }
  __device__ __forceinline__ void add_bias(int place, float bias) {
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (place == 4 * i + c) values[i][c] += bias;
  }

  const SampleParams& p_;
  const int row_, begin_, end_;
  int slot_ = -1, forced_ = -1, position_ = 0;
  int penalty_row_ = -1, bias_begin_ = 0, bias_end_ = 0, num_top_ = 0;
  bool is_greedy_ = true;
  uint32_t allowed_ = 0;  // a bit for each of the thread's ids, 0 past the end
};

// How the host cuts a row: into the blocks of a cluster, and into groups.
inline int num_ranks(const char* op, const tensor::Tensor& logits) {
  const int64_t vocab_size = logits.dim(1);
  FATHOM_CHECK(vocab_size <= int64_t{kMaxRanks} * kIdsPerBlock,
               op << " on CUDA takes vocabularies of up to " << int64_t{kMaxRanks} * kIdsPerBlock
                  << " tokens, got " << vocab_size);
  return vocab_size <= int64_t{kRanks} * kIdsPerBlock ? kRanks : kMaxRanks;
}
inline int ids_per_block(const tensor::Tensor& logits, int ranks) {
  return 4 * static_cast<int>(num_tiles(logits.dim(1), int64_t{4} * ranks));
}
// Whether the rows are whole groups at 16 bytes; a null tensor's are.
inline bool has_whole_groups(const tensor::Tensor& x) {
  return x.is_null() || (x.dim(1) % 4 == 0 && reinterpret_cast<uintptr_t>(x.data()) % 16 == 0 &&
                         x.stride(0) % 4 == 0);
}

}  // namespace fathom::cuda
