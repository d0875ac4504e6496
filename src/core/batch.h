#pragma once
// The two plain structs in which request plane and compute plane meet: Batch, what one step
// computes, and StepResult, what came out. Ids only, no tensors.
//
// A running sequence owns a slot. Its last token, length, block table and sampling state live on
// the device, so step n+1 can be submitted before the host has seen step n's tokens: a decode slice
// names only the slot, and the device continues from what it sampled itself. The host sends deltas
// (admit, append blocks, release) which take effect in the order admissions, block appends, slices,
// releases.
//
//   Batch batch{.step_id = 7};
//   batch.admissions.push_back({.slot = 0, .prompt = ids, .sampling = params, .seed = 42});
//   batch.block_appends.push_back({.slot = 0, .kv_group = 0, .block_ids = lease.ids()});
//   batch.slices.push_back({.slot = 0, .num_tokens = 5, .tokens = {...}});      // a chunk of the prompt
//   batch.slices.push_back({.slot = 1});                                        // decode
//   batch.slices.push_back({.slot = 2, .num_tokens = 4, .outputs = Outputs::kAll,
//                           .num_drafts_to_propose = 3});                       // verify three drafts
//
// A verify slice advances its sequence by one to num_tokens tokens: how many, the device decides.

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/sampling_params.h"

namespace fathom::core {

// Starts a sequence in a free slot. Its length is num_cached_tokens (prefix blocks follow in
// block_appends).
struct SlotAdmission {
  int32_t slot = -1;
  // Prefix whose rows are already in the leased blocks; < prompt size.
  int32_t num_cached_tokens = 0;
  // The whole prompt: penalties count it; slices carry the tokens to compute.
  std::vector<int32_t> prompt{};
  // How many tokens at the end of `prompt` this request generated itself before it was retracted:
  // they count as output (penalties, min_new_tokens) and get no prompt log-probabilities.
  int32_t num_generated_tokens = 0;
  // Rows the sequence may ever have: all its tokens but the last one, which is never fed back. Query tokens
  // whose row would be this one or a later one are inert (docs/contracts/runner.md), so a step may be planned
  // while nobody knows whether the step in flight ends the sequence.
  int32_t max_rows = std::numeric_limits<int32_t>::max();
  SamplingParams sampling{};
  // Banned while fewer than min_new_tokens are out; eos included.
  std::vector<int32_t> stop_token_ids{};
  uint64_t seed = 0;
};

// Blocks that the sequence may write from now on, appended to its block table of one KV group.
struct BlockAppend {
  int32_t slot = -1;
  int32_t kv_group = 0;
  std::vector<int32_t> block_ids{};
};

// Which query tokens of a slice get logits and a sampled token.
enum class Outputs : uint8_t { kNone, kLast, kAll };

// What a slice computes. kPrefill: tokens that are given. kDecode: one token, the slot's last. kVerify: the
// slot's last token and its drafts.
enum class SliceKind : uint8_t { kPrefill, kDecode, kVerify };

// Work on one sequence in this step, whose rows follow those that the slot has. A prefill slice makes it
// num_tokens rows longer, a decode slice one. A verify slice names only the slot: tokens, positions and the
// shape of the drafts (a chain or a tree) are data on the device, and so is how much longer it gets, one row
// to num_tokens.
struct SequenceSlice {
  int32_t slot = -1;
  // Query tokens. Verify: the slot's last token and at most num_tokens - 1 of its drafts, the first ones.
  int32_t num_tokens = 1;
  // Prefill: num_tokens ids. Empty = decode or verify.
  std::vector<int32_t> tokens{};
  // Trees among given tokens: bit j of tree_mask[i] = query token i sees query token j of this slice
  // (besides the whole prefix, and always itself). Empty = causal. At most 64 query tokens when not
  // empty.
  std::vector<uint64_t> tree_mask{};
  // Positions of given tokens relative to the sequence length, for trees (depth); empty = 0, 1, 2, ...
  std::vector<int32_t> relative_positions{};
  Outputs outputs = Outputs::kLast;  // verify: kAll
  // The tokens sampled for this slice are limited by a mask that Runner::set_masks() brings after the
  // step was submitted: it depends on the token before, which the step in flight is still sampling.
  bool wants_mask = false;
  // How many drafts the slot shall have for its next slice. What it had before is used up or dropped.
  int32_t num_drafts_to_propose = 0;

