#include "layers/attention_plan.h"

#include <algorithm>

#include "ops/index.h"
#include "ops/mla.h"

namespace fathom::layers {
namespace {

using ops::ExpandedSegment;

// Rows from row_begin on up to the next multiple of chunk_rows.
ExpandedSegment segment_of(const ExpandedSequence& sequence, int64_t row_begin,
                           int64_t chunk_rows) {
  const int64_t rows_left = sequence.kv_begin + sequence.num_tokens - row_begin;
  return {.sequence_idx = sequence.sequence_idx,
          .row_begin = row_begin,
          .num_rows = std::min(rows_left, chunk_rows),
          .token_begin = sequence.token_begin,
          .num_tokens = sequence.num_tokens,
          .query_begin = sequence.kv_begin,
          .first = row_begin == 0,
          .last = rows_left <= chunk_rows,
          .has_tree_mask = sequence.has_tree_mask};
}

// Into the call that is being filled, or a new one where the rows do not fit or the sequence is in it already.
void append(std::vector<std::vector<ExpandedSegment>>& calls, ExpandedSegment segment,
            int64_t chunk_rows) {
  if (!calls.empty()) {
    const ExpandedSegment& last = calls.back().back();
    const int64_t used = last.buffer_begin + last.num_rows;
    if (last.sequence_idx != segment.sequence_idx && used + segment.num_rows <= chunk_rows) {
      segment.buffer_begin = used;
      calls.back().push_back(segment);
      return;
    }
  }
  calls.push_back({segment});
}

// How many rows of a sequence so many tokens' lists copy. An H200 copies some 1,900 in a microsecond, and rows in FP8
// take a token of 128 heads 1.1 us longer, of 17 to 64 0.55, of up to 16 heads 0.18.
int64_t copied_rows(int64_t tokens, int64_t rows, const AttentionPlanConfig& config) {
  const bool has_few_heads = config.heads <= ops::kFewSparseHeads;
  if (has_few_heads && tokens <= ops::kFewSparseTokens) return 0;
  const int64_t most = tokens * (has_few_heads ? 256 : 1024);
  return rows <= std::min(most, config.copy_rows) ? rows : 0;
}

// The tokens of a sequence that take the expanded form: those that see at most topk rows, and those behind them that go
// by bits. All but the first of these go into the plan's lists.
ExpandedSequence cut(const ExpandedSequence& sequence, const AttentionPlanConfig& config,
                     AttentionPlan& plan) {
  const auto tokens_up_to = [&](int64_t rows) {
    return std::clamp<int64_t>(rows - sequence.kv_begin, 0, sequence.num_tokens);
  };
  const auto tokens_between = [&](int64_t begin, int64_t end) {
    return TokenRange{.begin = sequence.token_begin + begin, .end = sequence.token_begin + end};
  };
  const auto rows_of = [&](int64_t tokens) { return sequence.kv_begin + tokens; };
  ExpandedSequence expanded = sequence;
  expanded.num_tokens = tokens_up_to(config.topk);
  const int64_t up_to_bits = sequence.has_tree_mask ? 0 : tokens_up_to(config.bits_rows);
  if (const TokenRange tokens = tokens_between(expanded.num_tokens, up_to_bits);
      tokens.size() > 0 && rows_of(up_to_bits) / tokens.size() <= config.rows_of_bits_token) {
    plan.listed.push_back(
        {.tokens = tokens, .by_bits = true, .sequence_idx = sequence.sequence_idx});
    plan.has_bits = true;
    expanded.num_tokens = up_to_bits;
  }
  if (const TokenRange tokens = tokens_between(expanded.num_tokens, sequence.num_tokens);
      tokens.size() > 0)
    plan.listed.push_back(
        {.tokens = tokens,
         .sequence_idx = sequence.sequence_idx,
         .num_copied = copied_rows(tokens.size(), rows_of(sequence.num_tokens), config)});
  return expanded;
}

}  // namespace

tensor::Tensor absorbed_tree_mask(const ForwardBatch& batch) {
  if (batch.tree_mask.is_null()) return {};
  return batch.tree_mask.slice(0, 0, batch.num_absorbed_tokens);
}

AttentionPlan plan_attention(const ForwardBatch& batch, const AttentionPlanConfig& config,
                             ops::Stream& stream) {
  AttentionPlan plan;
  if (config.topk > 0 && batch.num_absorbed_tokens > 0)
    plan.listed.push_back({.tokens = {.begin = 0, .end = batch.num_absorbed_tokens}});
  for (const ExpandedSequence& whole : batch.expanded) {
    const ExpandedSequence sequence = config.topk > 0 ? cut(whole, config, plan) : whole;
    if (sequence.num_tokens == 0) continue;
    const int64_t rows = sequence.kv_begin + sequence.num_tokens;
    for (int64_t begin = 0; begin < rows; begin += config.chunk_rows)
      append(plan.expanded_calls, segment_of(sequence, begin, config.chunk_rows),
             config.chunk_rows);
  }
  if (config.plan_buffer.is_null() || batch.num_absorbed_tokens == 0) return plan;
  plan.absorbed = config.plan_buffer;
  const int64_t sequences = batch.num_absorbed_sequences;
  ops::mla_plan({.query_start = batch.query_start.slice(0, 0, sequences + 1),
                 .kv_len = batch.kv_len.slice(0, 0, sequences),
                 .tree_mask = absorbed_tree_mask(batch),
                 .tokens = batch.num_absorbed_tokens,
                 .heads = config.heads,
                 .max_rows = config.max_rows,
                 .plan = plan.absorbed},
                stream);
  return plan;
}

}  // namespace fathom::layers
