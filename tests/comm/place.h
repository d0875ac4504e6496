#pragma once
// A place in a group whose other ranks are not there: for tests of what one rank holds and asks for.
//
//   Place place(/*rank=*/1, /*size=*/4);
//   const RankContext rank{.tp = &place};
//   ... place.num_all_reduces

#include "comm/communicator.h"

namespace fathom::comm {

class Place : public Communicator {
 public:
  Place(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(const tensor::Tensor& t, ops::Stream&) override {
    ++num_all_reduces;
    reduced = t.data();
  }
  void all_gather(const tensor::Tensor&, int, ops::Stream&) override {}
  void all_gather_rows(const tensor::Tensor&, std::span<const int64_t>, ops::Stream&) override {}
  void reduce_scatter_rows(const tensor::Tensor&, std::span<const int64_t>, ops::Stream&) override {
  }
  void barrier() override { ++num_barriers; }

  int num_all_reduces = 0, num_barriers = 0;
  const void* reduced = nullptr;  // by the last one

 private:
  int rank_, size_;
};

}  // namespace fathom::comm
