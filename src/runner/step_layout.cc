#include "runner/step_layout.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "ops/mla.h"

namespace fathom::runner {
namespace {

using core::Outputs;
using core::SequenceSlice;
using model::AttentionForm;

using ops::kMaxTreeTokens;

void check_given(const SequenceSlice& slice, const DrafterInfo& drafter) {
  const auto size = static_cast<size_t>(slice.num_tokens);
  FATHOM_CHECK(slice.relative_positions.empty() || slice.relative_positions.size() == size,
               slice.relative_positions.size() << " positions for " << size << " query tokens");
  FATHOM_CHECK(slice.tree_mask.empty() ||
                   (slice.tree_mask.size() == size && slice.num_tokens <= kMaxTreeTokens),
               slice.tree_mask.size()
                   << " masks for " << size << " query tokens, at most " << kMaxTreeTokens);
  FATHOM_CHECK(
      (slice.tree_mask.empty() && slice.relative_positions.empty()) || drafter.num_steps == 0,
      "a tree of given tokens with a drafter, which has trees of its own");
}

void check_drafts(const SequenceSlice& slice, const DrafterInfo& drafter) {
  FATHOM_CHECK(slice.num_drafts_to_propose <= drafter.max_drafts(),
               slice.num_drafts_to_propose
                   << " drafts of slot " << slice.slot << " wanted, "
                   << (drafter.num_steps == 0 ? "there is no drafter" : "more than the drafter's"));
  FATHOM_CHECK(slice.kind() != core::SliceKind::kVerify ||
                   (slice.num_tokens <= 1 + drafter.max_drafts() && slice.outputs == Outputs::kAll),
               "a slice of slot " << slice.slot << " verifies " << slice.num_tokens - 1
                                  << " drafts, at most " << drafter.max_drafts()
                                  << ", all with outputs");
}

void check_slice(const SequenceSlice& slice, const SlotState& state, int block_tokens,
                 const DrafterInfo& drafter) {
  const auto size = static_cast<size_t>(slice.num_tokens);
  FATHOM_CHECK(state.active, "slice of slot " << slice.slot << ", which is free");
  const bool may_verify = drafter.num_steps > 0;
  FATHOM_CHECK(slice.num_tokens >= 1 && (slice.tokens.empty() ? slice.num_tokens == 1 || may_verify
                                                              : slice.tokens.size() == size),
               slice.num_tokens << " query tokens, " << slice.tokens.size() << " given");
  check_given(slice, drafter);
  check_drafts(slice, drafter);
  const bool goes_on = slice.tokens.empty();
  FATHOM_CHECK(drafter.num_steps == 0 || goes_on || !state.goes_on,
               "slot " << slice.slot << " gets given tokens after it went on by itself");
  FATHOM_CHECK((drafter.num_steps > 0 && goes_on) ||
                   state.length + slice.num_tokens <= state.num_blocks * block_tokens,
               "slot " << slice.slot << " grows to " << state.length + slice.num_tokens
                       << " rows in " << state.num_blocks << " blocks");
}

int32_t relative_of(const SequenceSlice& slice, int token) {
  return slice.relative_positions.empty() ? token
                                          : slice.relative_positions[static_cast<size_t>(token)];
}

// A masked batch tells every query token's view in bits, causal ones included. Of a slice that is too long
// for that no mask is read: attention takes it as causal.
uint64_t mask_of(const SequenceSlice& slice, int token) {
  if (!slice.tree_mask.empty()) return slice.tree_mask[static_cast<size_t>(token)];
  return token < kMaxTreeTokens ? ~uint64_t{0} >> (kMaxTreeTokens - 1 - token) : 0;
}

class Builder {
 public:
  Builder(const core::Batch& batch, const SlotTable& slots, const DrafterInfo& drafter)
      : batch_(batch), slots_(slots), has_drafter_(drafter.num_steps > 0) {
    masked_ =
        std::any_of(batch.slices.begin(), batch.slices.end(), [&](const SequenceSlice& slice) {
          return !slice.tree_mask.empty() ||
                 (slice.kind() == core::SliceKind::kVerify && drafter.top_k > 1);
        });
    layout_.query_start.push_back(0);
  }

