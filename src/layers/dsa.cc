#include "layers/dsa.h"

#include "ops/index.h"
#include "ops/kv_cache.h"

namespace fathom::layers {

using tensor::DType;
using tensor::Tensor;

namespace {

// A prompt's rows of the cache in the type of activations, as a cache of their own.
ops::KvCache copy_of_rows(const ListedTokens& listed, const LayerStep& step) {
  const ops::KvFormat& cached = step.cache.format;
  const Tensor rows = step.buffers.index.copy.slice(0, 0, listed.num_copied);
  const ops::ExpandedSegment all{.sequence_idx = listed.sequence_idx,
                                 .num_rows = listed.num_copied};
  ops::kv_gather({.cache = step.cache,
                  .block_tables = step.batch.block_tables,
                  .segments = {&all, 1},
                  .latent = rows.slice(1, 0, cached.latent_dim),
                  .k_rope = rows.slice(1, cached.latent_dim, cached.dim())},
                 step.stream);
  const ops::KvFormat format = ops::KvFormat::of(rows.dtype(), cached.latent_dim, cached.rope_dim);
  return {
      .rows = Tensor::contiguous(rows.data(), DType::kU8, {listed.num_copied, 1, format.row_bytes}),
      .format = format};
}

}  // namespace

Dsa::Dsa(const std::string& prefix, const config::ModelConfig& config, WeightBuilder& builder)
    : mla_(prefix, config, builder,
           NamedRows{prefix + "indexer.wk.weight", config.index_config->head_dim}),
      indexer_(prefix + "indexer.", config, builder, mla_.beside_q_a()) {}

bool Dsa::make_queries_and_lists(const NormedRows& x, const LayerStep& step) const {
  const CompressedRows q_a = mla_.compressed(step);
  if (!indexer_.takes(x.values, q_a, step)) {
    const bool has_absorbed = mla_.make_queries(x.input(), indexer_.query_product(step), step);
    indexer_.append_and_choose(x.values, {}, step);
    return has_absorbed;
  }
  if (!mla_.absorbs_compressed(step)) {
    const bool has_absorbed = mla_.make_queries(x.input(), {}, step);
    indexer_.append_and_choose(x.values, q_a, step);
    return has_absorbed;
  }
  // The choice of few tokens leaves the GPU idle, so attention's own queries are made beside it.
  mla_.compress(x.input(), step);
  indexer_.append_and_choose(x.values, q_a, step);
  mla_.absorb_compressed(/*settled=*/!indexer_.shares_choice(step), step);
  return true;
}

bool Dsa::attends_to_all(const LayerStep& step) {
  const ForwardBatch& batch = step.batch;
  const TokenRange decodes{.begin = 0, .end = batch.num_absorbed_tokens};
  return batch.num_tokens() == decodes.size() && decodes.size() <= ops::kFewSparseTokens &&
         step.buffers.mla.q.dim(1) <= ops::kFewSparseHeads && batch.tree_mask.is_null() &&
         !Indexer::has_to_choose(step);
}

void Dsa::forward_to_all(const NormedRows& x, const LayerStep& step, const Tensor& out) const {
  const TokenRange tokens{.begin = 0, .end = step.batch.num_absorbed_tokens};
  bool has_absorbed = mla_.absorbs_compressed(step);
  if (has_absorbed) {
    mla_.compress(x.input(), step);
    indexer_.append_keys(step);
    mla_.absorb_compressed(/*settled=*/true, step);
  } else {
    has_absorbed = mla_.make_queries(x.input(), {}, step);
    indexer_.append_keys(step);
  }
  if (!has_absorbed) mla_.absorb(tokens, step);
  mla_.attend_absorbed(tokens, step);
  mla_.project_out(step, out);
}

void Dsa::forward(const NormedRows& x, const LayerStep& step, const Tensor& out) const {
  if (attends_to_all(step)) return forward_to_all(x, step, out);
  const bool has_absorbed = make_queries_and_lists(x, step);
  // Before the expanded form, which takes the memory of lists and absorbed queries.
  for (const ListedTokens& listed : step.plan.listed) {
    if (listed.by_bits) continue;
    if (!has_absorbed) mla_.absorb(listed.tokens, step);
    attend_listed(listed, step);
  }
  mla_.attend_expanded(step);
  mla_.project_out(step, out);
}

void Dsa::append_rows(const NormedRows& x, const LayerStep& step) const {
  mla_.append_rows(x, step);
  indexer_.append(x.input(), step);
}

void Dsa::attend_listed(const ListedTokens& listed, const LayerStep& step) const {
  const TokenRange& range = listed.tokens;
  const IndexBuffers& buffers = step.buffers.index;
  const AbsorbedTokens tokens = mla_.absorbed(range, step);
  ops::mla_sparse({.q_latent = tokens.q_latent,
                   .q_rope = tokens.q_rope,
                   .cache = listed.num_copied > 0 ? copy_of_rows(listed, step) : step.cache,
                   .rows = buffers.rows.slice(0, range.begin, range.end),
                   .counts = buffers.counts.slice(0, range.begin, range.end),
                   .of_sequence = listed.num_copied > 0,
                   .scale = mla_.softmax_scale(),
                   .out = tokens.out_latent},
                  step.stream);
  mla_.leave_latent(range, step);
}

}  // namespace fathom::layers
