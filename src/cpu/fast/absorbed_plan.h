#pragma once
// AbsorbedPlan: the units of work of absorbed attention and how the rows of each are cut, which follows from
// the lengths of the sequences alone. Made for one call in its scratch, or once per step (ops::mla_plan).
//
//   AbsorbedPlan plan = AbsorbedPlan::at(memory, shape);    // AbsorbedPlan::bytes(shape) of it
//   plan.build(lengths);
//
// A view of memory that somebody else owns. The units point into the masks that they were built from.

#include <cstdint>

#include "cpu/fast/visible_rows.h"
#include "ops/mla.h"

namespace fathom::cpu {

inline constexpr int64_t kUnitHeads = 16;

// A token with up to kUnitHeads heads. Its rows are those that it sees, numbered without gaps: so what a token of a
// tree adds up, and in which order, is what a decode behind the same tokens does, bit for bit.
struct AbsorbedUnit {
  int32_t seq = 0;
  int32_t token = 0;
  int32_t head_begin = 0, head_end = 0;
  int32_t first_chunk = 0, num_chunks = 0;  // chunks are numbered over all units
  int64_t chunk_rows = 0;
  int64_t num_rows = 0;  // 0 = padding
  VisibleRows visible{};
};

class AbsorbedPlan {
 public:
  // From kRowsOfChunk * kChunks rows on a chunk is a multiple of kRowsOfChunk: the states of the chunks of one
  // unit, which are kept when chunks are spread over threads, must not grow with the context.
  static constexpr int64_t kRowsOfChunk = 256, kChunks = 32;

  AbsorbedPlan() = default;
  static AbsorbedPlan at(void* memory, const ops::MlaPlanShape& shape);
  static int64_t bytes(const ops::MlaPlanShape& shape);
  static int64_t max_units(const ops::MlaPlanShape& shape);

  // Aborts where a length does not fit (the rules of ops/mla.h).
  void build(const ops::MlaPlanArgs& lengths);
  // Of tokens with lists of rows, counts[t] of token t: row i of a unit is the i-th of its list.
  void build(const tensor::Tensor& counts, int64_t heads, int64_t max_rows);

  int64_t num_units() const { return header_->num_units; }
  int64_t num_chunks() const { return header_->num_chunks; }
  // Rows that all units together see.
  int64_t num_rows() const { return header_->num_rows; }
  const AbsorbedUnit& unit(int64_t u) const { return units_[u]; }
  // The unit of a chunk.
  const AbsorbedUnit& unit_of_chunk(int64_t chunk) const;

 private:
  struct Header {
    int64_t num_units = 0, num_chunks = 0, num_rows = 0;
  };

  void add_token(const ops::MlaPlanArgs& lengths, int32_t seq, int32_t token);
  // All heads of a token. REQUIRES: its num_rows.
  void add_units(AbsorbedUnit unit, int64_t heads);

  Header* header_ = nullptr;
  AbsorbedUnit* units_ = nullptr;
};

}  // namespace fathom::cpu
