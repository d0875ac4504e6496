#pragma once
// The lightning indexer of DeepSeek-V3.2 and attention to the rows that it selects (DeepSeek-V3.2-Exp report,
// section 2; the published inference/model.py). For each query token it scores every row that the token sees and keeps
// the topk best; MLA then attends to those alone. D = index_head_dim, H = index_n_heads, R = qk_rope_head_dim.
//
// A token that sees at most topk rows keeps them all: no score of it is computed or read. So a step has two kinds of
// tokens, told apart by the number of rows that they see.
//
// Two forms, by the type of the cached keys (ops/index_cache.h): f8_e4m3 is the published one, where queries and keys
// go through a Hadamard transform and are quantised; f32 leaves both out. The transform is orthonormal, so that the
// forms differ by the rounding alone.
//
// index_append: writes the keys of this step
//   k        act[tokens, D]       output of wk; rows may be strided
//   weight   f32|bf16[D]          k_norm, and
//   bias     f32[D]               its bias
//   table    f32[tokens, R]       of ops/rope.h
//   kv_rows  i64[tokens]          flat row, as in kv_append; -1 = padding, writes nothing
//   cache    written in place
//   key = layernorm(k) with weight, bias and eps; its first R values rotated in pairs (j, j + R/2), which is not how
//   ops/rope.h pairs; f8: Hadamard of order D (Sylvester's) times D^-0.5, then quantised
//   REQUIRES: kv_rows pairwise distinct except for -1.
//
// index_query: what index_scores reads of the queries
//   q        act[tokens, H, D]    output of wq_b
//   w        f32[tokens, H]       output of weights_proj; negative ones count as they are
//   table    f32[tokens, R]
//   out      f32|f8_e4m3[tokens, H, D]  rotated, f8: transformed and quantised as keys are. May be q itself
//   weights  f32[tokens, H]       w * H^-0.5 * D^-0.5, f8: times the scale of the query. May be w itself
//
// index_append_query, fused: all of a step in one call, to the bit
//   linear(x, weights_proj, query.w);  index_append(append);  index_query(query);
//   and with q_a before them: query.q = linear(rms_norm(q_a), wq_b), of quantised rows where wq_b is f8_e4m3
//   x             act[tokens, hidden]     rows may be strided
//   weights_proj  f32|bf16[H, hidden]
//   q_a           act[tokens, q_lora_rank]  rows may be strided; null: query.q is given
//   q_norm        f32|bf16[q_lora_rank]     null without q_a, as wq_b
//   wq_b          act, bf16 or f8_e4m3[H * D, q_lora_rank]
//   of as many tokens, of one type and dimension. None writes what another one reads, but for query.w, which is read
//   as the product has it and may be left as it was, and with q_a query.q. CUDA: of up to 8 tokens the products' sums
//   have an order of their own. A backend's entry takes calls with q_a or not (Operator::takes).
//
// index_scores: score[t, s] = k_scale[s] * sum over h of weights[t, h] * max(0, q[t, h] . k[s]), heads in rising order
//   q, weights   as index_query made them, of all tokens of `queries`
//   queries      which rows each token sees, and the tokens that are meant: IndexQueries
//   topk         tokens that see at most so many rows are left out: their scores stay as they are
//   scores       f32[token_end - token_begin, max_blocks * block_tokens]   by row of the sequence. -inf for rows below
//                kv_len that the token does not see; those from kv_len on stay as they are
//
// top_rows: the topk best rows of each token that `queries` means
//   scores   of index_scores; null where no token can see more than topk rows, max_blocks * block_tokens being so few
//   rows     i32[tokens, topk]    out: flat rows of the cache, or rows of the token's sequence where of_sequence says
//                                 so, in rising order of the sequence's rows, then -1
//   counts   i32[tokens]          out: how many there are: all that the token sees, or topk
//   kept     i32[tokens, words]   out, instead of rows and counts, which then say topk alone: a bit of each row of the
//                                 sequence, as keeps_row() reads them, up to the last kKeptRows with one that the token
//                                 sees; what is behind them stays as it is. REQUIRES: words for all of these
//   Larger scores first, equal ones by the smaller row of the sequence; -0 equals +0, NaN is above all, so that a
//   failed row stays visible. What a token does not see never competes, whatever stands in scores. Padding: none.
//
// mla_sparse: mla_absorbed (ops/mla.h) over lists of rows
//   q_latent, q_rope, cache, scale, out   as in mla_absorbed
//   rows     i32[tokens, topk]    flat rows of the cache: the first counts[t] of token t are read
//   counts   i32[tokens]          0 = padding, the out row becomes 0
//   of_sequence                   all tokens are of one sequence, none is padding, and lists rise: on CUDA tokens side
//                                 by side may share rows that one of them lists, which have to be finite
//   With all the rows that a token sees it gives mla_absorbed's bits where sums have one order (the CPU).
//   With more than kFewSparseHeads heads or kFewSparseTokens tokens products of bf16 bind it, not bytes, where
//   activations are bf16: a prompt's rows in f8 are better widened once (kv_gather). With so many heads the copies
//   give the bits of the rows in f8.

