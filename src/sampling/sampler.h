#pragma once
// Sampler: the sampling parameters of the running slots as the arrays that ops/sample.h reads, and what
// comes back as SampledToken. What belongs to a slot lies on the device from its admission on; a step sends which
// slot each of its rows is of.
//
//   Sampler sampler({.vocab_size = 129280, .max_slots = 64, .max_rows = 2048}, backend);
//   sampler.admit(admission, writes);  writes.send(0, stream);  sampler.send_counts(0, stream);
//   sampler.begin_step(rows, /*frame=*/0, stream);           // all rows of the step
//   sampler.set_mask(0, words);                              // rows that a grammar limits
//   sampler.sample(0, logits, stream);                       // rows [0, logits.dim(0)), then further ones
//   ops::commit_tokens({..., .sampled = sampler.tokens(), .counts = sampler.counts()}, stream);
//   sampler.fetch(stream);  stream.synchronize();
//   Result<core::SampledToken> token = sampler.result(0, 0); // of frame 0; kNumeric: why there is none
//
// Two steps can be under way, one in each of kNumFrames frames: their parameters, masks and results lie apart on the
// host, so the results of one are read while the next is enqueued. On the device they share their memory, in the
// order of the stream. A step of as many rows has its arrays at the same addresses every time.
//
// Counts are kept only for slots whose request has penalties: repetition over prompt and output, frequency
// and presence over output. Stop tokens are banned (bias -inf) in rows that come before min_new_tokens.
// Owns its device memory. One thread, the stream's, uses a sampler; another one may call result() of a frame that
// has been fetched.

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "ops/device_buffer.h"
#include "ops/device_writes.h"
#include "ops/sample.h"
#include "ops/staged_buffer.h"

namespace fathom::sampling {

struct SamplerConfig {
  int vocab_size = 0, max_slots = 0;
  int max_rows = 0;           // of one step
  int max_sampled_rows = 64;  // of one sample(); their masks have room
  int max_top_logprobs = core::kMaxTopLogprobs;
  int max_path = 0;                         // drafts on the way to a row; 0 = nothing drafts
  int max_biases = core::kMaxBiasesOfSlot;  // logit biases and stop tokens of one slot
};

// One row of logits.
struct SampleRow {
  int32_t slot = -1;      // -1 = padding: whatever comes out, nobody reads it
  int32_t position = 0;   // number of tokens before the one sampled; the counter of the draw
  int32_t forced = -1;    // >= 0: report this token's log-probability instead of choosing
  bool is_bound = false;  // `position` is the lowest it can be; ops::draft_rows writes the true one
};

// A step's rows as ops::draft_rows completes them.
struct DeviceRows {
  tensor::Tensor position, paths;
};

class Sampler {
 public:
  static constexpr int kNumFrames = 2;

  // Throws StartupError when there is no room.
  Sampler(const SamplerConfig& config, const ops::Backend& backend);

  // What changes on the device is put into `writes`; what is counted for penalties is noted for send_counts(), until
  // which the admission's prompt stays as it is.
  void admit(const core::SlotAdmission& admission, ops::DeviceWrites& writes);
  // Prompts of more than kTokensAtOnce tokens together go in several parts, between which this waits for the stream.
  // REQUIRES: the step before in this frame has been done.
  static constexpr int64_t kTokensAtOnce = 1 << 16;
  void send_counts(int frame, ops::Stream& stream);
  void release(int32_t slot);

  // Row of counts() of a slot, -1 = no penalties.
  int32_t penalty_row(int32_t slot) const { return slots_[static_cast<size_t>(slot)].penalty_row; }
  // i32[penalty rows, vocab_size]
  tensor::Tensor counts() const;

