#include "layers/attention_kind.h"

#include <algorithm>

#include "layers/dsa.h"
#include "layers/mla.h"

namespace fathom::layers {
namespace {

using tensor::DType;

// Pairs of a query token and a row that it sees.
double visible_pairs(int64_t num_tokens, int64_t kv_begin) {
  const int64_t among_themselves = num_tokens * (num_tokens + 1) / 2;
  return static_cast<double>(num_tokens * kv_begin + among_themselves);
}

DType key_type(DType cache) { return cache == DType::kF32 ? DType::kF32 : DType::kF8E4M3; }

}  // namespace

std::unique_ptr<Attention> make_attention(const std::string& prefix,
                                          const config::ModelConfig& config,
                                          WeightBuilder& builder) {
  if (config.index_config) return std::make_unique<Dsa>(prefix, config, builder);
  return std::make_unique<Mla>(prefix, config, builder);
}

CacheFormat cache_format(const config::ModelConfig& config, DType cache) {
  CacheFormat format{
      .latent = ops::KvFormat::of(cache, config.kv_lora_rank, config.qk_rope_head_dim),
      .index = {}};
  if (config.index_config)
    format.index = ops::IndexFormat::of(key_type(cache), config.index_config->head_dim);
  return format;
}

std::vector<ops::Requirement> attention_requirements(const config::ModelConfig& config, DType cache,
                                                     DType absorbed, DType act) {
  std::vector<ops::Requirement> needs = {
      {"head_linear", absorbed}, {"rope_table", DType::kF32}, {"rope", act},
      {"kv_append", cache},      {"kv_gather", cache},        {"mla_expanded", act}};
  if (!config.index_config) {
    needs.push_back({"mla_absorbed", cache});
    return needs;
  }
  for (const std::string_view op : {"index_append", "index_query", "index_scores"})
    needs.push_back({op, key_type(cache)});
  needs.push_back({"top_rows", DType::kF32});
  needs.push_back({"mla_sparse", cache});
  return needs;
}

double AttentionCost::kv_b_macs() const {
  return static_cast<double>(config_.kv_lora_rank) *
         (config_.qk_nope_head_dim + config_.v_head_dim);
}

int64_t AttentionCost::num_dense_tokens(int64_t num_tokens, int64_t kv_begin) const {
  if (!config_.index_config) return num_tokens;
  return std::clamp<int64_t>(config_.index_config->topk - kv_begin, 0, num_tokens);
}

// The tokens from the first on that sees more rows than are kept, with the indexer's own work.
double AttentionCost::listed_macs(int64_t num_tokens, int64_t kv_begin) const {
  const int64_t dense = num_dense_tokens(num_tokens, kv_begin), listed = num_tokens - dense;
  if (listed == 0) return 0;
  const config::IndexConfig& index = *config_.index_config;
  const double pairs = static_cast<double>(listed) * index.topk;
  const double in_heads =
      static_cast<double>(listed) * kv_b_macs() + pairs * (config_.kv_dim() + config_.kv_lora_rank);
  return in_heads * config_.num_attention_heads +
         visible_pairs(listed, kv_begin + dense) * index.n_heads * index.head_dim;
}

double AttentionCost::absorbed_macs(int64_t num_tokens, int64_t kv_begin) const {
  const int64_t dense = num_dense_tokens(num_tokens, kv_begin);
  const double in_head = static_cast<double>(dense) * kv_b_macs() +
                         visible_pairs(dense, kv_begin) * (config_.kv_dim() + config_.kv_lora_rank);
  return in_head * config_.num_attention_heads + listed_macs(num_tokens, kv_begin);
}

double AttentionCost::expanded_macs(int64_t num_tokens, int64_t kv_begin) const {
  const int64_t dense = num_dense_tokens(num_tokens, kv_begin);
  if (dense == 0) return listed_macs(num_tokens, kv_begin);
  const double in_head =
      static_cast<double>(kv_begin + dense) * kv_b_macs() +
      visible_pairs(dense, kv_begin) * (config_.qk_head_dim() + config_.v_head_dim);
  return in_head * config_.num_attention_heads + listed_macs(num_tokens, kv_begin);
}

double AttentionCost::linear_macs_per_token() const {
  const double hidden = config_.hidden_size, heads = config_.num_attention_heads;
  const double q_dim = heads * config_.qk_head_dim();
  double query = config_.q_lora_rank ? *config_.q_lora_rank * (hidden + q_dim) : hidden * q_dim;
  if (config_.index_config) {
    const config::IndexConfig& index = *config_.index_config;
    query += static_cast<double>(index.n_heads) * index.head_dim * *config_.q_lora_rank +
             hidden * (index.head_dim + index.n_heads);
  }
  return query + hidden * config_.kv_dim() + heads * config_.v_head_dim * hidden;
}

}  // namespace fathom::layers
