#include "runner/slot_table.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace fathom::runner {

using tensor::DType;

SlotTable::SlotTable(const SlotTableConfig& config, const ops::Backend& backend) : config_(config) {
  tensor::Arena measure;
  carve(measure);
  memory_ = ops::DeviceBuffer::allocate_for_step(
      backend, measure.peak_bytes(),
      "the block tables of " + std::to_string(config.max_slots) + " running requests");
  tensor::Arena arena = memory_.arena();
  carve(arena);
  states_.resize(static_cast<size_t>(config.max_slots));
  // Entries past a sequence's blocks are never read, but a defined value keeps what copies them quiet.
  const std::vector<int32_t> zeros(static_cast<size_t>(block_tables_.num_elements()));
  std::unique_ptr<ops::Stream> stream = backend.make_stream({.num_threads = 1});
  backend.copy_to_device(block_tables_.data(), zeros.data(), block_tables_.num_bytes(), *stream);
  stream->synchronize();
}

void SlotTable::carve(tensor::Arena& arena) {
  last_token_ = arena.allocate(DType::kI32, {config_.max_slots});
  length_ = arena.allocate(DType::kI32, {config_.max_slots});
  block_tables_ = arena.allocate(DType::kI32, {config_.max_slots, config_.max_blocks});
}

void SlotTable::admit(const core::SlotAdmission& admission, ops::DeviceWrites& writes) {
  SlotState& state = states_.at(static_cast<size_t>(admission.slot));
  const auto num_tokens = static_cast<int32_t>(admission.prompt.size());
  FATHOM_CHECK(!state.active, "slot " << admission.slot << " is taken");
  FATHOM_CHECK(admission.num_cached_tokens >= 0 && admission.num_cached_tokens < num_tokens,
               admission.num_cached_tokens << " cached tokens of " << num_tokens);
  FATHOM_CHECK(admission.num_generated_tokens >= 0 && admission.num_generated_tokens < num_tokens,
               admission.num_generated_tokens << " generated tokens of " << num_tokens);
  state = {.active = true,
           .length = admission.num_cached_tokens,
           .prompt = admission.prompt,
           .num_prompt_tokens = num_tokens - admission.num_generated_tokens,
           .return_prompt_logprobs = admission.sampling.return_prompt_logprobs};
  // Any valid id: a slot decodes from its own tokens only after a prefill sampled one, but a failed row
  // leaves this one to be read.
  writes.put(last_token_, admission.slot, admission.prompt.back());
  writes.put(length_, admission.slot, state.length);
}

void SlotTable::append_blocks(const core::BlockAppend& append, ops::DeviceWrites& writes) {
  SlotState& state = states_.at(static_cast<size_t>(append.slot));
  FATHOM_CHECK(state.active, "blocks for slot " << append.slot << ", which is free");
  FATHOM_CHECK(append.kv_group == 0, "kv_group " << append.kv_group << " of 1");
  const auto num_blocks = static_cast<int32_t>(append.block_ids.size());
  FATHOM_CHECK(state.num_blocks + num_blocks <= config_.max_blocks,
               "slot " << append.slot << " grows to " << state.num_blocks + num_blocks
                       << " blocks of " << config_.max_blocks);
  int64_t at = int64_t{append.slot} * config_.max_blocks + state.num_blocks;
  for (const int32_t block : append.block_ids) writes.put(block_tables_, at++, block);
  state.num_blocks += num_blocks;
}

void SlotTable::advance(int32_t slot, int num_tokens, bool goes_on) {
  SlotState& state = states_.at(static_cast<size_t>(slot));
  state.length += num_tokens;
  state.goes_on = state.goes_on || goes_on;
}

void SlotTable::release(int32_t slot) {
  SlotState& state = states_.at(static_cast<size_t>(slot));
  FATHOM_CHECK(state.active, "slot " << slot << " released twice");
  state = {};
}

}  // namespace fathom::runner
