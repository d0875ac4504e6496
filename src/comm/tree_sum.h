#pragma once
// Sums over ranks in a tree: those of a group's ranks are the sum of its first half and that of the rest, each made in
// the same way; the first half is the largest power of two below their number. Every sum of two is rounded to T. So
// ranks that each add what several others would have come to the same bits ("tree-based invariant kernels", Zhang et
// al. 2025, arXiv 2511.17826).
//
//   const float* total = sum_in_tree<float>(0, 8, [&](int rank) { return values_of(rank); }, sum.data(), count);
//
//   TreeSum<float> sum(count);                    // of ranks that come one after the other, from several places
//   sum.take(4, bytes);  sum.push(values_of_rank_4);  sum.push(values_of_rank_5);
//
// Not synchronised.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace fathom::comm {

template <class T>
T rounded_sum(T a, T b) {
  if constexpr (std::is_same_v<T, tensor::Bf16>)
    return tensor::from_float<T>(tensor::to_float(a) + tensor::to_float(b));
  else
    return a + b;
}

// sum may be a or b.
template <class T>
void add(const T* a, const T* b, T* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = rounded_sum(a[i], b[i]);
}

inline constexpr int64_t kSumAtOnce = 1024;

// Of the ranks [first, end). at(rank): the rank's `count` values. Returns where the sum is: in `sum`, or a lone rank's
// own values. REQUIRES: count <= kSumAtOnce.
template <class T, class At>
const T* sum_in_tree(int first, int end, const At& at, T* sum, int64_t count) {
  if (end - first == 1) return at(first);
  const int middle =
      first + static_cast<int>(std::bit_floor(static_cast<unsigned>(end - first - 1)));
  std::array<T, kSumAtOnce> rest;
  const T* a = sum_in_tree(first, middle, at, sum, count);
  const T* b = sum_in_tree(middle, end, at, rest.data(), count);
  add(a, b, sum, count);
  return sum;
}

// The tree as far as it has come: the sums of its largest complete parts, which are the powers of two that the number
// of ranks so far consists of.
template <class T>
class TreeSum {
 public:
  struct Part {
    int num_ranks = 1;
    std::vector<T> sum{};
  };

  // count: values of a rank.
  explicit TreeSum(int64_t count) : count_(count) {}

  // Of the parts of so many ranks.
  int64_t bytes(int num_ranks) const {
    return std::popcount(static_cast<unsigned>(num_ranks)) * count_ * int64_t{sizeof(T)};
  }
  const std::vector<Part>& parts() const { return parts_; }

  // The parts of the first `num_ranks` ranks, one behind the other. REQUIRES: nothing is here.
  void take(int num_ranks, const std::byte* from) {
    for (auto rest = static_cast<unsigned>(num_ranks); rest != 0;) {
      const unsigned ranks = std::bit_floor(rest);
      rest -= ranks;
      std::vector<T> sum(static_cast<size_t>(count_));
      if (count_ > 0) std::memcpy(sum.data(), from, sum.size() * sizeof(T));
      from += sum.size() * sizeof(T);
      parts_.push_back({.num_ranks = static_cast<int>(ranks), .sum = std::move(sum)});
    }
  }

  // What the next rank has.
  void push(std::vector<T> values) {
    parts_.push_back({.sum = std::move(values)});
    while (parts_.size() > 1 && parts_[parts_.size() - 2].num_ranks == parts_.back().num_ranks)
      join_last();
  }

  // All ranks have come.
  std::vector<T> total() && {
    while (parts_.size() > 1) join_last();
    return std::move(parts_.front().sum);
  }

 private:
  void join_last() {
    const Part last = std::move(parts_.back());
    parts_.pop_back();
    Part& part = parts_.back();
    part.num_ranks += last.num_ranks;
    add(part.sum.data(), last.sum.data(), part.sum.data(), count_);
  }

  int64_t count_;
  std::vector<Part> parts_{};
};

}  // namespace fathom::comm
