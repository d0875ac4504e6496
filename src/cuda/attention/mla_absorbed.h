#pragma once
// The fast kernels of absorbed attention, for V3's rows of 512 + 64 values in bf16 or f8: clusters for few and short
// sequences (mla_absorbed.cu) and streams for many or long ones (mla_absorbed_stream.cu), with the same bits. Any other
// rows get the kernel of mla_absorbed_generic.cu. Whether they do depends on format and alignment alone. More than 16
// heads have a kernel of their own (mla_absorbed_wide.cu), which a batch-invariant backend does without.
//
//   if (absorbed::can_run(args)) absorbed::run(args, stream);      // the wide kernel where it can
//
// Internal to cuda/attention/.

#include "ops/mla.h"

namespace fathom::cuda {

struct AbsorbedParams;

namespace absorbed {

inline constexpr int kLatent = 512, kRope = 64, kDim = kLatent + kRope;  // values of a row

// Items of 16 query rows stream from so many on, or where the tables of all have room for more rows than this: a call
// does not know its lengths on the host. 32 items and more stream faster at any length, 16 of 4096 rows and more; a
// step with one sequence is faster from some 24k rows on, with two of 14k, with four of 6k. Before that it is slower,
// because the blocks of a stream leave no room beside them in which the kernels before and after could begin and end.
inline constexpr int64_t kStreamItems = 16, kLongRows = 24576;
// Items that have clusters of two chunks each, where no table has room for more rows.
inline constexpr int64_t kMostTwoChunks = 7, kTwoChunkRows = 2048;
// Tokens of 16 heads over bf16 rows whose splits two blocks share where parts may be left, and the rows that tables of
// all may have room for: an H200 has 132 clusters of two blocks at once. Where some have a second split it is slower
// than clusters that leave chunks (one sequence of 22k, eight of 2,800).
inline constexpr int64_t kMostSharing = 8, kSharingRows = 16384;

bool can_run(const ops::MlaAbsorbedArgs& args);
void run(const ops::MlaAbsorbedArgs& args, ops::Stream& stream);
int64_t scratch_bytes(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream);

inline constexpr int kWideRows = 64;  // query rows of an item of the wide kernel

// Of a tile of 64 rows, which of them each of an item's four tokens of 16 heads sees: bit 2 i + j of [token][c] is row
// 8 i + 2 c + j, whose score is in lane c of four.
struct alignas(16) SeenRows {
  uint16_t bits[4][4];
};

// Of any number of heads. seen: of tokens of 64 heads that stand for four tokens of 16 each.
// REQUIRES: can_run(args).
bool can_run_wide(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream);
void run_wide(const ops::MlaAbsorbedArgs& args, ops::Stream& stream,
              const SeenRows* seen = nullptr);
int64_t wide_scratch_bytes(const ops::MlaAbsorbedArgs& args);

// Items of 16 query rows, whose parameters are complete.
void start_stream(const AbsorbedParams& p, bool is_f8, ops::Stream& stream);
// Tokens of 16 heads over bf16 rows, of which splits are left as parts.
void start_shared_splits(const AbsorbedParams& p, ops::Stream& stream);

}  // namespace absorbed
}  // namespace fathom::cuda
