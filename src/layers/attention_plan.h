#pragma once
// AttentionPlan: what attention decides once per step for all layers: which rows of which sequences each call
// of expanded attention takes, the backend's own plan of absorbed attention where it has one, and with an indexer which
// tokens attend by lists of rows.
//
//   const AttentionPlan plan = plan_attention(batch, {.heads = 16, .chunk_rows = 1024, .plan_buffer = buffer,
//                                                     .max_rows = max_blocks * 64}, stream);
//   for (const auto& call : plan.expanded_calls) ...
//
// The batch and the buffer must stay as they are while the plan is used.

#include <vector>

#include "layers/forward_batch.h"
#include "ops/kv_cache.h"
#include "ops/stream.h"

namespace fathom::layers {

// Query tokens of a batch, [begin, end).
struct TokenRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
};

// Tokens that attend to chosen rows alone.
struct ListedTokens {
  TokenRange tokens;
  // Of a prompt, in the expanded form: a bit of each row (IndexBuffers::kept) says what it keeps, instead of a list.
  bool by_bits = false;
  // Of a prompt whose lists are of a copy of its rows (IndexBuffers::copy): its sequence, and how many they are.
  // 0 = lists are of the cache.
  int64_t sequence_idx = 0, num_copied = 0;
};

struct AttentionPlan {
  tensor::Tensor absorbed;  // for ops::mla_absorbed; null = none
  // The segments of each call, at most one of a sequence and chunk_rows rows together. A sequence's rows are
  // cut at multiples of chunk_rows whatever else is in the step, so that its bits depend on it alone.
  std::vector<std::vector<ops::ExpandedSegment>> expanded_calls;
  // With topk, all that see more rows than are kept, and the absorbed ones. Those of an expanded sequence that go by
  // bits are in expanded_calls, too.
  std::vector<ListedTokens> listed;
  bool has_bits = false;  // of some of them
};

struct AttentionPlanConfig {
  int64_t heads = 0;           // the rank's
  int64_t chunk_rows = 0;      // rows of the buffers of expanded attention
  tensor::Tensor plan_buffer;  // u8[bytes] of ops::mla_plan; null = the backend has no plan
  int64_t max_rows = 0;        // that a block table has room for
  int64_t topk = 0;            // rows that an indexer keeps; 0 = there is none
  int64_t copy_rows =
      0;  // of a sequence that there is room to copy; 0 = all lists are of the cache
  // Tokens that see at most so many rows may attend by bits, where the slice has one for each so many rows.
  int64_t bits_rows = 0, rows_of_bits_token = 0;
};

AttentionPlan plan_attention(const ForwardBatch& batch, const AttentionPlanConfig& config,
                             ops::Stream& stream);

// The masks of the absorbed tokens, null when the batch has none.
tensor::Tensor absorbed_tree_mask(const ForwardBatch& batch);

}  // namespace fathom::layers
