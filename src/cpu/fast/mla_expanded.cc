// Expanded attention: tasks over (segment, head, block of queries), keys in blocks of kKeyBlock at absolute
// multiples, so that a query's bits do not depend on where its prompt was cut.
//
// Bound: 2 * (qk_nope_head_dim + qk_rope_head_dim + v_head_dim) floating-point operations per head, query
// and visible key; the keys of one head and block are packed once per block of queries.
#include <algorithm>
#include <limits>

#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/fast/visible_rows.h"
#include "ops/index.h"
#include "ops/mla.h"

namespace fathom::cpu::fast {

namespace {

// Keys and values of a block, and its scores.
int64_t floats_of_worker(const ops::MlaExpandedArgs& args) {
  return kKeyBlock * (args.q.dim(2) + args.state_acc.dim(2)) + kQueryBlock * kKeyBlock;
}

class MlaExpanded {
 public:
  MlaExpanded(const ops::MlaExpandedArgs& args, FastStream& stream)
      : args_(args),
        stream_(stream),
        heads_(args.q.dim(1)),
        key_dim_(args.q.dim(2)),
        rope_(args.k_rope.dim(1)),
        v_head_dim_(args.state_acc.dim(2)),
        worker_floats_(floats_of_worker(args)),
        workers_(static_cast<float*>(stream.scratch())) {}

  void run() {
    int64_t tasks = 0, pairs = 0;
    for (const ops::ExpandedSegment& segment : args_.segments) {
      tasks += num_tasks(segment);
      pairs += segment.num_tokens * segment.num_rows;
    }
    stream_.run(tasks, pairs * heads_ * (key_dim_ + v_head_dim_), [&](int64_t task, int worker) {
      const ops::ExpandedSegment* segment = args_.segments.data();
      while (task >= num_tasks(*segment)) task -= num_tasks(*segment++);
      // Late queries see the most keys: they go first, so no long task is left for last.
      const int64_t block = num_tasks(*segment) / heads_ - 1 - task / heads_;
      run_block(*segment, task % heads_, block * kQueryBlock, worker);
    });
  }

 private:
  using Segment = ops::ExpandedSegment;

  int64_t num_tasks(const Segment& segment) const {
    return (segment.num_tokens + kQueryBlock - 1) / kQueryBlock * heads_;
  }

  VisibleRows visible(const Segment& segment, int64_t query) const {
    return VisibleRows(segment.query_begin, query,
                       segment.has_tree_mask
                           ? args_.tree_mask.row<uint64_t>(segment.token_begin + query)
                           : nullptr);
  }

  // Rows [begin, end), at most 64, that a query does not leave out.
  uint64_t kept(const Segment& segment, int64_t query, int64_t begin, int64_t end) const {
    if (args_.kept.is_null() || segment.query_begin + query < args_.kept_from) return ~uint64_t{0};
    const auto* const bits =
        reinterpret_cast<const uint32_t*>(args_.kept.row<int32_t>(segment.token_begin + query));
    uint64_t mask = 0;
    for (int64_t row = begin; row < end; ++row)
      mask |= uint64_t{ops::keeps_row(bits, row)} << (row - begin);
    return mask;
  }

  // Keys and values of one block of rows for one head.
  struct KeyBlock {
    float* packed = nullptr;  // [kKeyBlock, key_dim], then [kKeyBlock, v_head_dim]
    const float* keys[kKeyBlock];
    const float* values[kKeyBlock];
  };

  // Keys are k_nope ++ k_rope of rows [begin, end). Values are copied too: in kv the rows of one head lie a
  // power of two apart, so they would all compete for the same few sets of the cache.
  void pack_keys(const Segment& segment, int64_t head, int64_t begin, int64_t end,
                 KeyBlock& block) const {
    const int64_t nope = key_dim_ - rope_;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t i = segment.buffer_begin + row - segment.row_begin;
      const float* const kv = args_.kv.row<float>(i, head);
      float* const key = block.packed + (row - begin) * key_dim_;
      std::copy_n(kv, nope, key);
      std::copy_n(args_.k_rope.row<float>(i), rope_, key + nope);
      block.keys[row - begin] = key;
      float* const value = block.packed + kKeyBlock * key_dim_ + (row - begin) * v_head_dim_;
      std::copy_n(kv + nope, v_head_dim_, value);
      block.values[row - begin] = value;
    }
  }

  void run_block(const Segment& segment, int64_t head, int64_t query_begin, int worker) const {
    const int64_t num = std::min(kQueryBlock, segment.num_tokens - query_begin);
    const int64_t token_begin = segment.token_begin + query_begin;
    const int64_t rows_end = segment.row_begin + segment.num_rows;
    const float* q[kQueryBlock];
    float* acc[kQueryBlock];
    float max[kQueryBlock], sum[kQueryBlock];
    int64_t key_end = 0;
    for (int64_t i = 0; i < num; ++i) {
      const int64_t token = token_begin + i;
      q[i] = args_.q.row<float>(token, head);
      acc[i] = args_.state_acc.row<float>(token, head);
      max[i] = segment.first ? -std::numeric_limits<float>::infinity()
                             : args_.state_max.row<float>(token)[head];
      sum[i] = segment.first ? 0.0f : args_.state_sum.row<float>(token)[head];
      if (segment.first) std::fill_n(acc[i], v_head_dim_, 0.0f);
      key_end = std::max(key_end, visible(segment, query_begin + i).end(rows_end));
    }
    KeyBlock block{.packed = workers_ + worker * worker_floats_, .keys = {}, .values = {}};
    uint64_t masks[kQueryBlock];
    for (int64_t begin = segment.row_begin; begin < key_end;) {
      const int64_t end = std::min((begin / kKeyBlock + 1) * kKeyBlock, key_end);
      pack_keys(segment, head, begin, end, block);
      for (int64_t i = 0; i < num; ++i)
        masks[i] = visible(segment, query_begin + i).mask(begin, end) &
                   kept(segment, query_begin + i, begin, end);
      stream_.kernels().attention_block(
          {.q = q,
           .num_queries = num,
           .key = block.keys,
           .value = block.values,
           .num_keys = end - begin,
           .key_dim = key_dim_,
           .value_dim = v_head_dim_,
           .scale = args_.scale,
           .visible = masks,
           .state = {max, sum, acc},
           .scores = block.packed + kKeyBlock * (key_dim_ + v_head_dim_)});
      begin = end;
    }
    for (int64_t i = 0; i < num; ++i) {
      if (segment.last) {
        stream_.kernels().divide_row(acc[i], sum[i], v_head_dim_,
                                     args_.out.row<float>(token_begin + i, head));
        continue;
      }
      args_.state_max.row<float>(token_begin + i)[head] = max[i];
      args_.state_sum.row<float>(token_begin + i)[head] = sum[i];
    }
  }

  const ops::MlaExpandedArgs& args_;
  FastStream& stream_;
  const int64_t heads_, key_dim_, rope_, v_head_dim_;
  const int64_t worker_floats_;
  float* const workers_;
};

}  // namespace

int64_t mla_expanded_scratch(const ops::MlaExpandedArgs& args, const ops::Stream& stream) {
  return fast_stream(stream).num_threads() * floats_of_worker(args) * int64_t{sizeof(float)};
}

void mla_expanded(const ops::MlaExpandedArgs& args, ops::Stream& stream) {
  MlaExpanded(args, fast_stream(stream)).run();
}

}  // namespace fathom::cpu::fast
