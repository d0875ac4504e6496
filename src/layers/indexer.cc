#include "layers/indexer.h"

#include <algorithm>

#include "layers/row_shares.h"

namespace fathom::layers {
namespace {

using tensor::Tensor;

// Of k_norm, fixed in the published code: not rms_norm_eps.
constexpr float kNormEps = 1e-6f;

ops::IndexQueries queries_of(const ForwardBatch& batch, int64_t begin, int64_t end, bool settled) {
  return {.settled = settled,
          .query_start = batch.query_start,
          .kv_len = batch.kv_len,
          .block_tables = batch.tables(),
          .tree_mask = batch.tree_mask,
          .token_begin = begin,
          .token_end = end};
}

int64_t max_rows(const LayerStep& step) {
  return step.batch.tables().dim(1) * step.index_cache.block_tokens();
}

// Whether the ranks share the tokens: two gathers take some 15 us between GPUs, in which one scores and chooses for
// 10 tokens of 32k. With half of this work two ranks' step became 1.5% longer. By what all ranks know alike.
bool is_shared(const TokenRange& range, const LayerStep& step) {
  constexpr int64_t kWork = 128;  // pairs of a token and a row, by rank and by row that is kept
  const int64_t ranks = step.rank.tp->size();
  return ranks > 1 && Indexer::has_to_choose(step) &&
         range.size() * max_rows(step) >= kWork * ranks * step.buffers.index.topk();
}

}  // namespace

Indexer::Indexer(const std::string& prefix, const config::ModelConfig& config,
                 WeightBuilder& builder, const ops::Weight& wk)
    : n_heads_(config.index_config->n_heads),
      head_dim_(config.index_config->head_dim),
      fused_(builder.fused()),
      wq_b_(builder.matrix(prefix + "wq_b.weight", n_heads_ * head_dim_, *config.q_lora_rank)),
      wk_(wk),
      k_norm_weight_(builder.norm(prefix + "k_norm.weight", head_dim_)),
      k_norm_bias_(builder.bias(prefix + "k_norm.bias", head_dim_)),
      weights_proj_(
          builder.plain_matrix(prefix + "weights_proj.weight", n_heads_, config.hidden_size)) {}

ops::IndexAppendArgs Indexer::keys_of(const LayerStep& step) const {
  return {.k = step.buffers.index.k,
          .weight = k_norm_weight_,
          .bias = k_norm_bias_,
          .eps = kNormEps,
          .table = step.buffers.rope_table,
          .kv_rows = step.batch.kv_rows,
          .cache = step.index_cache};
}

void Indexer::append(const ops::Activation& x, const LayerStep& step) const {
  ops::linear({.x = x, .weight = wk_, .out = step.buffers.index.k}, step.stream);
  ops::index_append(keys_of(step), step.stream);
}

std::optional<ops::LinearPairArgs::Product> Indexer::query_product(const LayerStep& step) const {
  if (!has_to_choose(step)) return std::nullopt;
  const Tensor& q = step.buffers.index.q;
  return ops::LinearPairArgs::Product{.weight = wq_b_,
                                      .out = q.reshape({q.dim(0), n_heads_ * head_dim_})};
}

bool Indexer::takes(const Tensor& x, const CompressedRows& q_a, const LayerStep& step) const {
  return !q_a.values.is_null() && has_to_choose(step) && has_one_operator(step) &&
         step.stream.backend().index_append_query.has(keys_and_queries(x, q_a, step), step.stream);
}

void Indexer::append_and_choose(const Tensor& x, const CompressedRows& q_a,
                                const LayerStep& step) const {
  has_to_choose(step) ? append_keys_and_queries(keys_and_queries(x, q_a, step), step)
                      : ops::index_append(keys_of(step), step.stream);
  const bool settled = has_to_choose(step) && has_one_operator(step) && !shares_choice(step);
  for (const ListedTokens& listed : step.plan.listed)
    is_shared(listed.tokens, step) ? choose_together(listed, step)
                                   : choose_range(listed.tokens, listed, settled, step);
}

void Indexer::append_keys_and_queries(const ops::IndexAppendQueryArgs& args,
                                      const LayerStep& step) const {
  if (has_one_operator(step)) return ops::index_append_query(args, step.stream);
  ops::linear(ops::weights_product(args), step.stream);
  ops::index_append(args.append, step.stream);
  ops::index_query(args.query, step.stream);
}

bool Indexer::has_to_choose(const LayerStep& step) {
  return !step.plan.listed.empty() && max_rows(step) > step.buffers.index.topk();
}

void Indexer::append_keys(const LayerStep& step) const {
  ops::index_append(keys_of(step), step.stream);
}

bool Indexer::shares_choice(const LayerStep& step) {
  return std::ranges::any_of(step.plan.listed,
                             [&](const ListedTokens& l) { return is_shared(l.tokens, step); });
}

void Indexer::choose_together(const ListedTokens& listed, const LayerStep& step) const {
  const TokenRange& range = listed.tokens;
  comm::Communicator& tp = *step.rank.tp;
  const RowShares shares = RowShares::evenly(range.size(), tp);
  choose_range({range.begin + shares.begin(), range.begin + shares.end()}, listed,
               /*settled=*/false, step);
  const IndexBuffers& buffers = step.buffers.index;
  const std::vector<Tensor> all = listed.by_bits
                                      ? std::vector<Tensor>{buffers.kept}
                                      : std::vector<Tensor>{buffers.rows, buffers.counts};
  for (const Tensor& chosen : all)
    tp.all_gather_rows(chosen.slice(0, range.begin, range.end), shares.starts, step.stream);
}

ops::IndexAppendQueryArgs Indexer::keys_and_queries(const Tensor& x, const CompressedRows& q_a,
                                                    const LayerStep& step) const {
  const IndexBuffers& buffers = step.buffers.index;
  ops::IndexAppendQueryArgs args;
  args.x = x;
  args.weights_proj = weights_proj_;
  args.append = keys_of(step);
  args.query = {.q = buffers.q,
                .w = buffers.weights,
                .table = step.buffers.rope_table,
                .out = buffers.queries(),
                .weights = buffers.weights};
  if (q_a.values.is_null()) return args;
  args.q_a = q_a.values;
  args.q_norm = q_a.norm;
  args.q_eps = q_a.eps;
  args.wq_b = wq_b_;
  return args;
}

bool Indexer::has_one_operator(const LayerStep& step) const {
  return fused_.index_append_query && step.index_cache.values.dtype() == tensor::DType::kF8E4M3;
}

void Indexer::choose_range(const TokenRange& range, const ListedTokens& listed, bool settled,
                           const LayerStep& step) const {
  const IndexBuffers& buffers = step.buffers.index;
  const int64_t rows = max_rows(step);
  const bool scores_count = has_to_choose(step);
  const int64_t most = scores_count ? buffers.scores.dim(0) / rows : range.size();
  for (int64_t begin = range.begin; begin < range.end; begin += most) {
    const int64_t end = std::min(begin + most, range.end);
    const ops::IndexQueries queries = queries_of(step.batch, begin, end, settled);
    Tensor scores;
    if (scores_count) {
      scores = buffers.scores.slice(0, 0, (end - begin) * rows).reshape({end - begin, rows});
      ops::index_scores({.q = buffers.queries(),
                         .weights = buffers.weights,
                         .cache = step.index_cache,
                         .queries = queries,
                         .topk = buffers.topk(),
                         .scores = scores},
                        step.stream);
    }
    ops::top_rows({.scores = scores,
                   .queries = queries,
                   .block_tokens = step.index_cache.block_tokens(),
                   .of_sequence = listed.num_copied > 0,
                   .rows = buffers.rows,
                   .counts = buffers.counts,
                   .kept = listed.by_bits ? buffers.kept : Tensor()},
                  step.stream);
  }
}

}  // namespace fathom::layers
