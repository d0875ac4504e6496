#pragma once
// SimStorage: the KV groups of a SimRunner, written and read through the real block tables. A target's row holds
// (token, position); the drafter's group, if there is one, comes last and holds (token, next token), as a drafter
// computes a row from the hidden state of its token and from the token that follows.
//
//   SimStorage storage({.num_target_groups = 1, .has_drafter = true, .num_blocks = 64, .block_tokens = 16});
//   storage.write(table, /*row_idx=*/7, {.token = 5, .position = 7});
//   storage.complete(table, /*row_idx=*/7, /*next_token=*/9);
//   uint64_t hash = storage.hash_prefix(table, /*num_rows=*/8, /*next_token=*/9);
//
// Aborts when a row has no block and when groups disagree. Plain data of the runner's thread.

#include <cstdint>
#include <span>
#include <vector>

namespace fathom::runner {

struct SimStorageConfig {
  int num_target_groups = 1;
  bool has_drafter = false;
  int num_blocks = 0, block_tokens = 64;
};

// The block table of one slot.
struct SimTable {
  int32_t slot = -1;
  std::vector<std::vector<int32_t>> groups{};  // block ids per KV group
};

class SimStorage {
 public:
  struct Row {
    int32_t token = -1, position = -1;
    bool operator==(const Row&) const = default;
  };

  explicit SimStorage(const SimStorageConfig& config);

  int num_groups() const { return config_.num_target_groups + (config_.has_drafter ? 1 : 0); }
  // A row of every target group.
  void write(const SimTable& table, int32_t row_idx, Row row);
  // Brings a row of every target group to another place.
  void move(const SimTable& table, int32_t from, int32_t to);
  // The drafter's row: the token that the target has there, and the one after it. Nothing without a drafter.
  void complete(const SimTable& table, int32_t row_idx, int32_t next_token);
  // The same in every target group, or it aborts.
  Row read(const SimTable& table, int32_t row_idx) const;
  // Hash of the first num_rows rows. Aborts when a row of the drafter is not complete or not that of its
  // sequence, whose next token follows these rows.
  uint64_t hash_prefix(const SimTable& table, int32_t num_rows, int32_t next_token) const;
  // Aborts when the first num_rows rows are not those of `tokens`. REQUIRES: num_rows < tokens.size().
  void check_prefix(const SimTable& table, int32_t num_rows, std::span<const int32_t> tokens) const;

 private:
  struct DraftRow {
    int32_t token = -1, next_token = -1;
    bool operator==(const DraftRow&) const = default;
  };
  // Where a row of a group lies.
  size_t index_of(const SimTable& table, int group, int32_t row_idx) const;
  void check_draft_row(const SimTable& table, int32_t row_idx, DraftRow want) const;

  SimStorageConfig config_;
  std::vector<std::vector<Row>> target_;  // [group][block * block_tokens]
  std::vector<DraftRow> drafter_;         // [block * block_tokens]
};

}  // namespace fathom::runner
