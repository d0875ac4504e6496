#include "runner/block_ledger.h"

#include <algorithm>

#include "base/check.h"

namespace fathom::runner {

BlockLedger::BlockLedger(const BlockLedgerConfig& config) : config_(config) {
  const auto num_groups = static_cast<size_t>(config.num_kv_groups);
  blocks_.assign(num_groups, std::vector<Block>(static_cast<size_t>(config.num_blocks)));
  slots_.resize(static_cast<size_t>(config.max_slots));
  for (Slot& slot : slots_) slot.tables.resize(num_groups);
}

BlockLedger::Block& BlockLedger::block_at(size_t kv_group, int32_t block_id) {
  std::vector<Block>& group = blocks_.at(kv_group);
  FATHOM_CHECK(block_id >= 0 && static_cast<size_t>(block_id) < group.size(), "block " << block_id);
  return group[static_cast<size_t>(block_id)];
}

void BlockLedger::submit(const core::Batch& batch) {
  for (const core::SequenceSlice& slice : batch.slices)
    slot_at(slice.slot).last_slice_step = batch.step_id;
  // A slot that is released without a slice in this batch writes and reads nothing any more, so another slot
  // may get its blocks in the same batch; the others keep theirs until after the slices.
  const auto has_slice = [&](int32_t slot) {
    return slot_at(slot).last_slice_step == batch.step_id;
  };
  for (const int32_t slot : batch.releases)
    if (!has_slice(slot)) release(slot);
  for (const core::SlotAdmission& admission : batch.admissions) admit(admission);
  for (const core::BlockAppend& blocks : batch.block_appends) append(blocks);
  in_flight_.emplace_back();
  for (const core::SequenceSlice& slice : batch.slices) write(slice);
  for (const int32_t slot : batch.releases)
    if (has_slice(slot)) release(slot);
}

void BlockLedger::step_done(int64_t step_id, std::span<const int32_t> lengths) {
  last_done_step_ = step_id;
  const std::vector<Advance> advances = std::move(in_flight_.front());
  in_flight_.pop_front();
  FATHOM_CHECK(lengths.size() == advances.size(),
               lengths.size() << " lengths of " << advances.size() << " slices");
  for (size_t i = 0; i < advances.size(); ++i) {
    Slot& slot = slot_at(advances[i].slot);
    if (slot.num_admissions != advances[i].admission) continue;
    slot.min_advance -= advances[i].min;
    slot.max_advance -= advances[i].max;
    slot.length = lengths[i];
  }
}

int32_t BlockLedger::min_length(const Slot& slot) const {
  return std::min(slot.max_rows, slot.length + slot.min_advance);
}

int32_t BlockLedger::max_length(const Slot& slot) const {
  return std::min(slot.max_rows, slot.length + slot.max_advance);
}

void BlockLedger::admit(const core::SlotAdmission& admission) {
  Slot& slot = slot_at(admission.slot);
  FATHOM_CHECK(
      admission.num_cached_tokens % config_.block_tokens == 0,
      admission.num_cached_tokens << " cached tokens, blocks hold " << config_.block_tokens);
  ++slot.num_admissions;
  slot.length = admission.num_cached_tokens;
  slot.max_rows = admission.max_rows;
  slot.num_shared = admission.num_cached_tokens / config_.block_tokens;
}

void BlockLedger::append(const core::BlockAppend& append) {
  const auto kv_group = static_cast<size_t>(append.kv_group);
  std::vector<int32_t>& table = slot_at(append.slot).tables.at(kv_group);
  for (const int32_t block_id : append.block_ids) {
    Block& block = block_at(kv_group, block_id);
    const auto index = static_cast<int32_t>(table.size());
    if (index < slot_at(append.slot).num_shared) {
      share(block, block_id, append.slot);
    } else {
      claim(block, block_id, append.slot);
      block.index_in_owner = index;
    }
    table.push_back(block_id);
  }
}

void BlockLedger::share(Block& block, int32_t block_id, int32_t slot) {
  if (block.owner >= 0) {
    // Slices of the step that fills a block do not let others of the same step see it.
    const int32_t rows_to_fill = (block.index_in_owner + 1) * config_.block_tokens;
    FATHOM_CHECK(min_length(slot_at(block.owner)) >= rows_to_fill,
                 "block " << block_id << " is shared with slot " << slot << ", slot " << block.owner
                          << " still writes it");
  }
  ++block.num_readers;
}

void BlockLedger::claim(Block& block, int32_t block_id, int32_t slot) {
  FATHOM_CHECK(block.owner == -1, "block " << block_id << " is given to slot " << slot << ", slot "
                                           << block.owner << " has it");
  FATHOM_CHECK(block.num_readers == 0, "block " << block_id << " is given to slot " << slot << ", "
                                                << block.num_readers << " slots read it");
  FATHOM_CHECK(block.last_writer_step <= last_done_step_,
               "block " << block_id << " is given to slot " << slot << ", step "
                        << block.last_writer_step << " may still write it");
  FATHOM_CHECK(block.last_reader_step <= last_done_step_,
               "block " << block_id << " is given to slot " << slot << ", step "
                        << block.last_reader_step << " may still read it");
  block.owner = slot;
}

// A row of given tokens that has no block is found when the step runs; of drafts only some are accepted.
void BlockLedger::write(const core::SequenceSlice& slice) {
  Slot& slot = slot_at(slice.slot);
  const bool is_given = slice.kind() == core::SliceKind::kPrefill;
  const int32_t begin = min_length(slot);
  const Advance advance{.slot = slice.slot,
                        .admission = slot.num_admissions,
                        .min = is_given ? slice.num_tokens : 1,
                        .max = slice.num_tokens};
  slot.min_advance += advance.min;
  slot.max_advance += advance.max;
  in_flight_.back().push_back(advance);
  const int32_t end = max_length(slot);
  for (size_t kv_group = 0; kv_group < blocks_.size(); ++kv_group) {
    const std::vector<int32_t>& table = slot.tables[kv_group];
    const auto end_block =
        static_cast<size_t>((end + config_.block_tokens - 1) / config_.block_tokens);
    FATHOM_CHECK(is_given || end_block <= table.size(),
                 "slot " << slice.slot << " may grow to " << end << " rows in " << table.size()
                         << " blocks of " << config_.block_tokens);
    for (auto i = static_cast<size_t>(begin / config_.block_tokens);
         i < std::min(end_block, table.size()); ++i) {
      const Block& block = block_at(kv_group, table[i]);
      FATHOM_CHECK(block.owner == slice.slot && block.num_readers == 0,
                   "slot " << slice.slot << " writes block " << table[i] << " of slot "
                           << block.owner << ", " << block.num_readers << " slots read it");
    }
  }
}

void BlockLedger::release(int32_t slot_idx) {
  Slot& slot = slot_at(slot_idx);
  for (size_t kv_group = 0; kv_group < blocks_.size(); ++kv_group) {
    for (size_t i = 0; i < slot.tables[kv_group].size(); ++i) {
      Block& block = block_at(kv_group, slot.tables[kv_group][i]);
      if (static_cast<int32_t>(i) < slot.num_shared) {
        --block.num_readers;
        block.last_reader_step = std::max(block.last_reader_step, slot.last_slice_step);
      } else {
        block.owner = -1;
        block.last_writer_step = slot.last_slice_step;
      }
    }
    slot.tables[kv_group].clear();
  }
  slot.length = slot.min_advance = slot.max_advance = slot.num_shared = 0;
  ++slot.num_admissions;  // its slices in flight say nothing about whoever comes next
}

}  // namespace fathom::runner
