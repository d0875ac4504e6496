#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "cpu/reference/visibility.h"
#include "ops/index.h"
#include "ops/mla.h"

namespace fathom::cpu::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Online softmax over one chunk of keys for one query and head (Milakov & Gimelshein 2018): rescale
// what was summed under the old maximum, then add the chunk.
void attend(const ops::MlaExpandedArgs& args, const ops::ExpandedSegment& segment, int64_t query,
            int64_t head, float* scores) {
  const int64_t token = segment.token_begin + query;
  const int64_t v_head_dim = args.state_acc.dim(2), qk_rope_head_dim = args.k_rope.dim(1);
  const int64_t qk_nope_head_dim = args.q.dim(2) - qk_rope_head_dim;
  const Visibility visible{
      .first_query_row = segment.query_begin,
      .query = query,
      .tree_mask = segment.has_tree_mask ? args.tree_mask.row<uint64_t>(token) : nullptr};
  const int64_t keys = visible.end(segment.row_begin + segment.num_rows) - segment.row_begin;
  const bool has_kept = !args.kept.is_null() && segment.query_begin + query >= args.kept_from;
  const auto* const kept =
      has_kept ? reinterpret_cast<const uint32_t*>(args.kept.row<int32_t>(token)) : nullptr;
  const float* q = args.q.row<float>(token, head);
  float chunk_max = -kInfinity;
  for (int64_t key = 0; key < keys; ++key) {
    scores[key] = -kInfinity;
    const int64_t row = segment.row_begin + key;
    if (!visible.sees(row) || (has_kept && !ops::keeps_row(kept, row))) continue;
    const int64_t at = segment.buffer_begin + key;
    scores[key] = (dot(q, args.kv.row<float>(at, head), qk_nope_head_dim) +
                   dot(q + qk_nope_head_dim, args.k_rope.row<float>(at), qk_rope_head_dim)) *
                  args.scale;
    chunk_max = std::max(chunk_max, scores[key]);
  }
  float& max = args.state_max.row<float>(token)[head];
  float& total = args.state_sum.row<float>(token)[head];
  float* acc = args.state_acc.row<float>(token, head);
  const bool all_hidden = std::none_of(scores, scores + std::max<int64_t>(keys, 0),
                                       [](float score) { return score != -kInfinity; });
  if (all_hidden) return;
  const float new_max = std::max(max, chunk_max);
  const float rescale = std::exp(max - new_max);  // 0 for the first visible chunk: max is -inf
  for (int64_t key = 0; key < keys; ++key) scores[key] = std::exp(scores[key] - new_max);
  max = new_max;
  total = total * rescale + sum(scores, keys);
  for (int64_t i = 0; i < v_head_dim; ++i) acc[i] *= rescale;
  for (int64_t key = 0; key < keys; ++key) {
    if (scores[key] == 0.0f) continue;  // hidden
    add_scaled(acc, scores[key],
               args.kv.row<float>(segment.buffer_begin + key, head) + qk_nope_head_dim, v_head_dim);
  }
}

void finish(const ops::MlaExpandedArgs& args, int64_t token, int64_t head) {
  const float total = args.state_sum.row<float>(token)[head];
  const float* acc = args.state_acc.row<float>(token, head);
  float* out = args.out.row<float>(token, head);
  for (int64_t i = 0; i < args.out.dim(2); ++i) out[i] = acc[i] / total;
}

}  // namespace

// Scores of one query and head.
int64_t mla_expanded_scratch(const ops::MlaExpandedArgs& args, const ops::Stream&) {
  return args.kv.dim(0) * int64_t{sizeof(float)};
}

void mla_expanded(const ops::MlaExpandedArgs& args, ops::Stream& stream) {
  const int64_t heads = args.q.dim(1);
  auto* scores = static_cast<float*>(stream.scratch());
  for (const ops::ExpandedSegment& segment : args.segments) {
    const int64_t begin = segment.token_begin, end = begin + segment.num_tokens;
    for (int64_t token = begin; token < end && segment.first; ++token) {
      std::fill_n(args.state_max.row<float>(token), heads, -kInfinity);
      std::fill_n(args.state_sum.row<float>(token), heads, 0.0f);
      std::fill_n(args.state_acc.row<float>(token), args.state_acc.stride(0), 0.0f);
    }
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t query = 0; query < segment.num_tokens; ++query) {
        attend(args, segment, query, head, scores);
        if (segment.last) finish(args, begin + query, head);
      }
    }
  }
}

}  // namespace fathom::cpu::reference
