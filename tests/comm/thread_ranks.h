#pragma once
// Ranks as threads of a test: a communicator for each, which meet in barriers and read each other's tensors. f32 only.
//
//   ThreadRanks ranks(2);
//   std::thread other([&] { ranks.of(1).all_reduce(b, stream_b); });
//   ranks.of(0).all_reduce(a, stream_a);                                  // sums in the order of ranks

#include <algorithm>
#include <barrier>
#include <deque>
#include <vector>

#include "comm/communicator.h"

namespace fathom::comm {

class ThreadRanks {
 public:
  explicit ThreadRanks(int size) : all_here_(size), tensors_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) members_.emplace_back(*this, rank);
  }

  Communicator& of(int rank) { return members_[static_cast<size_t>(rank)]; }

 private:
  using Tensor = tensor::Tensor;

  class Member : public Communicator {
   public:
    Member(ThreadRanks& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(group_.tensors_.size()); }

    void all_reduce(const Tensor& t, ops::Stream& stream) override {
      meet(
          t, stream, [&] { return summed(group_.tensors_); }, t);
    }
    void all_gather(const Tensor& whole, int axis, ops::Stream& stream) override {
      for (int from = 0; from < size(); ++from)
        meet(
            whole, stream, [&] { return values(piece(at(from), axis, from)); },
            piece(whole, axis, from));
    }
    void reduce_scatter(const Tensor& whole, int axis, ops::Stream& stream) override {
      meet(
          whole, stream,
          [&] {
            std::vector<Tensor> mine;
            for (int from = 0; from < size(); ++from) mine.push_back(piece(at(from), axis, rank_));
            return summed(mine);
          },
          piece(whole, axis, rank_));
    }
    void all_to_all(const Tensor& whole, int axis, ops::Stream& stream) override {
      std::vector<std::vector<float>> got;
      meet(
          whole, stream,
          [&] {
            for (int from = 0; from < size(); ++from)
              got.push_back(values(piece(at(from), axis, rank_)));
            return got[0];
          },
          piece(whole, axis, 0));
      for (size_t from = 1; from < got.size(); ++from)
        store(got[from], piece(whole, axis, static_cast<int>(from)));
    }
    void barrier() override { group_.all_here_.arrive_and_wait(); }

   private:
    // Everybody's tensor is there, everybody has computed what goes to `to`, then it is written.
    template <class Compute>
    void meet(const Tensor& t, ops::Stream& stream, const Compute& compute, const Tensor& to) {
      if (stream.is_measuring()) return;
      group_.tensors_[static_cast<size_t>(rank_)] = t;
      barrier();
      const std::vector<float> result = compute();
      barrier();
      store(result, to);
    }
    const Tensor& at(int rank) const { return group_.tensors_[static_cast<size_t>(rank)]; }
    Tensor piece(const Tensor& whole, int axis, int index) const {
      const int64_t length = whole.dim(axis) / size();
      return whole.slice(axis, index * length, (index + 1) * length);
    }

    ThreadRanks& group_;
    int rank_;
  };

  static std::vector<float> values(const Tensor& t) {
    std::vector<float> all;
    for (int64_t i = 0; i < t.dim(0); ++i)
      all.insert(all.end(), t.row<float>(i), t.row<float>(i) + t.dim(1));
    return all;
  }
  static std::vector<float> summed(const std::vector<Tensor>& tensors) {
    std::vector<float> sum = values(tensors[0]);
    for (size_t rank = 1; rank < tensors.size(); ++rank) {
      const std::vector<float> other = values(tensors[rank]);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    }
    return sum;
  }
  static void store(const std::vector<float>& from, const Tensor& to) {
    for (int64_t i = 0; i < to.dim(0); ++i)
      std::copy_n(from.begin() + i * to.dim(1), to.dim(1), to.row<float>(i));
  }

  std::barrier<> all_here_;
  std::vector<Tensor> tensors_;
  std::deque<Member> members_;
};

}  // namespace fathom::comm
