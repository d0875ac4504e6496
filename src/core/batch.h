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
//   batch.slices.push_back({.slot = 0, .num_tokens = 5, .tokens = {...}});

#include <cstdint>
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

// Work on one sequence in this step: num_tokens query tokens at positions [length, length +
// num_tokens). After the step the sequence is that much longer; a decode slice (tokens empty) is
// one token longer.
struct SequenceSlice {
  int32_t slot = -1;
  int32_t num_tokens = 1;
  // Prefill chunk or tokens to verify: num_tokens ids. Empty = decode: one token, the last one
  // sampled.
  std::vector<int32_t> tokens{};
  // Verification trees: bit j of tree_mask[i] = query token i sees query token j of this slice
  // (besides the whole prefix, and always itself). Empty = causal. At most 64 query tokens when not
  // empty.
  std::vector<uint64_t> tree_mask{};
  // Positions relative to the sequence length, for trees (depth); empty = 0, 1, 2, ...
  std::vector<int32_t> relative_positions{};
  Outputs outputs = Outputs::kLast;
  // The tokens sampled for this slice are limited by a mask that Runner::set_masks() brings after the
  // step was submitted: it depends on the token before, which the step in flight is still sampling.
  bool wants_mask = false;
};

struct Batch {
  int64_t step_id = 0;  // counts up by one
  std::vector<SlotAdmission> admissions{};
  std::vector<BlockAppend> block_appends{};
  std::vector<SequenceSlice> slices{};  // at most one per slot
  // Slots free after this step; their blocks may not be written again.
  std::vector<int32_t> releases{};
  bool empty() const {
    return admissions.empty() && block_appends.empty() && slices.empty() && releases.empty();
  }
};

// Allowed tokens of one slice: bit t of words[t / 64] set = token t may be sampled.
struct SliceMask {
  int32_t slice_idx = -1;         // in Batch::slices
  std::vector<uint64_t> words{};  // u64[sampled rows, ceil(vocab_size / 64)]
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

struct SliceResult {
  int32_t slot = -1;
  std::vector<SampledToken> tokens{};  // per Outputs: none, one, or one per query token
  // With return_prompt_logprobs: for query tokens i of this slice whose successor is known, the
  // entry of the successor (its id, log-probability and top list).
  std::vector<SampledToken> prompt_logprobs{};
  // Not empty = this sequence failed in this step (non-finite logits); no token was chosen.
  std::string error{};
};

struct StepResult {
  int64_t step_id = 0;
  std::vector<SliceResult> slices{};  // in the order of Batch::slices
  double seconds = 0;                 // device time of the step
};

}  // namespace fathom::core
