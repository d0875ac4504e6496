// Expanded attention: tasks over (head, block of queries), keys in blocks of kKeyBlock at absolute
// multiples, so that a query's bits do not depend on where its prompt was cut.
//
// Bound: 2 * (qk_nope_head_dim + qk_rope_head_dim + v_head_dim) floating-point operations per head, query
// and visible key; the keys of one head and block are packed once per block of queries.
#include <algorithm>
#include <limits>

#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/fast/visible_rows.h"
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
        queries_(args.q.dim(0)),
        heads_(args.q.dim(1)),
        key_dim_(args.q.dim(2)),
        rope_(args.k_rope.dim(1)),
        v_head_dim_(args.state_acc.dim(2)),
        key_end_(args.key_begin + args.kv.dim(0)),
        worker_floats_(floats_of_worker(args)),
        workers_(static_cast<float*>(stream.scratch())) {}

  void run() {
    const int64_t blocks = (queries_ + kQueryBlock - 1) / kQueryBlock;
    stream_.run(blocks * heads_, queries_ * heads_ * args_.kv.dim(0) * (key_dim_ + v_head_dim_),
                [&](int64_t task, int worker) {
                  // Late queries see the most keys: they go first, so no long task is left for last.
                  const int64_t block = blocks - 1 - task / heads_;
                  run_block(task % heads_, block * kQueryBlock, worker);
                });
  }

 private:
  VisibleRows visible(int64_t query) const {
    return VisibleRows(args_.query_begin, query,
                       args_.tree_mask.is_null() ? nullptr : args_.tree_mask.row<uint64_t>(query));
  }

  // Keys and values of one block of rows for one head.
  struct KeyBlock {
    float* packed = nullptr;  // [kKeyBlock, key_dim], then [kKeyBlock, v_head_dim]
    const float* keys[kKeyBlock];
    const float* values[kKeyBlock];
  };

  // Keys are k_nope ++ k_rope of rows [begin, end). Values are copied too: in kv the rows of one head lie a
  // power of two apart, so they would all compete for the same few sets of the cache.
  void pack_keys(int64_t head, int64_t begin, int64_t end, KeyBlock& block) const {
    const int64_t nope = key_dim_ - rope_;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t i = row - args_.key_begin;
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

  void run_block(int64_t head, int64_t query_begin, int worker) const {
    const int64_t num = std::min(kQueryBlock, queries_ - query_begin);
    const float* q[kQueryBlock];
    float* acc[kQueryBlock];
    float max[kQueryBlock], sum[kQueryBlock];
    int64_t key_end = 0;
    for (int64_t i = 0; i < num; ++i) {
      const int64_t query = query_begin + i;
      q[i] = args_.q.row<float>(query, head);
      acc[i] = args_.state_acc.row<float>(query, head);
      max[i] = args_.first ? -std::numeric_limits<float>::infinity()
                           : args_.state_max.row<float>(query)[head];
      sum[i] = args_.first ? 0.0f : args_.state_sum.row<float>(query)[head];
      if (args_.first) std::fill_n(acc[i], v_head_dim_, 0.0f);
      key_end = std::max(key_end, visible(query).end(key_end_));
    }
    KeyBlock block{.packed = workers_ + worker * worker_floats_, .keys = {}, .values = {}};
    uint64_t masks[kQueryBlock];
    for (int64_t begin = args_.key_begin; begin < key_end;) {
      const int64_t end = std::min((begin / kKeyBlock + 1) * kKeyBlock, key_end);
      pack_keys(head, begin, end, block);
      for (int64_t i = 0; i < num; ++i) masks[i] = visible(query_begin + i).mask(begin, end);
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
      args_.state_max.row<float>(query_begin + i)[head] = max[i];
      args_.state_sum.row<float>(query_begin + i)[head] = sum[i];
    }
  }

  const ops::MlaExpandedArgs& args_;
  FastStream& stream_;
  const int64_t queries_, heads_, key_dim_, rope_, v_head_dim_, key_end_;
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

void mla_finish(const ops::MlaFinishArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t queries = args.out.dim(0), heads = args.out.dim(1), dim = args.out.dim(2);
  stream.run(queries, queries * heads * dim, [&](int64_t query, int) {
    for (int64_t head = 0; head < heads; ++head)
      stream.kernels().divide_row(args.state_acc.row<float>(query, head),
                                  args.state_sum.row<float>(query)[head], dim,
                                  args.out.row<float>(query, head));
  });
}

}  // namespace fathom::cpu::fast
