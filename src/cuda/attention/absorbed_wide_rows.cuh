#pragma once
// Rows of the cache in bf16 for wide absorbed attention (mla_absorbed_wide.cu) that no tensor map describes: lists of
// rows. Four warps bring both tiles, so that a piece of a place that is given back is on its way at once.
//
//   RowPairs<RowSource::kRows> rows(p, shared);
//   rows.load_pair(part, row);      // all lanes: the pair of tiles that begins with this row of the part
//
// Eight lanes copy 128 bytes of a row, and a lane has the same four rows of a tile in all panels: every copy is one
// instruction with a constant beside the address of a row. Where the next pair's rows lie is asked for before this
// one's copies and not looked at before they are under way: a warp waits where it first uses what it loads. Every
// thread arrives once at the barrier of a piece, which is that of its first panel; who reads it publishes it to the
// products.
// Internal to cuda/attention/.

#include "cuda/attention/absorbed_wide_tile.cuh"

namespace fathom::cuda::absorbed {

// One of the four warps.
template <RowSource kSource>
class RowPairs {
 public:
  __device__ RowPairs(const WideParams& p, uint32_t shared)
      : p_(p),
        shared_(shared),
        first_row_(static_cast<int>(threadIdx.x) % 128 / kLanesOfRow),
        to_(shared + WideShared::kTiles + panel_offset(first_row_, threadIdx.x % kLanesOfRow)) {}

  // Before the first pair of a part.
  __device__ __forceinline__ void begin(const WidePart& part) { ask(part, part.begin_row); }

  // The pairs of a part one behind the other.
  __device__ __forceinline__ void load_pair(const WidePart& part, int row) {
    const char* from[2][kRowsOfLane];
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < kRowsOfLane; ++i)
        from[tile][i] =
            p_.absorbed.cache.data +
            int64_t{asked_[tile][i].kv_row(p_, row_at(row, tile, i))} * (kDim * sizeof(Bf16)) +
            threadIdx.x % kLanesOfRow * 16;
    }
    ask(part, row + kPair);
    const bool has_odd = row + kWideTile < part.end_row;
    // In the order in which the warpgroups are done with what lies there.
    const SeenRows* seen = nullptr;
    if constexpr (kSource == RowSource::kSharedRows)
      seen = p_.seen + part.seq * p_.seen_stride + row / kWideTile;
    load<0, kRopePiece>(from[0], seen);
    if (has_odd) load<1, kRopePiece>(from[1], seen + 1);
    load<0, kLeftPiece>(from[0]);
    if (has_odd) load<1, kRightPiece>(from[1]);
    load<0, kRightPiece>(from[0]);
    if (has_odd) load<1, kLeftPiece>(from[1]);
    turns_[0] ^= 1;
    if (has_odd) turns_[1] ^= 1;
  }

 private:
  static constexpr int kLanesOfRow = 8, kRowsAtOnce = 128 / kLanesOfRow;
  static constexpr int kRowsOfLane = kWideTile / kRowsAtOnce;

  // The lane's row i of a tile of the pair that begins with `row`.
  __device__ __forceinline__ int row_at(int row, int tile, int i) const {
    return row + tile * kWideTile + i * kRowsAtOnce + first_row_;
  }
  // Asks where the rows of a pair lie.
  __device__ __forceinline__ void ask(const WidePart& part, int row) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < kRowsOfLane; ++i)
        asked_[tile][i] = AskedRow::of(p_, part.seq, row_at(row, tile, i), part.end_row);
    }
  }

  template <int kTile, int kPiece>
  __device__ __forceinline__ void load(const char* const (&from)[kRowsOfLane],
                                       const SeenRows* seen = nullptr) const {
    constexpr int kFirst = kPiece == kRopePiece    ? kRopePanel
                           : kPiece == kRightPiece ? kHalfPanels
                                                   : 0;
    constexpr int kEnd = kPiece == kRopePiece ? kPanels : kFirst + kHalfPanels;
    barrier_wait(WideShared::empty(shared_, kTile, kPiece), turns_[kTile] ^ 1);
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
#pragma unroll
      for (int panel = kFirst; panel < kEnd; ++panel)
        copy_async_16(
            to_ + (kTile * kPanels + panel) * kPanelBytes + i * kRowsAtOnce * kPanelRowBytes,
            from[i] + panel * kPanelRowBytes, true);
    }
    if (kSource == RowSource::kSharedRows && kPiece == kRopePiece && threadIdx.x % 128 < 2)
      copy_async_16(shared_ + WideShared::kSeen + kTile * sizeof(SeenRows) + threadIdx.x % 128 * 16,
                    reinterpret_cast<const char*>(seen) + threadIdx.x % 128 * 16, true);
    barrier_arrive_after_copies(WideShared::full(shared_, kTile, kFirst));
  }

  const WideParams& p_;
  const uint32_t shared_;
  const int first_row_;
  const uint32_t to_;
  AskedRow asked_[2][kRowsOfLane];  // of the next pair
  uint32_t turns_[2] = {0, 0};
};

}  // namespace fathom::cuda::absorbed
