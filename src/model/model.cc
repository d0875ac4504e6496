#include "model/model.h"

#include <bit>
#include <limits>

#include "base/startup_error.h"
#include "layers/attention_kind.h"
#include "model/network.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/rope.h"

namespace fathom::model {
namespace {

using tensor::DType;
using tensor::Tensor;

// Longer slices are not weighed: expanding is cheaper for all published shapes.
constexpr int64_t kMaxAbsorbedTokens = 64;

// Rows of a slice for each token that attends by bits, at most: an H200 expands a row of 16 heads in 0.015 us, and such
// a token takes 0.1 to 0.15 us less. Where the form is fixed it is any number, so that nothing depends on slices.
int64_t rows_of_bits_token(const ModelOptions& options) {
  return options.attention_form == AttentionForm::kAuto ? 8 : std::numeric_limits<int64_t>::max();
}

DType plain_type(const config::ModelConfig& config, const ModelOptions& options) {
  const DType stored = config.torch_dtype == "float32" ? DType::kF32 : DType::kBf16;
  return options.weight_dtype.value_or(stored);
}

DType absorbed_type(const config::ModelConfig& config, const ModelOptions& options) {
  return options.absorbed_dtype.value_or(plain_type(config, options));
}

layers::WeightTypes weight_types(const config::ModelConfig& config, const ModelOptions& options) {
  layers::WeightTypes types = layers::quantised_types(config, options.dequantize);
  types.plain = plain_type(config, options);
  types.fp8_absorbed = absorbed_type(config, options) == DType::kF8E4M3;
  types.fp8_drafts = options.fp8_drafts;
  return types;
}

void check_absorbed_type(const config::ModelConfig& config, const ModelOptions& options) {
  const DType plain = plain_type(config, options);
  const DType absorbed = absorbed_type(config, options);
  const std::string what = "W_UK and W_UV in " + std::string(tensor::dtype_name(absorbed));
  if (absorbed != plain && plain != DType::kBf16)
    throw StartupError(what + " need bf16 weights beside them, not " +
                       std::string(tensor::dtype_name(plain)));
  if (absorbed == DType::kF8E4M3 && options.dequantize)
    throw StartupError(what + " contradict a model whose FP8 weights are dequantised");
}

void check_fp8_drafts(const config::ModelConfig& config, const ModelOptions& options) {
  if (!options.fp8_drafts) return;
  const std::string what = "FP8 copies of matrices for drafts ";
  if (!options.load_mtp || config.num_nextn_predict_layers == 0)
    throw StartupError(what + "need an MTP layer");
  if (plain_type(config, options) != DType::kBf16)
    throw StartupError(what + "need bf16 weights, not " +
                       std::string(tensor::dtype_name(plain_type(config, options))));
  if (options.dequantize)
    throw StartupError(what + "contradict a model whose FP8 weights are dequantised");
}

// What the layers can be divided into.
void check_rank(const comm::RankContext& rank) {
  const int tp = rank.tp->size(), dp = rank.dp->size(), ep = rank.ep->size();
  const int parts = rank.sum_parts;
  FATHOM_CHECK(parts == 1 || (std::has_single_bit(static_cast<unsigned>(parts)) &&
                              parts % rank.count() == 0 && ep == 1),
               parts << " parts of sums over " << rank.count() << " ranks");
  if (ep != 1 && ep != tp * dp)
    throw StartupError("expert parallelism of " + std::to_string(ep) + " ranks needs all " +
                       std::to_string(tp * dp) + " ranks of the model, or 1");
}

// The FP8 form of an indexer's keys has one scale a row, as matrices have one for so many values.
void check_index_keys(const config::ModelConfig& config, const ModelOptions& options) {
  if (!config.index_config || config.index_config->head_dim == tensor::kScaleBlock) return;
  if (layers::cache_format(config, options.kv_cache_dtype).index->values == DType::kF32) return;
  throw StartupError("\"index_head_dim\" is " + std::to_string(config.index_config->head_dim) +
                     ", must be " + std::to_string(tensor::kScaleBlock) + " with a cache of " +
                     std::string(tensor::dtype_name(options.kv_cache_dtype)) +
                     ", beside which the indexer's keys are FP8");
}

[[noreturn]] void throw_no_room(const char* what, int64_t bytes, const ops::Backend& backend) {
  throw StartupError(std::string(what) + ": " + std::to_string(bytes) + " bytes are needed, " +
                     std::string(backend.device) + " has " +
                     std::to_string(backend.free_memory_bytes()) + " free");
}

}  // namespace

Model::Model(const config::ModelConfig& config, const ModelOptions& options,
             const ops::Backend& backend, const comm::RankContext& rank)
    : config_(config), options_(options), backend_(backend), rank_(rank) {
  const auto is_plain = [](DType dtype) { return dtype == DType::kF32 || dtype == DType::kBf16; };
  FATHOM_CHECK(ops::KvFormat::is_known(options.kv_cache_dtype),
               "kv_cache_dtype " << tensor::dtype_name(options.kv_cache_dtype));
  FATHOM_CHECK(!options.weight_dtype || is_plain(*options.weight_dtype),
               "weight_dtype " << tensor::dtype_name(*options.weight_dtype));
  FATHOM_CHECK(!options.absorbed_dtype || *options.absorbed_dtype == DType::kBf16 ||
                   *options.absorbed_dtype == DType::kF8E4M3,
               "absorbed_dtype " << tensor::dtype_name(*options.absorbed_dtype));
  FATHOM_CHECK(options.expand_chunk_tokens > 0,
               "expand_chunk_tokens " << options.expand_chunk_tokens);
}

Model::~Model() = default;

std::unique_ptr<Model> Model::create(const config::ModelConfig& config, const ModelOptions& options,
                                     const ops::Backend& backend, const comm::RankContext& rank) {
  check_absorbed_type(config, options);
  check_fp8_drafts(config, options);
  check_index_keys(config, options);
  check_rank(rank);
  std::unique_ptr<Model> model(new Model(config, options, backend, rank));
  model->check_operators();
  const layers::WeightTypes types = weight_types(config, options);
  tensor::Arena measure;
  {
    std::vector<weights::Parameter> unused;
    layers::WeightBuilder builder(measure, types, backend, unused, rank);
    const Network measured(config, model->has_mtp(), builder);
  }
  std::optional<ops::DeviceBuffer> memory =
      ops::DeviceBuffer::allocate(backend, measure.peak_bytes());
  if (!memory) throw_no_room("the model's weights", measure.peak_bytes(), backend);
  model->weight_memory_ = std::move(*memory);
  tensor::Arena arena = model->weight_memory_.arena();
  layers::WeightBuilder builder(arena, types, backend, model->parameters_, rank);
  model->network_ = std::make_unique<Network>(config, model->has_mtp(), builder);
  return model;
}

void Model::check_operators() const {
  const layers::WeightTypes types = weight_types(config_, options_);
  const DType matrix = types.matrix();
  std::vector<ops::Requirement> needs = {{"embedding", types.plain}, {"gather_rows", backend_.act},
                                         {"rms_norm", types.plain},  {"linear", types.plain},
                                         {"linear", matrix},         {"silu_mul", backend_.act}};
  for (const ops::Requirement& need : layers::attention_requirements(
           config_, options_.kv_cache_dtype, absorbed_dtype(), backend_.act))
    needs.push_back(need);
  if (options_.fp8_drafts) needs.push_back({"linear", DType::kF8E4M3});
  if (rank_.sum_parts > 1) needs.push_back({"add_rows", backend_.act});
  if (config_.n_routed_experts > 0) {
    needs.push_back({"moe_gate", types.plain});
    needs.push_back({"moe_experts", types.experts()});
  }
  const std::vector<std::string> missing = ops::missing_operators(backend_, needs);
  if (missing.empty()) return;
  std::string message;
  for (const std::string& line : missing) message += (message.empty() ? "" : "\n") + line;
  if (!ops::provides(backend_, {"linear", matrix}) &&
      ops::provides(backend_, {"linear", types.plain}))
    message += "\n--dequantize computes such matrices in " +
               std::string(tensor::dtype_name(types.plain)) + ", which takes more memory";
  throw StartupError(message);
}

bool Model::has_mtp() const { return options_.load_mtp && config_.num_nextn_predict_layers > 0; }

DType Model::absorbed_dtype() const { return absorbed_type(config_, options_); }

std::vector<std::string> Model::ignored_prefixes() const {
  if (config_.num_nextn_predict_layers == 0) return {};
  std::vector<std::string> prefixes;
  // Published checkpoints repeat the embedding and the head inside the MTP layer; one copy is
  // enough. Of several MTP layers only the first is used.
  if (has_mtp()) {
    const std::string first = layers::layer_prefix(config_.num_hidden_layers);
    prefixes = {first + "embed_tokens.", first + "shared_head.head."};
  }
  for (int i = has_mtp() ? 1 : 0; i < config_.num_nextn_predict_layers; ++i) {
    prefixes.push_back(layers::layer_prefix(config_.num_hidden_layers + i));
  }
  return prefixes;
}

void Model::finish_loading(ops::Stream& stream) { network_->finish_loading(stream); }

std::vector<KvGroupSpec> Model::kv_groups() const {
  return {{.name = "mla",
           .num_layers = config_.num_hidden_layers + (has_mtp() ? 1 : 0),
           .format = layers::cache_format(config_, options_.kv_cache_dtype),
           .block_tokens = kBlockTokens}};
}

AttentionForm Model::attention_form(int64_t num_tokens, int64_t kv_begin) const {
  if (options_.attention_form != AttentionForm::kAuto) return options_.attention_form;
  if (num_tokens == 1) return AttentionForm::kAbsorbed;
  if (num_tokens > kMaxAbsorbedTokens) return AttentionForm::kExpanded;
  const layers::AttentionCost cost(config_);
  if (cost.num_dense_tokens(num_tokens, kv_begin) == 0) return AttentionForm::kAbsorbed;
  return cost.absorbed_macs(num_tokens, kv_begin) < cost.expanded_macs(num_tokens, kv_begin)
             ? AttentionForm::kAbsorbed
             : AttentionForm::kExpanded;
}

double Model::attention_macs(AttentionForm form, int64_t num_tokens, int64_t kv_begin) const {
  const layers::AttentionCost cost(config_);
  return config_.num_hidden_layers * (form == AttentionForm::kAbsorbed
                                          ? cost.absorbed_macs(num_tokens, kv_begin)
                                          : cost.expanded_macs(num_tokens, kv_begin));
}

double Model::linear_macs_per_token() const {
  const double hidden = config_.hidden_size;
  const double attention = layers::AttentionCost(config_).linear_macs_per_token();
  const double dense = 3 * hidden * config_.intermediate_size;
  const double experts = 3 * hidden * config_.moe_intermediate_size *
                         (config_.num_experts_per_tok + config_.n_shared_experts);
  double macs = 0;
  for (int layer_idx = 0; layer_idx < config_.num_hidden_layers; ++layer_idx)
    macs += attention + (config_.is_moe_layer(layer_idx) ? experts : dense);
  return macs;
}

int64_t Model::max_absorbed_tokens() const {
  switch (options_.attention_form) {
    case AttentionForm::kAuto:
      return kMaxAbsorbedTokens;
    case AttentionForm::kAbsorbed:
      return config_.max_position_embeddings;
    case AttentionForm::kExpanded:
      return 0;
  }
  FATHOM_CHECK(false, "attention_form " << static_cast<int>(options_.attention_form));
}

int64_t Model::workspace_bytes(const WorkspaceLimits& limits) const {
  tensor::Arena measure;
  layers::StepBuffers::carve(measure, buffer_sizes(limits));
  return measure.peak_bytes();
}

WorkspaceLimits Model::resolved(WorkspaceLimits limits) const {
  if (limits.max_rows == 0)
    limits.max_rows =
        (config_.max_position_embeddings + kBlockTokens - 1) / kBlockTokens * kBlockTokens;
  return limits;
}

Workspace Model::make_workspace(const WorkspaceLimits& asked) const {
  const WorkspaceLimits limits = resolved(asked);
  const int64_t bytes = workspace_bytes(limits);
  ops::DeviceBuffer memory =
      ops::DeviceBuffer::allocate_for_step(backend_, bytes, "the workspace of a step");
  tensor::Arena arena = memory.arena();
  const auto buffers = layers::StepBuffers::carve(arena, buffer_sizes(limits));
  return Workspace(limits, std::move(memory), buffers);
}

layers::StepBufferSizes Model::buffer_sizes(const WorkspaceLimits& limits) const {
  FATHOM_CHECK(limits.max_batch_tokens > 0, "max_batch_tokens " << limits.max_batch_tokens);
  return {.config = &config_,
          .backend = &backend_,
          .fused = layers::FusedOps::of(backend_, weight_types(config_, options_)),
          .max_batch_tokens = limits.max_batch_tokens,
          .expand_chunk_tokens = options_.expand_chunk_tokens,
          .max_rows = resolved(limits).max_rows,
          .index = layers::cache_format(config_, options_.kv_cache_dtype).index,
          .cache = options_.kv_cache_dtype,
          .has_mtp = has_mtp(),
          .rank = rank_};
}

layers::LaneTokens Model::lane_tokens(const ForwardBatch& batch) const {
  const std::vector<int64_t>& starts = batch.lane_starts;
  if (starts.empty() && rank_.dp->size() == 1) return layers::LaneTokens::alone(batch.num_tokens());
  FATHOM_CHECK(static_cast<int>(starts.size()) == rank_.dp->size() + 1,
               starts.size() << " starts of lanes, " << rank_.dp->size() << " lanes");
  const auto lane = static_cast<size_t>(rank_.dp->rank());
  return {.begin = starts[lane], .end = starts[lane + 1], .of_all = starts.back()};
}

void Model::check_batch(const ForwardBatch& batch, const KvStorage& kv,
                        const Workspace& workspace) const {
  const int64_t tokens = batch.num_tokens();
  const layers::LaneTokens lane = lane_tokens(batch);
  FATHOM_CHECK(
      lane.count() == tokens && lane.of_all >= 1 && lane.of_all <= workspace.max_batch_tokens(),
      tokens << " tokens in a lane of " << lane.count() << ", " << lane.of_all
             << " of all, the workspace holds " << workspace.max_batch_tokens());
  int64_t covered = batch.num_absorbed_tokens;
  for (const ExpandedSequence& sequence : batch.expanded) {
    FATHOM_CHECK(sequence.token_begin == covered && sequence.num_tokens > 0,
                 "expanded sequence at token " << sequence.token_begin << ", expected " << covered);
    covered += sequence.num_tokens;
  }
  FATHOM_CHECK(covered == tokens, "sequences cover " << covered << " of " << tokens << " tokens");
  const KvGroupSpec group = kv_groups()[0];
  FATHOM_CHECK(
      kv.spec().num_layers == group.num_layers && kv.spec().format == group.format,
      "the cache is not of this model: " << kv.spec().num_layers << " layers of "
                                         << tensor::dtype_name(kv.spec().format.latent.latent));
  FATHOM_CHECK(!kv.spec().format.index ||
                   batch.block_tables.dim(1) * kv.spec().block_tokens <= workspace.max_rows(),
               "block tables of " << batch.block_tables.dim(1) << " blocks, the workspace holds "
                                  << workspace.max_rows() << " rows");
}

Tensor Model::forward(const ForwardBatch& batch, const KvStorage& kv, Workspace& workspace,
                      ops::Stream& stream, LayerTap* tap) const {
  check_batch(batch, kv, workspace);
  const layers::StepBuffers buffers = workspace.buffers_.for_tokens(lane_tokens(batch));
  const bool has_tokens = batch.num_tokens() > 0;
  if (has_tokens) compute_rope_table(batch, buffers, stream);
  const layers::AttentionPlan plan = plan_attention(batch, buffers, kv, stream);
  // A tap reads the residual stream of all rows, and operators need the most scratch for all of them.
  const bool shares_rows =
      tap == nullptr && !stream.is_measuring() && network_->layers.front().can_share_rows();
  layers::ResidualStream residual_stream(
      buffers.residual, buffers.branch,
      shares_rows ? layers::RowShares::of(batch.num_tokens(), *rank_.tp) : layers::RowShares());
  if (has_tokens) embed(batch.token_ids, buffers.residual, stream);
  if (tap != nullptr) tap->on_layer(0, buffers.residual, Tensor(), stream);
  for (int layer_idx = 0; layer_idx < config_.num_hidden_layers; ++layer_idx) {
    const layers::LayerStep step{.batch = batch,
                                 .buffers = buffers,
                                 .plan = plan,
                                 .cache = kv.layer(layer_idx),
                                 .index_cache = kv.index_layer(layer_idx),
                                 .rank = rank_,
                                 .stream = stream};
    network_->layers[static_cast<size_t>(layer_idx)].forward(residual_stream, step);
    if (tap != nullptr) {
      tap->on_layer(layer_idx + 1, buffers.residual, buffers.branch, stream);
    }
  }
  if (has_tokens)
    residual_stream.normalise(network_->norm, {.values = buffers.hidden, .quantised = {}}, stream);
  return buffers.hidden;
}

void Model::logits(const Tensor& rows, const Tensor& out, ops::Stream& stream) const {
  multiply_head({.data = network_->lm_head, .scale = {}}, rows, out, stream);
}

void Model::draft_logits(const Tensor& rows, const Tensor& out, ops::Stream& stream) const {
  multiply_head(network_->draft_head, rows, out, stream);
}

void Model::multiply_head(const ops::Weight& head, const Tensor& rows, const Tensor& out,
                          ops::Stream& stream) const {
  const int64_t columns = head.data.dim(0), first = rank_.tp->rank() * columns;
  ops::linear({.x = rows, .weight = head, .out = out.slice(1, first, first + columns)}, stream);
  rank_.tp->all_gather(out, 1, stream);
}

void Model::embed(const Tensor& ids, const Tensor& out, ops::Stream& stream) const {
  const Tensor& table = network_->embed_tokens;
  ops::embedding({.ids = ids,
                  .table = table,
                  .out = out,
                  .first_id = rank_.tp->rank() * table.dim(0),
                  .vocab_size = config_.vocab_size},
                 stream);
  rank_.tp->all_reduce(out, stream);
}

// What the draft layer reads beside the hidden states: angles, and the embedding of the next tokens in `normed`.
layers::StepBuffers Model::begin_mtp(const Tensor& next_token_ids, const ForwardBatch& batch,
                                     const KvStorage& kv, Workspace& workspace,
                                     ops::Stream& stream) const {
  FATHOM_CHECK(has_mtp(), "the model has no MTP layer");
  check_batch(batch, kv, workspace);
  const layers::StepBuffers buffers = workspace.buffers_.for_tokens(lane_tokens(batch));
  if (batch.num_tokens() == 0) return buffers;
  compute_rope_table(batch, buffers, stream);
  embed(next_token_ids, buffers.normed, stream);
  return buffers;
}

// NOLINTNEXTLINE(readability-function-size)
void Model::mtp_append_rows(const Tensor& hidden, const Tensor& next_token_ids,
                            const ForwardBatch& batch, const KvStorage& kv, Workspace& workspace,
                            ops::Stream& stream) const {
  const layers::StepBuffers buffers = begin_mtp(next_token_ids, batch, kv, workspace, stream);
  const layers::AttentionPlan plan;  // nobody attends
  network_->mtp->append_rows(hidden, buffers.normed,
                             {.batch = batch,
                              .buffers = buffers,
                              .plan = plan,
                              .cache = kv.layer(config_.num_hidden_layers),
                              .index_cache = kv.index_layer(config_.num_hidden_layers),
                              .rank = rank_,
                              .stream = stream});
}

// The parameters are forward()'s and the two that a draft adds.
// NOLINTNEXTLINE(readability-function-size)
Tensor Model::mtp_forward(const Tensor& hidden, const Tensor& next_token_ids,
                          const ForwardBatch& batch, const KvStorage& kv, Workspace& workspace,
                          ops::Stream& stream) const {
  const layers::StepBuffers buffers = begin_mtp(next_token_ids, batch, kv, workspace, stream);
  const layers::AttentionPlan plan = plan_attention(batch, buffers, kv, stream);
  const layers::LayerStep step{.batch = batch,
                               .buffers = buffers,
                               .plan = plan,
                               .cache = kv.layer(config_.num_hidden_layers),
                               .index_cache = kv.index_layer(config_.num_hidden_layers),
                               .rank = rank_,
                               .stream = stream};
  if (!batch.kept.out.is_null()) return mtp_forward_kept(hidden, step, workspace);
  network_->mtp->forward(hidden, buffers.normed, step, buffers.mtp_hidden);
  return buffers.mtp_hidden;
}

Tensor Model::mtp_forward_kept(const Tensor& hidden, const layers::LayerStep& step,
                               const Workspace& workspace) const {
  ForwardBatch kept;
  kept.token_ids = step.batch.kept.rows;  // they are only counted
  kept.kv_rows = step.batch.kept.kv_rows;
  kept.lane_starts = step.batch.kept.lane_starts;
  const layers::StepBuffers buffers = workspace.buffers_.for_tokens(lane_tokens(kept));
  network_->mtp->forward_kept(hidden, step.buffers.normed, step,
                              {.batch = kept,
                               .buffers = buffers,
                               .plan = step.plan,
                               .cache = step.cache,
                               .index_cache = step.index_cache,
                               .rank = rank_,
                               .stream = step.stream});
  return step.batch.kept.out;
}

layers::AttentionPlan Model::plan_attention(const ForwardBatch& batch,
                                            const layers::StepBuffers& buffers, const KvStorage& kv,
                                            ops::Stream& stream) const {
  return layers::plan_attention(batch,
                                {.heads = config_.num_attention_heads / rank_.tp->size(),
                                 .chunk_rows = buffers.mla.kv.dim(0),
                                 .plan_buffer = buffers.plan,
                                 .max_rows = batch.tables().dim(1) * kv.spec().block_tokens,
                                 .topk = config_.index_config ? config_.index_config->topk : 0,
                                 .copy_rows = buffers.index.copy_rows(),
                                 .bits_rows = buffers.index.kept_rows(),
                                 .rows_of_bits_token = rows_of_bits_token(options_)},
                                stream);
}

void Model::compute_rope_table(const ForwardBatch& batch, const layers::StepBuffers& buffers,
                               ops::Stream& stream) const {
  ops::rope_table({.positions = batch.positions,
                   .inv_freq = network_->inv_freq,
                   .magnitude = network_->rope.magnitude,
                   .table = buffers.rope_table},
                  stream);
}

}  // namespace fathom::model
