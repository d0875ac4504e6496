#pragma once
// What the tests drive a model with: sequences over a paged cache whose blocks come in a shuffled order
// and start as NaN, and steps that mix them. It builds ForwardBatch by hand, so it tests the model without the runner.
//
//   LoadedModel loaded(dir, {.dequantize = true}, cpu::reference_backend());
//   StepHarness harness(loaded, {.max_batch_tokens = 512, .num_blocks = 100});
//   const int sequence = harness.add_sequence();
//   SliceOutput out = harness.step({{.sequence = sequence, .tokens = prompt}})[0];
//
// One thread.

#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "ops/stream.h"

namespace fathom::model {

class DeviceValues;

// A checkpoint on a backend with its stream.
class LoadedModel {
 public:
  // draft_directory: a checkpoint with the MTP layer, in place of the one in `directory`; empty = none. rank: whose
  // part of the model.
  LoadedModel(const std::string& directory, const ModelOptions& options,
              const ops::Backend& backend, const std::string& draft_directory = "",
              const comm::RankContext& rank = {});

  const Model& model() const { return *model_; }
  ops::Stream& stream() const { return *stream_; }

 private:
  std::unique_ptr<Model> model_;
  std::unique_ptr<ops::Stream> stream_;
};

struct HarnessConfig {
  int64_t max_batch_tokens = 512;
  int num_blocks = 64;
  bool wants_mtp = false;  // also run the MTP layer: `next_tokens` of the slices are needed
};

struct Slice {
  int sequence = 0;
  std::vector<int32_t> tokens = {};
  std::vector<uint64_t> tree_mask = {};          // empty = causal
  std::vector<int32_t> relative_positions = {};  // empty = 0, 1, 2, ...
  std::vector<int32_t> next_tokens = {};         // with wants_mtp, one per token
};

// Rows per query token of the slice.
struct SliceOutput {
  std::vector<std::vector<float>> hidden, logits, mtp_logits;
};

class StepHarness {
 public:
  StepHarness(const LoadedModel& loaded, const HarnessConfig& config);

  int add_sequence();
  int64_t length(int sequence) const { return sequences_[static_cast<size_t>(sequence)].length; }
  // Forgets rows from the end, as a rejected draft does.
  void truncate(int sequence, int64_t length);

  // With wants_mtp: from here on its layer only writes its rows, and mtp_logits stay empty; or it drafts again.
  void only_append_mtp_rows(bool only) { only_mtp_rows_ = only; }
  // Steps whose MTP layer goes on with the last token of each slice alone: one row of mtp_logits.
  void keep_last_mtp_tokens() { keeps_last_mtp_tokens_ = true; }

  std::vector<SliceOutput> step(const std::vector<Slice>& slices, LayerTap* tap = nullptr);

  // Feeds the prompt in chunks, then decodes greedily; stops after eos.
  std::vector<int32_t> generate(const std::vector<int32_t>& prompt, int num_tokens,
                                int64_t chunk_tokens, int32_t eos_token_id = -1);

 private:
  struct Sequence {
    int64_t length = 0;
    std::vector<int32_t> blocks;
  };
  struct HostBatch;

  void grow(Sequence& sequence, int64_t length);
  HostBatch build(const std::vector<Slice>& slices);
  void add_slice(const Slice& slice, bool absorbed, HostBatch& host);
  KeptTokens last_tokens(const HostBatch& host, const std::vector<Slice>& slices,
                         DeviceValues& device) const;

  const LoadedModel& loaded_;
  HarnessConfig config_;
  bool only_mtp_rows_ = false, keeps_last_mtp_tokens_ = false;
  Workspace workspace_;
  KvStorage kv_;
  std::vector<int32_t> free_blocks_;
  std::vector<Sequence> sequences_;
};

// The residual stream of the last token of a batch, after the embedding and after every layer.
class LastTokenTap : public LayerTap {
 public:
  void on_layer(int layer_idx, const tensor::Tensor& residual, const tensor::Tensor& branch,
                ops::Stream& stream) override;
  std::vector<std::vector<float>> rows;
};

int32_t argmax(const std::vector<float>& values);
double max_abs_difference(const std::vector<float>& a, const std::vector<float>& b);
double mean_abs_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace fathom::model
