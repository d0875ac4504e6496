#pragma once
// A DeepSeek model on a backend: config.json -> layers -> forward(). One class for V2-Lite, V2, V3
// (with its MTP layer), the one-group V3 kind and V3.2; the config alone tells them apart.
//
//   std::unique_ptr<Model> model = Model::create(config, {.kv_cache_dtype = DType::kF32}, backend, rank);
//   throw_on_error(weights::load_parameters(checkpoint, model->parameters(), load_options));
//   model->finish_loading(*stream);
//   Workspace workspace = model->make_workspace({.max_batch_tokens = 2048});
//   KvStorage kv = KvStorage::allocate(model->kv_groups()[0], num_blocks, backend);
//   Tensor hidden = model->forward(batch, kv, workspace, *stream);      // act[tokens, hidden_size]
//   model->logits(hidden.slice(0, tokens - 1, tokens), logits, *stream);    // f32[1, vocab_size]
//
// Of several ranks each creates its part on its own thread, and all run the same steps: the layers sum and gather over
// the rank's groups. Hidden states and logits are whole on every rank of a lane. Lanes have batches of their own, and
// all run every forward() and mtp_forward(), also those without a token (ForwardBatch::lane_starts).
//
// The model owns its weights, the caller owns cache and workspace. After finish_loading() a model
// is immutable: several streams may run it at once, each with its own workspace and cache.
// forward(), logits() and mtp_forward() only enqueue, allocate nothing and never wait.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/rank_context.h"
#include "config/model_config.h"
#include "layers/attention_plan.h"
#include "layers/forward_batch.h"
#include "layers/step_buffers.h"
#include "model/kv_storage.h"
#include "model/workspace.h"
#include "ops/backend.h"
#include "weights/parameter.h"

namespace fathom::model {

using layers::ExpandedSequence;
using layers::ForwardBatch;
using layers::KeptTokens;

// How a slice's attention runs; both forms are equal up to rounding (ops/mla.h). kAuto lets a slice's
// length choose, so chunks, prefix hits and retractions can change the last bits of a request. With kAbsorbed
// every row is computed the same way wherever it comes from: a request's bits depend on the request alone.
enum class AttentionForm { kAuto, kAbsorbed, kExpanded };

struct ModelOptions {
  // Compute with bf16 or f32 weights from an FP8 or INT8 checkpoint. Otherwise its FP8 matrices stay FP8
  // and their inputs are quantised.
  bool dequantize = false;
  // Type of all weights that are not FP8: f32 or bf16. Empty = f32 where torch_dtype is float32,
  // else bf16.
  std::optional<tensor::DType> weight_dtype = {};
  // Type of W_UK and W_UV, which absorbed attention multiplies with: f8_e4m3 or bf16. Empty = the
  // type of the weights that are not FP8. In FP8 they are quantised when loading finishes, need bf16
  // weights beside them and no `dequantize`; expanded attention goes on with bf16 (docs/adr/0006).
  std::optional<tensor::DType> absorbed_dtype = {};
  // Type of the cache's latent values: f32, bf16 or f8_e4m3 (ops/kv_format.h).
  tensor::DType kv_cache_dtype = tensor::DType::kF32;
  bool load_mtp = true;  // when the checkpoint has the layer
  // The MTP layer multiplies with copies of its eh_proj and of the head in FP8, made when loading finishes. They need
  // bf16 matrices and no `dequantize`; no token that is verified depends on them.
  bool fp8_drafts = false;
  AttentionForm attention_form = AttentionForm::kAuto;
  // Expanded attention expands the cache in chunks that start at multiples of this.
  int expand_chunk_tokens = 1024;
};

// Sees the residual stream of every token after the embedding (layer_idx 0) and after decoder layer
// i (layer_idx i + 1): the sum of two tensors, act[tokens, hidden_size] each, the second before it is summed over
// ranks. For tests.
class LayerTap {
 public:
  virtual ~LayerTap() = default;
  // branch is null after the embedding. The memory is reused by the next layer.
  virtual void on_layer(int layer_idx, const tensor::Tensor& residual, const tensor::Tensor& branch,
                        ops::Stream& stream) = 0;
};

struct Network;  // the layers; network.h

class Model {
 public:
  // Allocates the rank's weights. Throws StartupError when memory is short, the backend lacks operators or ranks cannot
  // share the model.
  static std::unique_ptr<Model> create(const config::ModelConfig& config,
                                       const ModelOptions& options, const ops::Backend& backend,
                                       const comm::RankContext& rank = {});
  ~Model();

  const config::ModelConfig& config() const { return config_; }
  const ModelOptions& options() const { return options_; }
  const ops::Backend& backend() const { return backend_; }
  const comm::RankContext& rank() const { return rank_; }
  bool has_mtp() const;
  tensor::DType absorbed_dtype() const;  // of W_UK and W_UV
  int64_t weight_bytes() const { return weight_memory_.num_bytes(); }

