#pragma once
// SlotTable: the device side of the running sequences (ops/step.h: last token, length, block table) and
// the host's mirror of what it needs to plan a step without asking the device.
//
//   SlotTable slots({.max_slots = 64, .max_blocks = 128}, backend);
//   slots.admit(admission, writes);
//   slots.append_blocks(append, writes);
//   writes.send(frame, stream);
//   ... step_inputs, forward, commit_tokens ...  stream.synchronize();
//   slots.advance(slot, num_tokens, /*goes_on=*/true);   // as commit_tokens did on the device
//   slots.release(slot);
//
// Owns its device memory. One thread, the stream's, uses it.

#include <vector>

#include "core/batch.h"
#include "ops/device_buffer.h"
#include "ops/device_writes.h"
#include "tensor/tensor.h"

namespace fathom::runner {

// That hold so many tokens.
inline int num_blocks_for(int64_t tokens, int block_tokens) {
  return static_cast<int>((tokens + block_tokens - 1) / block_tokens);
}

struct SlotTableConfig {
  int max_slots = 0;
  int max_blocks = 0;  // of one sequence
};

// What the host knows of a running sequence.
struct SlotState {
  bool active = false;
  int32_t length = 0;      // rows in the cache; once it goes on with drafts, at least so many
  bool goes_on = false;    // it has decoded or verified
  int32_t num_blocks = 0;  // in its block table
  std::vector<int32_t> prompt{};
  int32_t num_prompt_tokens = 0;  // of `prompt`; what follows was generated before a retraction
  bool return_prompt_logprobs = false;
};

class SlotTable {
 public:
  // Throws StartupError when there is no room.
  SlotTable(const SlotTableConfig& config, const ops::Backend& backend);

  // What changes on the device is put into `writes`.
  void admit(const core::SlotAdmission& admission, ops::DeviceWrites& writes);
  void append_blocks(const core::BlockAppend& append, ops::DeviceWrites& writes);
  void advance(int32_t slot, int num_tokens, bool goes_on);
  void release(int32_t slot);

  const SlotState& operator[](int32_t slot) const { return states_.at(static_cast<size_t>(slot)); }
  tensor::Tensor last_token() const { return last_token_; }      // i32[slots]
  tensor::Tensor length() const { return length_; }              // i32[slots]
  tensor::Tensor block_tables() const { return block_tables_; }  // i32[slots, max_blocks]
  int64_t num_bytes() const { return memory_.num_bytes(); }

 private:
  void carve(tensor::Arena& arena);

  SlotTableConfig config_;
  ops::DeviceBuffer memory_;
  tensor::Tensor last_token_, length_, block_tables_;
  std::vector<SlotState> states_;
};

}  // namespace fathom::runner