  // Sends the rows of a step. REQUIRES: the step before in this frame has been done.
  void begin_step(std::span<const SampleRow> rows, int frame, ops::Stream& stream);
  // Where the parameters of the step that began last lie. REQUIRES: max_path > 0, the step has rows.
  DeviceRows device_rows() const;
  // Limits a row of the step to the tokens whose bit is set: u64[ceil(vocab_size / 64)], which stay as they
  // are until the row has been sampled. REQUIRES: begin_step() before, sample() of the row after.
  void set_mask(int64_t row, std::span<const uint64_t> words);
  // Samples rows [first_row, first_row + logits.dim(0)) of the step.  logits  f32[.., vocab_size]
  void sample(int64_t first_row, const tensor::Tensor& logits, ops::Stream& stream);
  // The same in two parts, for all rows of a step, of which the second only enqueues an operator: false = no row has
  // a mask.
  bool send_masks(ops::Stream& stream);
  void sample_all(const tensor::Tensor& logits, bool masked, ops::Stream& stream) const;
  // i32[rows of the step], on the device; -1 = failed. At least one element.
  tensor::Tensor tokens() const { return results().tokens.device; }
  // Enqueues the copy of the results; synchronize, then read them with result().
  void fetch(ops::Stream& stream);
  // position: what the row's turned out to be, where it was a bound.
  Result<core::SampledToken> result(int frame, int64_t row,
                                    std::optional<int32_t> position = {}) const;

  // Device memory, for the memory plan.
  int64_t num_bytes() const;

 private:
  // What the host keeps of a slot.
  struct Slot {
    int num_top = 0;
    int32_t penalty_row = -1;
  };
  // Tokens of an admission on their way into a row of counts.
  struct Counting {
    int32_t penalty_row = 0;
    std::span<const int32_t> tokens;
    int64_t num_prompt = 0;
    bool begins = true;
  };
  template <class T>
  using Array = ops::StagedBuffer::Array<T>;
  struct Rows {
    Array<int32_t> slot, position, forced;
  };
  struct Results {
    Array<int32_t> tokens, top_ids;
    Array<float> logprobs, top_logprobs;
    Array<uint8_t> failed;
  };

  // What a result is told with, kept because the slot may be another request's when it is read.
  struct RowInfo {
    int32_t position = 0, num_top = 0;
    bool has_mask = false;
  };
  struct Frame {
    Results results;
    std::vector<RowInfo> rows;
  };

  void carve_slots(tensor::Arena& arena);
  void put_biases(const core::SlotAdmission& admission, ops::DeviceWrites& writes) const;
  void note_counts(const core::SlotAdmission& admission, int32_t penalty_row);
  // Stages and counts as many parts as have room, from the first on; returns how many those are.
  size_t count_some(std::span<const Counting> parts, int frame, ops::Stream& stream);
  void lay_out(int64_t rows);
  // i32[rows of the step, max_path]; null when nothing drafts.
  tensor::Tensor paths(int64_t rows) const;
  // u64[end - first_row, words of a row] on the device; null when no row has a mask.
  tensor::Tensor send_masks(int64_t first_row, int64_t end, ops::Stream& stream);
  void sample_rows(int64_t first_row, const tensor::Tensor& logits, const tensor::Tensor& mask,
                   ops::Stream& stream) const;
  const Results& results() const { return frames_[static_cast<size_t>(frame_)].results; }

  SamplerConfig config_;
  std::vector<Slot> slots_;
  ops::DeviceBuffer slot_memory_, counts_memory_, path_memory_;
  ops::SamplingSlots on_device_;
  std::vector<int32_t> free_penalty_rows_;
  std::vector<Counting> counting_;
  ops::StagedBuffer row_memory_, prompt_memory_, result_memory_, mask_memory_;
  Rows rows_;
  int frame_ = 0;  // of the step that began last
  std::array<Frame, kNumFrames> frames_;
  std::vector<std::span<const uint64_t>> masks_;  // per row of the step; empty = all tokens
  bool masks_in_use_ = false;  // an earlier sample() of this step may still read mask_memory_
};

}  // namespace fathom::sampling
