#include "ops/index.h"

#include <algorithm>
#include <limits>

#include "cpu/reference/index_rows.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "cpu/stream.h"

namespace fathom::cpu::reference {
namespace {

struct ScoreScratch {
  float* key;    // [dim]
  float* query;  // [heads, dim]
};

ScoreScratch carve(const ops::IndexScoresArgs& args, ScratchArena& arena) {
  return {.key = arena.take<float>(args.cache.dim()),
          .query = arena.take<float>(args.q.dim(1) * args.cache.dim())};
}

void score_token(const ops::IndexScoresArgs& args, int64_t token, const ScoreScratch& scratch) {
  const int64_t heads = args.q.dim(1), dim = args.q.dim(2);
  const int64_t block_tokens = args.cache.block_tokens();
  const QueryPlace place =
      place_of(args.queries, token, args.queries.block_tables.dim(1) * block_tokens);
  if (place.num_visible() <= args.topk) return;
  const tensor::Tensor q = args.q[token];
  const float* const query = as_floats(q.data(), q.dtype(), heads * dim, scratch.query);
  const float* const weights = args.weights.row<float>(token);
  float* const scores = args.scores.row<float>(token - args.queries.token_begin);
  for (int64_t row = 0; row < place.kv_len; ++row) {
    if (row >= place.end() || !place.visible.sees(row)) {
      scores[row] = -std::numeric_limits<float>::infinity();
      continue;
    }
    const int32_t block =
        args.queries.block_tables.row<int32_t>(place.sequence)[row / block_tokens];
    FATHOM_CHECK(block >= 0 && block < args.cache.num_blocks(),
                 "block table entry " << row / block_tokens << " is " << block << " of "
                                      << args.cache.num_blocks());
    const int64_t offset = row % block_tokens;
    const tensor::Tensor stored = args.cache.values[block][offset];
    const float* const key = as_floats(stored.data(), stored.dtype(), dim, scratch.key);
    float score = 0.0f;
    for (int64_t head = 0; head < heads; ++head) {
      const float product = dot(query + head * dim, key, dim);
      // Not std::max, which would take NaN for 0.
      score += weights[head] * (product < 0.0f ? 0.0f : product);
    }
    scores[row] =
        args.cache.scales.is_null() ? score : score * args.cache.scales.row<float>(block)[offset];
  }
}

}  // namespace

int64_t index_append_scratch(const ops::IndexAppendArgs& args, const ops::Stream&) {
  return 2 * args.k.dim(1) * int64_t{sizeof(float)};
}

int64_t index_query_scratch(const ops::IndexQueryArgs& args, const ops::Stream&) {
  return args.q.dim(2) * int64_t{sizeof(float)};
}

int64_t index_scores_scratch(const ops::IndexScoresArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args, arena);
  return arena.bytes();
}

int64_t top_rows_scratch(const ops::TopRowsArgs&, const ops::Stream&) {
  return kRowBins * int64_t{sizeof(int32_t)};
}

void index_append(const ops::IndexAppendArgs& args, ops::Stream& stream) {
  auto* const scratch = static_cast<float*>(stream.scratch());
  for (int64_t token = 0; token < args.k.dim(0); ++token) append_key(args, token, scratch);
}

void index_query(const ops::IndexQueryArgs& args, ops::Stream& stream) {
  auto* const scratch = static_cast<float*>(stream.scratch());
  for (int64_t token = 0; token < args.q.dim(0); ++token) prepare_query(args, token, scratch);
}

void index_scores(const ops::IndexScoresArgs& args, ops::Stream& stream) {
  ScratchArena arena(stream.scratch());
  const ScoreScratch scratch = carve(args, arena);
  for (int64_t token = args.queries.token_begin; token < args.queries.token_end; ++token)
    score_token(args, token, scratch);
}

void top_rows(const ops::TopRowsArgs& args, ops::Stream& stream) {
  auto* const bins = static_cast<int32_t*>(stream.scratch());
  for (int64_t token = args.queries.token_begin; token < args.queries.token_end; ++token)
    choose_rows(args, token, bins);
}

}  // namespace fathom::cpu::reference