  bool is_absorbed(const SequenceSlice& slice, const AttentionFormOf& form_of) const {
    // Verified tokens are computed as decodes are, so that a verified token is the one a decode would give.
    const bool is_verified = slice.tokens.empty() ||
                             (slice.outputs == Outputs::kAll && slice.num_tokens <= kMaxTreeTokens);
    return form_of(is_verified ? 1 : slice.num_tokens, slots_[slice.slot].length) ==
           AttentionForm::kAbsorbed;
  }

  void add(int32_t slice_idx, bool absorbed) {
    const SequenceSlice& slice = batch_.slices[static_cast<size_t>(slice_idx)];
    const int32_t begin = layout_.query_start.back();
    if (absorbed) {
      ++layout_.num_absorbed_sequences;
      layout_.num_absorbed_tokens += slice.num_tokens;
    } else {
      layout_.expanded.push_back({.token_begin = begin,
                                  .num_tokens = slice.num_tokens,
                                  .kv_begin = slots_[slice.slot].length,
                                  .sequence_idx = layout_.num_slices(),
                                  .has_tree_mask = !slice.tree_mask.empty()});
    }
    layout_.order.push_back(slice_idx);
    layout_.table_blocks = std::max<int64_t>(layout_.table_blocks, slots_[slice.slot].num_blocks);
    layout_.slice_slot.push_back(slice.slot);
    layout_.commit_row.push_back(-1);
    const auto first_row = static_cast<int32_t>(layout_.rows.size());
    for (int i = 0; i < slice.num_tokens; ++i) {
      layout_.given_token.push_back(slice.tokens.empty() ? -1
                                                         : slice.tokens[static_cast<size_t>(i)]);
      layout_.relative.push_back(relative_of(slice, i));
      if (masked_) layout_.tree_mask.push_back(mask_of(slice, i));
      add_rows(slice_idx, i, begin + i);
    }
    layout_.query_start.push_back(begin + slice.num_tokens);
    if (has_drafter_) add_drafts(slice, first_row);
  }

  StepLayout take() { return std::move(layout_); }

 private:
  void add_drafts(const SequenceSlice& slice, int32_t first_row) {
    const bool goes_on = slice.tokens.empty();
    layout_.num_wanted.push_back(goes_on ? slice.num_tokens : 0);
    layout_.first_row.push_back(goes_on ? first_row : layout_.commit_row.back());
    layout_.num_asked.push_back(slice.num_drafts_to_propose);
    const SlotState& state = slots_[slice.slot];
    for (int i = 1; i <= slice.num_tokens; ++i) {
      const size_t next = static_cast<size_t>(state.length) + static_cast<size_t>(i);
      const bool is_known = !goes_on && next < state.prompt.size();
      layout_.next_given.push_back(is_known ? state.prompt[next] : -1);
    }
  }

  void add_rows(int32_t slice_idx, int query_idx, int32_t token_idx) {
    const SequenceSlice& slice = batch_.slices[static_cast<size_t>(slice_idx)];
    const SlotState& state = slots_[slice.slot];
    // With a drafter the host knows no lengths of slots that go on, and no depths of drafts: it has lower bounds.
    const bool goes_on = has_drafter_ && slice.tokens.empty();
    const int32_t relative = goes_on ? std::min(query_idx, 1) : relative_of(slice, query_idx);
    const int32_t position = state.length + relative + 1;
    if (!goes_on && state.return_prompt_logprobs && position < state.num_prompt_tokens)
      layout_.rows.push_back({.sample = {.slot = slice.slot,
                                         .position = position,
                                         .forced = state.prompt[static_cast<size_t>(position)]},
                              .token_idx = token_idx,
                              .slice_idx = slice_idx});
    const bool is_last = query_idx + 1 == slice.num_tokens;
    if (slice.outputs == Outputs::kNone || (slice.outputs == Outputs::kLast && !is_last)) return;
    if (is_last) layout_.commit_row.back() = static_cast<int32_t>(layout_.rows.size());
    layout_.rows.push_back(
        {.sample = {.slot = slice.slot, .position = position, .is_bound = goes_on},
         .token_idx = token_idx,
         .slice_idx = slice_idx,
         .draft = goes_on ? query_idx - 1 : -1});
  }