  // What to load, and the names in the checkpoint that this model leaves out on purpose (an MTP
  // layer that was not asked for, its copies of embedding and head).
  const std::vector<weights::Parameter>& parameters() const { return parameters_; }
  std::vector<std::string> ignored_prefixes() const;
  // Call once, when the parameters are filled: derives the absorbed W_UK and W_UV. Waits for the
  // stream.
  void finish_loading(ops::Stream& stream);

  std::vector<KvGroupSpec> kv_groups() const;

  // The form for a slice of num_tokens query tokens with kv_begin rows before it, kAbsorbed or
  // kExpanded: the one with fewer multiply-adds, and absorbed for a single token. It depends on
  // nothing else, so a sequence computes the same bits whatever it is batched with.
  AttentionForm attention_form(int64_t num_tokens, int64_t kv_begin) const;
  // Multiply-adds of a slice's attention over all layers and heads; the form is one of attention_form()'s.
  double attention_macs(AttentionForm form, int64_t num_tokens, int64_t kv_begin) const;
  // Of all other matrices but the head, for one token.
  double linear_macs_per_token() const;
  // The longest slice that attention_form() may call absorbed; 0 = none.
  int64_t max_absorbed_tokens() const;

  int64_t workspace_bytes(const WorkspaceLimits& limits) const;
  // Throws StartupError when there is no room.
  Workspace make_workspace(const WorkspaceLimits& limits) const;

  // Writes this step's cache rows and returns the hidden states after the final norm, act[tokens,
  // hidden_size], in the workspace: valid until the next forward() with it.
  tensor::Tensor forward(const ForwardBatch& batch, const KvStorage& kv, Workspace& workspace,
                         ops::Stream& stream, LayerTap* tap = nullptr) const;

  // rows  act[rows, hidden_size]  of forward();  out  f32[rows, vocab_size]
  void logits(const tensor::Tensor& rows, const tensor::Tensor& out, ops::Stream& stream) const;
  // The same of mtp_forward()'s rows, with the copy of the head where drafts are to be FP8.
  void draft_logits(const tensor::Tensor& rows, const tensor::Tensor& out,
                    ops::Stream& stream) const;

  // The draft layer on the same tokens: hidden is forward()'s result (or a previous
  // mtp_forward()'s, for a further draft step), next_token_ids i32[tokens] holds the token after
  // each. Writes the MTP layer's cache rows. Returns normed rows, act[tokens, hidden_size], in the
  // workspace, valid until the next mtp_forward(); their draft_logits() draft the token after next. Of a
  // batch that keeps some of its tokens they are the rows of those, in their place.
  // REQUIRES: has_mtp().
  tensor::Tensor mtp_forward(const tensor::Tensor& hidden, const tensor::Tensor& next_token_ids,
                             const ForwardBatch& batch, const KvStorage& kv, Workspace& workspace,
                             ops::Stream& stream) const;
  // Only the cache rows that mtp_forward() writes, for steps after which nobody drafts: no attention and no
  // experts.
  void mtp_append_rows(const tensor::Tensor& hidden, const tensor::Tensor& next_token_ids,
                       const ForwardBatch& batch, const KvStorage& kv, Workspace& workspace,
                       ops::Stream& stream) const;

 private:
  layers::LaneTokens lane_tokens(const ForwardBatch& batch) const;
  layers::StepBuffers begin_mtp(const tensor::Tensor& next_token_ids, const ForwardBatch& batch,
                                const KvStorage& kv, Workspace& workspace,
                                ops::Stream& stream) const;
  Model(const config::ModelConfig& config, const ModelOptions& options, const ops::Backend& backend,
        const comm::RankContext& rank);
  tensor::Tensor mtp_forward_kept(const tensor::Tensor& hidden, const layers::LayerStep& step,
                                  const Workspace& workspace) const;
  void multiply_head(const ops::Weight& head, const tensor::Tensor& rows, const tensor::Tensor& out,
                     ops::Stream& stream) const;
  // The rank's rows of the table, summed over ranks.
  void embed(const tensor::Tensor& ids, const tensor::Tensor& out, ops::Stream& stream) const;
  void check_operators() const;
  void check_batch(const ForwardBatch& batch, const KvStorage& kv,
                   const Workspace& workspace) const;
  static constexpr int kBlockTokens = 64;
  // With defaults in place of zeros.
  WorkspaceLimits resolved(WorkspaceLimits limits) const;
  layers::StepBufferSizes buffer_sizes(const WorkspaceLimits& limits) const;
  layers::AttentionPlan plan_attention(const ForwardBatch& batch,
                                       const layers::StepBuffers& buffers, const KvStorage& kv,
                                       ops::Stream& stream) const;
  void compute_rope_table(const ForwardBatch& batch, const layers::StepBuffers& buffers,
                          ops::Stream& stream) const;

  config::ModelConfig config_;
  ModelOptions options_;
  const ops::Backend& backend_;
  comm::RankContext rank_;
  ops::DeviceBuffer weight_memory_;
  std::vector<weights::Parameter> parameters_;
  std::unique_ptr<Network> network_;
};

}  // namespace fathom::model
