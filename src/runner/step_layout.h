#pragma once
// StepLayout: a batch in the order in which the model wants it (sequences with absorbed attention first)
// and the rows of logits it needs. Computed on the host from the batch and the slots' mirrors alone.
//
//   StepLayout layout = lay_out_step(batch, slots, form_of, limits);
//   layout.order[0]     // index in Batch::slices of the first sequence
//
// Plain data.

#include <functional>
#include <vector>

#include "core/batch.h"
#include "model/model.h"
#include "runner/runner.h"
#include "runner/slot_table.h"
#include "sampling/sampler.h"

namespace fathom::runner {

// A row of logits: of which query token, and for what.
struct OutputRow {
  sampling::SampleRow sample{};
  int32_t token_idx = 0;  // query token of the batch, in layout order
  int32_t slice_idx = 0;  // index in Batch::slices
  int32_t draft = -1;     // whose row it is in a verify slice; -1 = none's
};

struct StepLayout {
  // Per sequence, in layout order.
  std::vector<int32_t> order;        // index in Batch::slices; padding has none
  std::vector<int32_t> slice_slot;   // -1 = padding
  std::vector<int32_t> query_start;  // one more: prefix sums of query tokens
  std::vector<int32_t> commit_row;   // row whose token the slot keeps, -1 = none
  // The same, where there is a drafter (ops/verify.h).
  std::vector<int32_t> num_wanted;  // 0 = tokens are given
  std::vector<int32_t> first_row;
  std::vector<int32_t> num_asked;  // drafts
  // Per query token.
  std::vector<int32_t> given_token;  // -1 = the slot's last token
  std::vector<int32_t> relative;
  std::vector<uint64_t> tree_mask;  // empty = every slice is causal
  // With a drafter: the token after a given one; -1 = what the slot samples.
  std::vector<int32_t> next_given;

  int64_t num_absorbed_sequences = 0, num_absorbed_tokens = 0;
  int64_t table_blocks = 0;  // of a block table, which hold all rows of each sequence
  std::vector<model::ExpandedSequence> expanded;
  std::vector<OutputRow> rows;
  int num_levels = 0;  // of drafting; of several lanes the most that any of them asks for
  // core::StepShape's; empty = one lane.
  std::vector<int32_t> lane_tokens, lane_slices;
  int32_t going_on_tokens = 0;

  int64_t num_slices() const { return static_cast<int64_t>(slice_slot.size()); }
  int64_t num_tokens() const { return static_cast<int64_t>(given_token.size()); }
};

// Model::attention_form, for the slices whose form is free: those that sample after each of at most 64 tokens
// are absorbed like decodes.
using AttentionFormOf = std::function<model::AttentionForm(int64_t num_tokens, int64_t kv_begin)>;

// REQUIRES: every slice's slot is active and has blocks for its tokens (checked). With a drafter the lengths of slots
// that go on are known to the device alone; those of a prompt's slices are checked.
// table_blocks counts the blocks that the slots have, and with a drafter those that inert drafts may reach into: the
// drafts behind a prompt are absorbed though it is not.
StepLayout lay_out_step(const core::Batch& batch, const SlotTable& slots, int block_tokens,
                        const AttentionFormOf& form_of, const DrafterInfo& drafter = {});

// Where the rows of each lane begin among those of all, where a lane has so many for each one counted; and at the end
// how many there are: i64[lanes + 1]. Empty = there is one lane.
std::vector<int64_t> lane_starts(const std::vector<int32_t>& counts, int rows_each = 1);

// What a step that may be captured has to be padded to at least: every sequence goes on from its slot, absorbed, with a
// row of logits for each query token, so that all of the step's shape is numbers of sequences and tokens. Of several
// lanes all are padded to the longest one.
struct CapturedStep {
  int64_t num_slices = 0;  // of each lane
  // Of each slice. Without a drafter one; with one as many as the longest has, to which the others are filled up. 0 =
  // the step may not be captured.
  int num_tokens = 0;
};
CapturedStep captured_step(const StepLayout& layout, const DrafterInfo& drafter);

struct PaddedShape {
  int64_t num_slices = 0;
  int num_tokens = 1;      // of a slice
  int num_lanes = 1;       // which are all padded so
  int64_t num_blocks = 0;  // StepLayout::table_blocks
  const DrafterInfo& drafter;
};
// Fills such a step up with inert query tokens and inert sequences. REQUIRES: it may be captured, no more sequences
// and no longer ones. An empty layout is such a step.
void pad_step(StepLayout& layout, const PaddedShape& shape);

}  // namespace fathom::runner