  const core::Batch& batch_;
  const SlotTable& slots_;
  const bool has_drafter_;
  bool masked_ = false;
  StepLayout layout_;
};

}  // namespace

StepLayout lay_out_step(const core::Batch& batch, const SlotTable& slots, int block_tokens,
                        const AttentionFormOf& form_of, const DrafterInfo& drafter) {
  Builder builder(batch, slots, drafter);
  std::vector<int32_t> expanded;
  for (size_t i = 0; i < batch.slices.size(); ++i) {
    const SequenceSlice& slice = batch.slices[i];
    check_slice(slice, slots[slice.slot], block_tokens, drafter);
    if (builder.is_absorbed(slice, form_of)) {
      builder.add(static_cast<int32_t>(i), true);
    } else {
      expanded.push_back(static_cast<int32_t>(i));
    }
  }
  for (int32_t slice_idx : expanded) builder.add(slice_idx, false);
  StepLayout layout = builder.take();
  if (drafter.num_steps > 0 && layout.table_blocks > 0)
    layout.table_blocks = std::min<int64_t>(
        layout.table_blocks + num_blocks_for(1 + drafter.max_drafts(), block_tokens),
        slots.block_tables().dim(1));
  layout.lane_tokens = batch.shape.lane_tokens;
  layout.lane_slices = batch.shape.lane_slices;
  layout.going_on_tokens = batch.shape.going_on_tokens;
  int32_t most = batch.shape.most_drafts;
  for (const int32_t asked : layout.num_asked) most = std::max(most, asked);
  // A chain is as deep as anybody asks; a tree is always drafted whole, or not at all.
  layout.num_levels = most > 0 && drafter.top_k > 1 ? drafter.num_steps : most;
  return layout;
}

std::vector<int64_t> lane_starts(const std::vector<int32_t>& counts, int rows_each) {
  std::vector<int64_t> starts;
  if (counts.empty()) return starts;
  starts.push_back(0);
  for (const int32_t count : counts) starts.push_back(starts.back() + int64_t{count} * rows_each);
  return starts;
}

namespace {

// A tree is verified whole, but for the last tokens of a sequence.
int filled_up(int tokens, const DrafterInfo& drafter) {
  return tokens > 1 && drafter.top_k > 1 ? drafter.num_draft_tokens : tokens;
}

// Of one lane by itself.
int captured_tokens(const StepLayout& layout, const DrafterInfo& drafter) {
  const int64_t slices = layout.num_slices();
  if (!layout.expanded.empty() || layout.rows.size() != layout.given_token.size()) return 0;
  for (const OutputRow& row : layout.rows)
    if (row.sample.forced >= 0) return 0;
  if (drafter.num_steps == 0) {
    const bool is_plain = layout.tree_mask.empty() && layout.num_tokens() == slices;
    return is_plain ? 1 : 0;
  }
  int32_t most = 0;
  for (size_t i = 0; i < layout.num_wanted.size(); ++i) {
    if (layout.num_wanted[i] == 0) return 0;
    most = std::max(most, layout.num_wanted[i]);
  }
  return filled_up(most, drafter);
}

}  // namespace

CapturedStep captured_step(const StepLayout& layout, const DrafterInfo& drafter) {
  if (layout.lane_tokens.empty())
    return {.num_slices = layout.num_slices(), .num_tokens = captured_tokens(layout, drafter)};
  if (layout.going_on_tokens == 0) return {};
  // What the other lanes know too decides; that this lane can is what follows from it.
  FATHOM_CHECK(layout.num_slices() == 0 || captured_tokens(layout, drafter) > 0,
               "a lane cannot be padded in a step whose slices all go on");
  return {.num_slices = *std::max_element(layout.lane_slices.begin(), layout.lane_slices.end()),
          .num_tokens = filled_up(layout.going_on_tokens, drafter)};
}

namespace {

// Appends inert query tokens, with rows of logits that nobody reads.
void add_inert(StepLayout& layout, int first, const PaddedShape& shape) {
  for (int i = first; i < shape.num_tokens; ++i) {
    const bool goes_on = shape.drafter.num_steps > 0;
    layout.rows.push_back({.sample = {.is_bound = goes_on},
                           .token_idx = static_cast<int32_t>(layout.num_tokens()),
                           .slice_idx = -1});
    layout.given_token.push_back(goes_on ? -1 : 0);
    layout.relative.push_back(goes_on ? i : 0);
    if (goes_on) layout.next_given.push_back(-1);
    if (shape.drafter.top_k > 1 && shape.num_tokens > 1) layout.tree_mask.push_back(0);
  }
  layout.query_start.push_back(static_cast<int32_t>(layout.num_tokens()));
}

void add_slice(StepLayout& layout, int32_t slot, const PaddedShape& shape) {
  layout.slice_slot.push_back(slot);
  ++layout.num_absorbed_sequences;
  layout.num_absorbed_tokens += shape.num_tokens;
}

}  // namespace

void pad_step(StepLayout& layout, const PaddedShape& shape) {
  const StepLayout step = std::move(layout);
  layout = {};
  layout.order = step.order;
  layout.num_levels = step.num_levels;
  layout.table_blocks = shape.num_blocks;
  if (shape.num_lanes > 1) {
    const auto lanes = static_cast<size_t>(shape.num_lanes);
    layout.lane_slices.assign(lanes, static_cast<int32_t>(shape.num_slices));
    layout.lane_tokens.assign(lanes, static_cast<int32_t>(shape.num_slices * shape.num_tokens));
  }
  layout.query_start.push_back(0);
  const bool has_drafter = shape.drafter.num_steps > 0;
  const auto slices = static_cast<size_t>(step.num_slices());
  for (size_t s = 0; s < static_cast<size_t>(shape.num_slices); ++s) {
    const bool is_real = s < slices;
    const auto first_row = static_cast<int32_t>(layout.rows.size());
    const int begin = is_real ? step.query_start[s] : 0,
              end = is_real ? step.query_start[s + 1] : 0;
    for (int token = begin; token < end; ++token) {
      const auto t = static_cast<size_t>(token);
      layout.rows.push_back(step.rows[t]);
      layout.rows.back().token_idx = static_cast<int32_t>(layout.num_tokens());
      layout.given_token.push_back(step.given_token[t]);
      layout.relative.push_back(step.relative[t]);
      if (has_drafter) layout.next_given.push_back(step.next_given[t]);
      if (shape.drafter.top_k > 1 && shape.num_tokens > 1) layout.tree_mask.push_back(0);
    }
    add_slice(layout, is_real ? step.slice_slot[s] : -1, shape);
    add_inert(layout, end - begin, shape);
    layout.commit_row.push_back(is_real && !has_drafter ? first_row : -1);
    if (!has_drafter) continue;
    layout.num_wanted.push_back(is_real ? step.num_wanted[s] : shape.num_tokens);
    layout.first_row.push_back(first_row);
    layout.num_asked.push_back(is_real ? step.num_asked[s] : 0);
  }
}

}  // namespace fathom::runner
