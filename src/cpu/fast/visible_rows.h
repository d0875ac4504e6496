#pragma once
// Which cache rows a query token sees (the rule of ops/mla.h): one after the other, or as bit masks over blocks of
// rows.
//
//   VisibleRows visible(first_query_row, query_idx, tree_mask);
//   for (int64_t i = 0; i < visible.count(num_rows); ++i) read(visible.row(i));
//   uint64_t bits = visible.mask(64, 128);      // bit j: row 64 + j
//
// Plain data.

#include <bit>
#include <cstdint>

namespace fathom::cpu {

class VisibleRows {
 public:
  VisibleRows() = default;
  // first_query_row: row of the sequence's query token 0 of this step. tree_mask: of this token, null =
  // causal.
  VisibleRows(int64_t first_query_row, int64_t query, const uint64_t* tree_mask)
      : first_query_row_(first_query_row), query_(query), tree_mask_(tree_mask) {}

  // How many of num_rows it sees, and the i-th of them.
  int64_t count(int64_t num_rows) const {
    if (tree_mask_ == nullptr) return end(num_rows);
    return first_query_row_ + std::popcount(own() & below(num_rows - first_query_row_));
  }
  int64_t row(int64_t i) const {
    if (tree_mask_ == nullptr || i < first_query_row_) return i;
    uint64_t left = own();
    for (int64_t n = first_query_row_; n < i; ++n) left &= left - 1;
    return first_query_row_ + std::countr_zero(left);
  }

  // One past the last row that may be visible, of num_rows.
  int64_t end(int64_t num_rows) const {
    const int64_t causal = first_query_row_ + query_ + 1;
    return tree_mask_ != nullptr || causal > num_rows ? num_rows : causal;
  }

  // Rows [begin, end), at most 64.
  uint64_t mask(int64_t begin, int64_t end) const {
    const uint64_t prefix = below(first_query_row_ - begin);
    const uint64_t present = below(end - begin);
    if (tree_mask_ == nullptr) return below(first_query_row_ + query_ + 1 - begin) & present;
    const int64_t shift = first_query_row_ - begin;
    const uint64_t step = shift >= 64 || shift <= -64 ? 0
                          : shift >= 0                ? own() << shift
                                                      : own() >> -shift;
    return (prefix | step) & present;
  }

 private:
  // The query tokens of a tree that it sees. REQUIRES: tree_mask_.
  uint64_t own() const { return *tree_mask_ | uint64_t{1} << query_; }
  static uint64_t below(int64_t n) {
    return n <= 0 ? 0 : n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  }

  int64_t first_query_row_ = 0, query_ = 0;
  const uint64_t* tree_mask_ = nullptr;
};

}  // namespace fathom::cpu
