#pragma once
// A layer on its own: weights filled with seeded random values, buffers for a step, the reference backend.
//
//   LayerFixture fixture(config, {.plain = DType::kF32, .fp8 = true});            // or with another backend
//   Ffn ffn("mlp.", shape, fixture.builder());
//   fixture.fill();
//   run_layer(ffn, fixture, x, out);
//
// One thread.

#include <memory>
#include <type_traits>
#include <vector>

#include "config/model_config.h"
#include "cpu/reference/reference_backend.h"
#include "layers/attention.h"
#include "layers/moe.h"
#include "layers/weight_builder.h"
#include "ops/device_buffer.h"
#include "weights/loader.h"

namespace fathom::layers {

// A model with sizes that leave partial 128-blocks.
inline config::ModelConfig small_config() {
  config::ModelConfig config;
  config.hidden_size = 192;
  config.num_hidden_layers = 2;
  config.vocab_size = 64;
  config.intermediate_size = 160;
  config.num_attention_heads = 2;
  config.q_lora_rank = 96;
  config.kv_lora_rank = 128;
  config.qk_nope_head_dim = 32;
  config.qk_rope_head_dim = 16;
  config.v_head_dim = 32;
  config.n_routed_experts = 8;
  config.n_shared_experts = 2;
  config.num_experts_per_tok = 2;
  config.moe_intermediate_size = 72;
  config.n_group = 4;
  config.topk_group = 2;
  config.first_k_dense_replace = 1;
  return config;
}

class LayerFixture {
 public:
  static constexpr int64_t kMaxTokens = 8;

  // backend: the table that the layers are built by; they run on the reference backend. rank: whose part of them.
  LayerFixture(const config::ModelConfig& config, const WeightTypes& types,
               const ops::Backend& backend = cpu::reference_backend(),
               const comm::RankContext& rank = {})
      : config_(config),
        backend_(backend),
        rank_(rank),
        memory_(*ops::DeviceBuffer::allocate(cpu::reference_backend(), int64_t{16} << 20)),
        arena_(memory_.arena()),
        builder_(arena_, types, backend_, parameters_, rank_),
        stream_(cpu::reference_backend().make_stream({.num_threads = 1})) {}

  WeightBuilder& builder() { return builder_; }
  const std::vector<weights::Parameter>& parameters() const { return parameters_; }
  ops::Stream& stream() { return *stream_; }
  void fill() { FATHOM_CHECK(weights::fill_dummy(parameters_, {.dummy_seed = 5}), "dummy"); }

  // f32[rows, cols] of values that repeat with no simple period.
  tensor::Tensor values(int64_t rows, int64_t cols) {
    const tensor::Tensor t = arena_.allocate(tensor::DType::kF32, {rows, cols});
    for (int64_t i = 0; i < rows * cols; ++i) {
      t.as<float>()[i] = static_cast<float>((i * 7919 + 13) % 1009) / 504.0f - 1.0f;
    }
    return t;
  }

  LayerStep step(int64_t tokens) {
    buffers_ = StepBuffers::carve(arena_, {.config = &config_,
                                           .backend = &backend_,
                                           .fused = builder_.fused(),
                                           .max_batch_tokens = kMaxTokens,
                                           .expand_chunk_tokens = 16,
                                           .has_mtp = true,
                                           .rank = rank_})
                   .for_tokens(LaneTokens::alone(tokens));
    return {.batch = batch_,
            .buffers = buffers_,
            .plan = plan_,
            .cache = {},
            .index_cache = {},
            .rank = rank_,
            .stream = *stream_};
  }

 private:
  config::ModelConfig config_;
  const ops::Backend backend_;
  const comm::RankContext rank_;
  ops::DeviceBuffer memory_;
  tensor::Arena arena_;
  std::vector<weights::Parameter> parameters_;
  WeightBuilder builder_;
  std::unique_ptr<ops::Stream> stream_;
  ForwardBatch batch_;
  AttentionPlan plan_;
  StepBuffers buffers_;
};

inline std::vector<float> to_vector(const tensor::Tensor& t) {
  return {t.as<float>(), t.as<float>() + t.num_elements()};
}

// x, out  [rows, hidden_size]. Of an MoE layer the gate too.
template <class Layer>
void run_layer(const Layer& layer, LayerFixture& fixture, const tensor::Tensor& x,
               const tensor::Tensor& out) {
  const LayerStep step = fixture.step(x.dim(0));
  if constexpr (std::is_same_v<Layer, Moe>) layer.choose(x, {}, step.buffers.routed, step.stream);
  layer.forward({.values = x, .quantised = {}}, step, out);
}

}  // namespace fathom::layers
