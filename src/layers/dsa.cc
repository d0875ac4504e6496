#include "layers/dsa.h"

#include "ops/index.h"

namespace fathom::layers {

using tensor::Tensor;

Dsa::Dsa(const std::string& prefix, const config::ModelConfig& config, WeightBuilder& builder)
    : mla_(prefix, config, builder,
           NamedRows{prefix + "indexer.wk.weight", config.index_config->head_dim}),
      indexer_(prefix + "indexer.", config, builder, mla_.beside_q_a()) {}

void Dsa::forward(const NormedRows& x, const LayerStep& step, const Tensor& out) const {
  const bool has_absorbed = mla_.make_queries(x.input(), indexer_.query_product(step), step);
  indexer_.append_and_choose(x.values, step);
  // Before the expanded form, which takes the memory of lists and absorbed queries.
  for (const TokenRange& range : step.plan.listed) {
    if (!has_absorbed) mla_.absorb(range, step);
    attend_listed(range, step);
  }
  mla_.attend_expanded(step);
  mla_.project_out(step, out);
}

void Dsa::append_rows(const NormedRows& x, const LayerStep& step) const {
  mla_.append_rows(x, step);
  indexer_.append(x.input(), step);
}

void Dsa::attend_listed(const TokenRange& range, const LayerStep& step) const {
  const IndexBuffers& buffers = step.buffers.index;
  const AbsorbedTokens tokens = mla_.absorbed(range, step);
  ops::mla_sparse({.q_latent = tokens.q_latent,
                   .q_rope = tokens.q_rope,
                   .cache = step.cache,
                   .rows = buffers.rows.slice(0, range.begin, range.end),
                   .counts = buffers.counts.slice(0, range.begin, range.end),
                   .scale = mla_.softmax_scale(),
                   .out = tokens.out_latent},
                  step.stream);
  mla_.leave_latent(range, step);
}

}  // namespace fathom::layers