  SliceKind kind() const {
    if (!tokens.empty()) return SliceKind::kPrefill;
    return num_tokens == 1 ? SliceKind::kDecode : SliceKind::kVerify;
  }
  // Query tokens with logits, and so rows of the slice's mask if it wants one.
  int num_sampled_rows() const {
    if (outputs == Outputs::kNone) return 0;
    return outputs == Outputs::kLast ? 1 : num_tokens;
  }
};

// What all lanes compute in a step, the same in the batch of each: lanes are groups of ranks, each with slots and
// blocks of its own, that compute their steps together (docs/contracts/parallel.md). Nobody asks another rank for it.
struct StepShape {
  std::vector<int32_t> lane_tokens{};  // query tokens of each lane; empty = there is one lane
  std::vector<int32_t> lane_slices{};
  int32_t most_drafts = 0;  // that a slice of any lane proposes
  // Query tokens of the longest slice, where all slices of all lanes go on from their slots; 0 = some do not.
  int32_t going_on_tokens = 0;
  bool has_tokens() const {
    for (const int32_t tokens : lane_tokens)
      if (tokens > 0) return true;
    return false;
  }
};

struct Batch {
  int64_t step_id = 0;  // counts up by one
  std::vector<SlotAdmission> admissions{};
  std::vector<BlockAppend> block_appends{};
  std::vector<SequenceSlice> slices{};  // at most one per slot
  // Slots free after this step; their blocks may not be written again.
  std::vector<int32_t> releases{};
  StepShape shape{};
  bool empty() const {
    return admissions.empty() && block_appends.empty() && slices.empty() && releases.empty();
  }
};

// Allowed tokens of one slice: bit t of words[t / 64] set = token t may be sampled.
struct SliceMask {
  int32_t slice_idx = -1;  // in Batch::slices
  // u64[num_sampled_rows(), ceil(vocab_size / 64)]. Verify: row 0 is the last token's, row i + 1 that of draft i
  // after the drafts above it; rows of drafts that the slot does not have are there too and mean nothing.
  std::vector<uint64_t> words{};
};

// The masks of one step: exactly one for every slice with wants_mask.
struct StepMasks {
  int64_t step_id = -1;
  std::vector<SliceMask> masks{};
};

// A sampled token with what was asked for about it.
struct SampledToken {
  int32_t token = -1;
  float logprob = 0;  // log softmax of the raw logits (before penalties, bias, temperature)
  std::vector<std::pair<int32_t, float>> top_logprobs{};  // best first; ties by lower id
};

// A token that a drafter proposes. Drafts of a slot are a tree below its last token, a chain for instance.
struct Draft {
  int32_t token = -1;
  int32_t parent = -1;  // index of an earlier draft; -1 = the slot's last token
  bool operator==(const Draft&) const = default;
};

struct SliceResult {
  int32_t slot = -1;
  // Prefill: per Outputs none, one, or one per query token. Decode: one. Verify: the drafts accepted, in order,
  // and the token after them. None when the slot's rows had reached max_rows.
  std::vector<SampledToken> tokens{};
  int32_t num_verified_drafts = 0;
  // Those that the slot's next slice may verify.
  std::vector<Draft> drafts{};
  // With return_prompt_logprobs: for query tokens i of this slice whose successor is known, the
  // entry of the successor (its id, log-probability and top list).
  std::vector<SampledToken> prompt_logprobs{};
  // Not empty = this sequence failed in this step (non-finite logits); no token was chosen.
  std::string error{};
};

struct StepResult {
  int64_t step_id = 0;
  std::vector<SliceResult> slices{};  // in the order of Batch::slices
  // Wall time that the runner had for this step alone: from when it was enqueued, or the step before was
  // collected if that was later, until its results were there. Never less than its three parts, which follow each
  // other. The rest is the host's work on it, its inputs, and the way of its results.
  double wall_seconds = 0;
  // From when the device has its inputs until layers and logits are done; from there, or from when its masks have
  // come, until tokens, drafts and their copies to the host are. On a GPU by the device's own clock. 0 = it
  // computed nothing; negative = not measured: on a GPU most steps are not, nor are those of a runner without a model.
  double forward_seconds = -1, sampling_seconds = -1;
  // What passed between the two because masks came late: the device had nothing else to do.
  double mask_wait_seconds = 0;
};

}  // namespace fathom::core
