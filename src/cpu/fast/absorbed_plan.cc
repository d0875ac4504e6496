#include "cpu/fast/absorbed_plan.h"

#include <algorithm>

#include "base/check.h"
#include "cpu/stream.h"

namespace fathom::cpu {
namespace {

int64_t num_head_groups(int64_t heads) { return (heads + kUnitHeads - 1) / kUnitHeads; }

int64_t chunk_rows_for(int64_t num_rows) {
  constexpr int64_t kRows = AbsorbedPlan::kRowsOfChunk;
  return ((num_rows - 1) / (kRows * AbsorbedPlan::kChunks) + 1) * kRows;
}

}  // namespace

int64_t AbsorbedPlan::max_units(const ops::MlaPlanShape& shape) {
  return shape.tokens * num_head_groups(shape.heads);
}

AbsorbedPlan AbsorbedPlan::at(void* memory, const ops::MlaPlanShape& shape) {
  ScratchArena arena(memory);
  AbsorbedPlan plan;
  plan.header_ = arena.take<Header>(1);
  plan.units_ = arena.take<AbsorbedUnit>(max_units(shape));
  return plan;
}

int64_t AbsorbedPlan::bytes(const ops::MlaPlanShape& shape) {
  ScratchArena arena;
  arena.take<Header>(1);
  arena.take<AbsorbedUnit>(max_units(shape));
  return arena.bytes();
}

void AbsorbedPlan::build(const ops::MlaPlanArgs& lengths) {
  *header_ = {};
  for (int32_t seq = 0; seq < lengths.kv_len.dim(0); ++seq) {
    const int32_t begin = *lengths.query_start.row<int32_t>(seq);
    const int32_t end = *lengths.query_start.row<int32_t>(seq + 1);
    const int32_t kv_len = *lengths.kv_len.row<int32_t>(seq);
    FATHOM_CHECK(begin >= 0 && begin <= end && end <= lengths.tokens,
                 "query tokens [" << begin << ", " << end << ") of " << lengths.tokens);
    FATHOM_CHECK(kv_len == 0 || kv_len >= end - begin,
                 "kv_len[" << seq << "] is " << kv_len << " with " << end - begin << " queries");
    FATHOM_CHECK(kv_len <= lengths.max_rows, "kv_len[" << seq << "] is " << kv_len
                                                       << ", its block table has room for "
                                                       << lengths.max_rows);
    for (int32_t token = begin; token < end; ++token) add_token(lengths, seq, token);
  }
}

void AbsorbedPlan::add_token(const ops::MlaPlanArgs& lengths, int32_t seq, int32_t token) {
  const int32_t begin = *lengths.query_start.row<int32_t>(seq);
  const int32_t end = *lengths.query_start.row<int32_t>(seq + 1);
  const int32_t kv_len = *lengths.kv_len.row<int32_t>(seq);
  const bool is_causal = lengths.tree_mask.is_null() || end - begin > ops::kMaxTreeTokens;
  AbsorbedUnit unit{.seq = seq, .token = token};
  if (kv_len > 0) {
    unit.visible = VisibleRows(kv_len - (end - begin), token - begin,
                               is_causal ? nullptr : lengths.tree_mask.row<uint64_t>(token));
    unit.num_rows = unit.visible.count(kv_len);
  }
  add_units(unit, lengths.heads);
}

void AbsorbedPlan::build(const tensor::Tensor& counts, int64_t heads, int64_t max_rows) {
  *header_ = {};
  for (int32_t token = 0; token < counts.dim(0); ++token) {
    const int32_t count = *counts.row<int32_t>(token);
    FATHOM_CHECK(count >= 0 && count <= max_rows,
                 "counts[" << token << "] is " << count << " of " << max_rows);
    add_units({.token = token, .num_rows = count}, heads);
  }
}

void AbsorbedPlan::add_units(AbsorbedUnit unit, int64_t heads) {
  if (unit.num_rows > 0) {
    unit.chunk_rows = chunk_rows_for(unit.num_rows);
    unit.num_chunks = static_cast<int32_t>((unit.num_rows + unit.chunk_rows - 1) / unit.chunk_rows);
  }
  for (int64_t head = 0; head < heads; head += kUnitHeads) {
    unit.head_begin = static_cast<int32_t>(head);
    unit.head_end = static_cast<int32_t>(std::min(head + kUnitHeads, heads));
    unit.first_chunk = static_cast<int32_t>(header_->num_chunks);
    header_->num_chunks += unit.num_chunks;
    header_->num_rows += unit.num_rows;
    units_[header_->num_units++] = unit;
  }
}

const AbsorbedUnit& AbsorbedPlan::unit_of_chunk(int64_t chunk) const {
  int64_t u = 0;
  while (chunk >= units_[u].first_chunk + units_[u].num_chunks) ++u;
  return units_[u];
}

}  // namespace fathom::cpu
