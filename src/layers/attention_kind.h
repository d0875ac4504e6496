#pragma once
// What a model's kind of attention asks of its surroundings: the class of its layers, the rows of its cache, the
// operators that it runs, and what a slice costs. MLA (DeepSeek-V2 and V3) and, with an indexer, DSA (V3.2). The model
// asks here and knows no kind by name.
//
//   std::unique_ptr<Attention> attention = make_attention("model.layers.3.self_attn.", config, builder);
//   const CacheFormat format = cache_format(config, DType::kF8E4M3);
//   const AttentionCost cost(config);
//   cost.absorbed_macs(/*num_tokens=*/1, /*kv_begin=*/4095);
//
// Pure functions.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "layers/attention.h"
#include "layers/weight_builder.h"
#include "ops/backend.h"
#include "ops/index_cache.h"
#include "ops/kv_format.h"

namespace fathom::layers {

std::unique_ptr<Attention> make_attention(const std::string& prefix,
                                          const config::ModelConfig& config,
                                          WeightBuilder& builder);

// Of one token in one layer.
struct CacheFormat {
  ops::KvFormat latent;
  std::optional<ops::IndexFormat> index;  // none without an indexer

  int64_t row_bytes() const { return latent.row_bytes + (index ? index->row_bytes() : 0); }
  bool operator==(const CacheFormat&) const = default;
};
// cache: of the latent values. Keys of an indexer are f32 beside f32 and f8_e4m3 beside all others.
CacheFormat cache_format(const config::ModelConfig& config, tensor::DType cache);

// The operators beside those of norms and matrices. absorbed: of W_UK and W_UV.
std::vector<ops::Requirement> attention_requirements(const config::ModelConfig& config,
                                                     tensor::DType cache, tensor::DType absorbed,
                                                     tensor::DType act);

// Multiply-adds of a slice of num_tokens query tokens with kv_begin rows before it, in one layer with all heads.
// Absorbed carries each query through W_UK and W_UV and attends in kv_lora_rank dimensions; expanded carries each row
// of the cache through kv_b_proj and attends in head dimensions. Tokens that see more than the indexer keeps cost the
// same in both.
class AttentionCost {
 public:
  explicit AttentionCost(const config::ModelConfig& config) : config_(config) {}

  double absorbed_macs(int64_t num_tokens, int64_t kv_begin) const;
  double expanded_macs(int64_t num_tokens, int64_t kv_begin) const;
  // Of the slice's tokens, those for which the forms differ.
  int64_t num_dense_tokens(int64_t num_tokens, int64_t kv_begin) const;
  // Of a token's matrix products.
  double linear_macs_per_token() const;

 private:
  double listed_macs(int64_t num_tokens, int64_t kv_begin) const;
  double kv_b_macs() const;  // of a row or query in one head

  const config::ModelConfig& config_;
};

}  // namespace fathom::layers
