#pragma once
// The lists of rows of four tokens side by side as one list, so that wide absorbed attention (mla_absorbed_wide.cu)
// reads a row once for all that list it and has all of its query rows in use: four tokens of 16 heads are 64.
//
//   merge_lists(args, shared, stream);      // then run_wide with shared.seen, of fours of tokens
//
// Internal to cuda/attention/sparse/.

#include "cuda/attention/mla_absorbed.h"
#include "ops/index.h"

namespace fathom::cuda::absorbed {

inline constexpr int64_t kSharingTokens = 4, kSharingHeads = 16;
static_assert(kSharingTokens * kSharingHeads == kWideRows);
// Of shared memory: with lists of 2,048 rows enough for sequences of 196,608.
inline constexpr int64_t kMostMergeBytes = 200 << 10;

// Of each four tokens: which rows are in one of the lists, in rising order, how many, and who lists each.
struct SharedLists {
  int32_t* rows;  // [fours, width]
  int32_t* counts;
  SeenRows* seen;  // [fours, width / 64]
  int64_t width;   // a multiple of 64
};

// Shared memory of merge_lists(): a byte for each row of the sequence, and for each row of four lists.
int64_t merge_bytes(const ops::MlaSparseArgs& args);
// REQUIRES: args are of one sequence, have a multiple of four tokens, and merge_bytes() of at most kMostMergeBytes.
void merge_lists(const ops::MlaSparseArgs& args, const SharedLists& shared, ops::Stream& stream);

}  // namespace fathom::cuda::absorbed
