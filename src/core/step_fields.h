#pragma once
// Which members the structs of a step have in a message (core/byte_codec.h). Each is named by a binding of all of its
// members, so one that gets another member does not compile until it is here.

#include "core/batch.h"
#include "core/byte_codec.h"

namespace fathom::core {

template <>
struct Fields<SamplingParams> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [max_new, min_new, temperature, top_k, top_p, min_p, repetition, frequency, presence,
           bias, seed, stop, ignore_eos, logprobs, num_top, prompt_logprobs] = v;
    io(max_new, min_new, temperature, top_k, top_p, min_p, repetition, frequency, presence, bias,
       seed, stop, ignore_eos, logprobs, num_top, prompt_logprobs);
  }
};

template <>
struct Fields<SlotAdmission> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [slot, num_cached, prompt, num_generated, max_rows, sampling, stop, seed] = v;
    io(slot, num_cached, prompt, num_generated, max_rows, sampling, stop, seed);
  }
};

template <>
struct Fields<BlockAppend> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [slot, kv_group, block_ids] = v;
    io(slot, kv_group, block_ids);
  }
};

template <>
struct Fields<SequenceSlice> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [slot, num_tokens, tokens, tree, positions, outputs, wants_mask, num_drafts] = v;
    io(slot, num_tokens, tokens, tree, positions, outputs, wants_mask, num_drafts);
  }
};

template <>
struct Fields<StepShape> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [lane_tokens, lane_slices, most_drafts, going_on_tokens] = v;
    io(lane_tokens, lane_slices, most_drafts, going_on_tokens);
  }
};

template <>
struct Fields<Batch> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [step_id, admissions, block_appends, slices, releases, shape] = v;
    io(step_id, admissions, block_appends, slices, releases, shape);
  }
};

template <>
struct Fields<SliceMask> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [slice_idx, words] = v;
    io(slice_idx, words);
  }
};

template <>
struct Fields<StepMasks> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [step_id, masks] = v;
    io(step_id, masks);
  }
};

template <>
struct Fields<SampledToken> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [token, logprob, top_logprobs] = v;
    io(token, logprob, top_logprobs);
  }
};

template <>
struct Fields<Draft> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [token, parent] = v;
    io(token, parent);
  }
};

template <>
struct Fields<SliceResult> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [slot, tokens, num_verified, drafts, prompt_logprobs, error] = v;
    io(slot, tokens, num_verified, drafts, prompt_logprobs, error);
  }
};

template <>
struct Fields<StepResult> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [step_id, slices, wall, forward, sampling, mask_wait] = v;
    io(step_id, slices, wall, forward, sampling, mask_wait);
  }
};

}  // namespace fathom::core
