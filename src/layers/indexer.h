#pragma once
// The lightning indexer of DeepSeek-V3.2 (ops/index.h): its weights, the keys that it caches for every token, and the
// rows that it chooses for query tokens. Every layer has one, the MTP layer too, and each rank of tensor parallelism
// has all of it. Where there is much to choose each rank does it for a part of the tokens and gets the others' lists;
// for few tokens each chooses for all, and chooses the same.
//
// Immutable after loading, thread-safe.

#include <optional>
#include <string>

#include "config/model_config.h"
#include "layers/attention.h"
#include "layers/mla.h"
#include "layers/weight_builder.h"
#include "ops/index.h"
#include "ops/linear.h"

namespace fathom::layers {

class Indexer {
 public:
  // prefix: "model.layers.3.self_attn.indexer."  wk: of the model's weights, which q_a_proj is joined with.
  Indexer(const std::string& prefix, const config::ModelConfig& config, WeightBuilder& builder,
          const ops::Weight& wk);

  // The step's keys into the cache, by a product of their own.
  void append(const ops::Activation& x, const LayerStep& step) const;
  // The product that makes queries of the rows that q_b_proj reads, where this step has to choose: the caller computes
  // it, with q_b_proj's, before append_and_choose().
  std::optional<ops::LinearPairArgs::Product> query_product(const LayerStep& step) const;
  // Whether this step has to choose and the backend makes its queries of their compressed rows in one operator.
  bool takes(const tensor::Tensor& x, const CompressedRows& q_a, const LayerStep& step) const;
  // Keys of buffers.index.k into the cache, which the caller has computed, then rows and counts of buffers.index for
  // the tokens of the plan's lists. x: not quantised. q_a: where takes() it, else the caller has made query_product().
  void append_and_choose(const tensor::Tensor& x, const CompressedRows& q_a,
                         const LayerStep& step) const;
  // With lists to make, and room in the tables for more rows than are kept.
  static bool has_to_choose(const LayerStep& step);
  // Keys of buffers.index.k into the cache, in steps that choose nothing.
  void append_keys(const LayerStep& step) const;
  // Whether ranks share the choice, which then ends with an exchange.
  static bool shares_choice(const LayerStep& step);

 private:
  ops::IndexAppendArgs keys_of(const LayerStep& step) const;
  ops::IndexAppendQueryArgs keys_and_queries(const tensor::Tensor& x, const CompressedRows& q_a,
                                             const LayerStep& step) const;
  // Keys into the cache, and queries.
  void append_keys_and_queries(const ops::IndexAppendQueryArgs& args, const LayerStep& step) const;
  // Of FP8 keys.
  bool has_one_operator(const LayerStep& step) const;
  // The ranks of tensor parallelism, each for its part of the tokens.
  void choose_together(const ListedTokens& listed, const LayerStep& step) const;
  // Some of the listed ones. settled: of ops::IndexQueries.
  void choose_range(const TokenRange& range, const ListedTokens& listed, bool settled,
                    const LayerStep& step) const;

  int64_t n_heads_, head_dim_;
  FusedOps fused_;
  ops::Weight wq_b_;              // [n_heads * head_dim, q_lora_rank]
  ops::Weight wk_;                // [head_dim, hidden_size]
  tensor::Tensor k_norm_weight_;  // [head_dim]
  tensor::Tensor k_norm_bias_;    // f32[head_dim]
  tensor::Tensor weights_proj_;   // [n_heads, hidden_size], never FP8
};

}  // namespace fathom::layers