#include "ops/backend.h"
#include "ops/index_cache.h"
#include "ops/kv_format.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace fathom::ops {

// The query tokens [token_begin, token_end) of a step, and the rows that they see: the rule of ops/mla.h.
struct IndexQueries {
  // All of this, and keys of earlier steps, was there before the operator launched last began. REQUIRES with it: that
  // was index_append_query or, behind it, index_scores or top_rows.
  bool settled = false;
  tensor::Tensor query_start;   // i32[seqs + 1]
  tensor::Tensor kv_len;        // i32[seqs]
  tensor::Tensor block_tables;  // i32[seqs, max_blocks]; rows may be strided
  tensor::Tensor tree_mask;     // u64[tokens]; null = causal
  int64_t token_begin = 0, token_end = 0;

  int64_t num_tokens() const { return token_end - token_begin; }
};

struct IndexAppendArgs {
  tensor::Tensor k, weight, bias;
  float eps = 1e-6f;
  tensor::Tensor table, kv_rows;
  IndexCache cache;
};
void index_append(const IndexAppendArgs& args, Stream& stream);

struct IndexQueryArgs {
  tensor::Tensor q, w, table;
  tensor::Tensor out, weights;
};
void index_query(const IndexQueryArgs& args, Stream& stream);

struct IndexAppendQueryArgs {
  tensor::Tensor q_a, q_norm;
  float q_eps = 1e-6f;
  Weight wq_b;
  tensor::Tensor x, weights_proj;
  IndexAppendArgs append;
  IndexQueryArgs query;
};
LinearArgs weights_product(const IndexAppendQueryArgs& args);
void index_append_query(const IndexAppendQueryArgs& args, Stream& stream);

struct IndexScoresArgs {
  tensor::Tensor q, weights;
  IndexCache cache;
  IndexQueries queries;
  int64_t topk = 0;
  tensor::Tensor scores;
};
void index_scores(const IndexScoresArgs& args, Stream& stream);

// Bits come by so many rows, of which row 8 n + 2 t + i is bit 2 n + i of word t: as lanes have columns of a product.
inline constexpr int64_t kKeptRows = 128, kKeptWords = kKeptRows / 32;
constexpr int64_t kept_words(int64_t rows) {
  return (rows + kKeptRows - 1) / kKeptRows * kKeptWords;
}
constexpr int64_t kept_word(int64_t row) { return row / kKeptRows * kKeptWords + row % 8 / 2; }
constexpr uint32_t kept_bit(int64_t row) {
  return uint32_t{1} << (row % kKeptRows / 8 * 2 + row % 2);
}
constexpr bool keeps_row(const uint32_t* kept, int64_t row) {
  return (kept[kept_word(row)] & kept_bit(row)) != 0;
}

struct TopRowsArgs {
  tensor::Tensor scores;
  IndexQueries queries;
  int64_t block_tokens = 64;
  bool of_sequence = false;  // the entries of block_tables are not read
  tensor::Tensor rows, counts;
  tensor::Tensor kept{};

  int64_t topk() const { return rows.dim(1); }
};
void top_rows(const TopRowsArgs& args, Stream& stream);

inline constexpr int64_t kFewSparseHeads = 16, kFewSparseTokens = 128;
struct MlaSparseArgs {
  tensor::Tensor q_latent, q_rope;
  KvCache cache;
  tensor::Tensor rows, counts;
  bool of_sequence = false;
  float scale = 1.0f;
  tensor::Tensor out;
};
void mla_sparse(const MlaSparseArgs& args, Stream& stream);

}  // namespace fathom::ops
