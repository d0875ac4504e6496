#include "runner/sim/storage.h"

#include "base/check.h"
#include "runner/sim/hash.h"

namespace fathom::runner {

SimStorage::SimStorage(const SimStorageConfig& config) : config_(config) {
  const auto num_rows =
      static_cast<size_t>(config.num_blocks) * static_cast<size_t>(config.block_tokens);
  target_.assign(static_cast<size_t>(config.num_target_groups), std::vector<Row>(num_rows));
  if (config.has_drafter) drafter_.resize(num_rows);
}

size_t SimStorage::index_of(const SimTable& table, int group, int32_t row_idx) const {
  const std::vector<int32_t>& blocks = table.groups[static_cast<size_t>(group)];
  const auto block_tokens = static_cast<size_t>(config_.block_tokens);
  const size_t block_idx = static_cast<size_t>(row_idx) / block_tokens;
  FATHOM_CHECK(block_idx < blocks.size(), "row " << row_idx << " of slot " << table.slot
                                                 << ", which has " << blocks.size() << " blocks");
  return static_cast<size_t>(blocks[block_idx]) * block_tokens +
         static_cast<size_t>(row_idx) % block_tokens;
}

void SimStorage::write(const SimTable& table, int32_t row_idx, Row row) {
  for (int group = 0; group < config_.num_target_groups; ++group)
    target_[static_cast<size_t>(group)][index_of(table, group, row_idx)] = row;
}

void SimStorage::move(const SimTable& table, int32_t from, int32_t to) {
  for (int group = 0; group < config_.num_target_groups; ++group) {
    std::vector<Row>& rows = target_[static_cast<size_t>(group)];
    rows[index_of(table, group, to)] = rows[index_of(table, group, from)];
  }
}

void SimStorage::complete(const SimTable& table, int32_t row_idx, int32_t next_token) {
  if (!config_.has_drafter) return;
  drafter_[index_of(table, config_.num_target_groups, row_idx)] = {
      .token = read(table, row_idx).token, .next_token = next_token};
}

SimStorage::Row SimStorage::read(const SimTable& table, int32_t row_idx) const {
  const Row row = target_[0][index_of(table, 0, row_idx)];
  for (int group = 1; group < config_.num_target_groups; ++group)
    FATHOM_CHECK(target_[static_cast<size_t>(group)][index_of(table, group, row_idx)] == row,
                 "row " << row_idx << " differs between KV groups 0 and " << group);
  return row;
}

void SimStorage::check_draft_row(const SimTable& table, int32_t row_idx, DraftRow want) const {
  if (!config_.has_drafter) return;
  const DraftRow& row = drafter_[index_of(table, config_.num_target_groups, row_idx)];
  FATHOM_CHECK(row == want, "the drafter's row " << row_idx << " of slot " << table.slot
                                                 << " holds token " << row.token << " before "
                                                 << row.next_token << ", not " << want.token
                                                 << " before " << want.next_token);
}

uint64_t SimStorage::hash_prefix(const SimTable& table, int32_t num_rows,
                                 int32_t next_token) const {
  uint64_t hash = kSimHashStart;
  Row row;
  for (int32_t row_idx = 0; row_idx < num_rows; ++row_idx) {
    const int32_t token_before = row.token;
    row = read(table, row_idx);
    if (row_idx > 0) check_draft_row(table, row_idx - 1, {token_before, row.token});
    hash = sim_extend(hash, row.token, row.position);
  }
  if (num_rows > 0) check_draft_row(table, num_rows - 1, {row.token, next_token});
  return hash;
}

void SimStorage::check_prefix(const SimTable& table, int32_t num_rows,
                              std::span<const int32_t> tokens) const {
  for (int32_t row_idx = 0; row_idx < num_rows; ++row_idx) {
    const Row row = read(table, row_idx);
    const int32_t token = tokens[static_cast<size_t>(row_idx)];
    FATHOM_CHECK(row.token == token && row.position == row_idx,
                 "cached row " << row_idx << " of slot " << table.slot << " holds token "
                               << row.token << " at position " << row.position << ", not "
                               << token);
    check_draft_row(table, row_idx, {token, tokens[static_cast<size_t>(row_idx) + 1]});
  }
}

}  // namespace fathom::runner
