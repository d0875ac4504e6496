// The indexer. Keys, queries and the choice of rows are those of the reference, a token to a task. Scores are products
// of a token's heads with blocks of keys: H * D multiply-adds a key, so from a few heads on that is arithmetic.
#include "ops/index.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/reference/index_rows.h"

namespace fathom::cpu::fast {
namespace {

using reference::QueryPlace;

// Keys of one product, and blocks of them in one task.
constexpr int64_t kKeys = kTileRows;
constexpr int64_t kTaskKeys = 16 * 64;

struct ScoreScratch {
  float* keys = nullptr;      // [workers, kKeys, dim]           widened
  float* queries = nullptr;   // [workers, heads, dim]           widened
  float* products = nullptr;  // [workers, kTileTokens, kKeys]
};

ScoreScratch carve(const ops::IndexScoresArgs& args, const FastStream& stream,
                   ScratchArena& arena) {
  const int64_t workers = stream.num_threads(), heads = args.q.dim(1), dim = args.q.dim(2);
  return {.keys = arena.take<float>(workers * kKeys * dim),
          .queries = arena.take<float>(workers * heads * dim),
          .products = arena.take<float>(workers * kTileTokens * kKeys)};
}

class IndexScores {
 public:
  IndexScores(const ops::IndexScoresArgs& args, FastStream& stream)
      : args_(args),
        stream_(stream),
        heads_(args.q.dim(1)),
        dim_(args.q.dim(2)),
        block_tokens_(args.cache.block_tokens()),
        max_rows_(args.queries.block_tables.dim(1) * block_tokens_) {
    ScratchArena arena(stream.scratch());
    scratch_ = carve(args, stream, arena);
  }

  void run() {
    const int64_t tokens = args_.queries.num_tokens();
    const int64_t tasks = (max_rows_ + kTaskKeys - 1) / kTaskKeys;
    stream_.run(tokens * tasks, tokens * max_rows_ * heads_ * dim_, [&](int64_t task, int worker) {
      score(args_.queries.token_begin + task / tasks, task % tasks * kTaskKeys, worker);
    });
  }

 private:
  // A query token with the keys of one product, which lie side by side in a block.
  struct Tile {
    const float* query = nullptr;    // f32[heads, dim]
    const float* weights = nullptr;  // [heads]
    const float* keys = nullptr;     // f32[num_keys, dim]
    int64_t num_keys = 0;
    int worker = 0;
    float* scores = nullptr;  // [num_keys]
  };

  // Rows of the sequence from `begin` on, up to kTaskKeys.
  void score(int64_t token, int64_t begin, int worker) const {
    const QueryPlace place = reference::place_of(args_.queries, token, max_rows_);
    if (begin >= place.kv_len || place.num_visible() <= args_.topk) return;
    Tile tile{.query = widened_query(token, worker),
              .weights = args_.weights.row<float>(token),
              .worker = worker};
    float* const scores = args_.scores.row<float>(token - args_.queries.token_begin);
    const int64_t task_end = std::min(begin + kTaskKeys, place.kv_len);
    const int64_t end = std::min(task_end, place.end());
    for (; begin < end; begin += tile.num_keys) {
      tile.num_keys = std::min({kKeys, end - begin, block_tokens_ - begin % block_tokens_});
      tile.scores = scores + begin;
      score_keys(place, begin, tile);
    }
    for (int64_t row = begin; row < task_end; ++row)
      scores[row] = -std::numeric_limits<float>::infinity();
  }

  const float* widened_query(int64_t token, int worker) const {
    if (args_.q.dtype() == tensor::DType::kF32) return args_.q.row<float>(token);
    float* const out = scratch_.queries + worker * heads_ * dim_;
    widen(args_.q.row<tensor::F8E4M3>(token), heads_ * dim_, out);
    return out;
  }

  void widen(const tensor::F8E4M3* x, int64_t count, float* out) const {
    stream_.kernels().widen_f8_row(reinterpret_cast<const uint8_t*>(x), /*scale=*/nullptr, count,
                                   out);
  }

  void score_keys(const QueryPlace& place, int64_t begin, Tile& tile) const {
    const int32_t block =
        args_.queries.block_tables.row<int32_t>(place.sequence)[begin / block_tokens_];
    FATHOM_CHECK(block >= 0 && block < args_.cache.num_blocks(),
                 "block table entry " << begin / block_tokens_ << " is " << block << " of "
                                      << args_.cache.num_blocks());
    const int64_t offset = begin % block_tokens_;
    tile.keys = widened_keys(block, offset, tile);
    std::fill_n(tile.scores, tile.num_keys, 0.0f);
    for (int64_t head = 0; head < heads_; head += kTileTokens)
      add_heads(tile, head, std::min(head + kTileTokens, heads_));
    for (int64_t i = 0; i < tile.num_keys; ++i) {
      if (!place.visible.sees(begin + i)) {
        tile.scores[i] = -std::numeric_limits<float>::infinity();
      } else if (!args_.cache.scales.is_null()) {
        tile.scores[i] *= args_.cache.scales.row<float>(block)[offset + i];
      }
    }
  }

  const float* widened_keys(int64_t block, int64_t offset, const Tile& tile) const {
    const tensor::Tensor& values = args_.cache.values;
    if (values.dtype() == tensor::DType::kF32) return values.row<float>(block, offset);
    float* const out = scratch_.keys + tile.worker * kKeys * dim_;
    widen(values.row<tensor::F8E4M3>(block, offset), tile.num_keys * dim_, out);
    return out;
  }

  // Heads [begin, end), at most kTileTokens.
  void add_heads(const Tile& tile, int64_t begin, int64_t end) const {
    const float* x[kTileTokens];
    float* out[kTileTokens];
    for (int64_t head = begin; head < end; ++head) {
      x[head - begin] = tile.query + head * dim_;
      out[head - begin] = scratch_.products + (tile.worker * kTileTokens + head - begin) * kKeys;
    }
    stream_.kernels().matmul({.x = x,
                              .num_x = end - begin,
                              .kind = WeightKind::kF32,
                              .w = tile.keys,
                              .w_stride = dim_,
                              .num_w = tile.num_keys,
                              .in = dim_,
                              .out = out,
                              .workspace = stream_.workspace(tile.worker)});
    for (int64_t head = begin; head < end; ++head)
      for (int64_t i = 0; i < tile.num_keys; ++i) {
        const float product = out[head - begin][i];
        // Not std::max, which would take NaN for 0.
        tile.scores[i] += tile.weights[head] * (product < 0.0f ? 0.0f : product);
      }
  }

  const ops::IndexScoresArgs& args_;
  FastStream& stream_;
  const int64_t heads_, dim_, block_tokens_, max_rows_;
  ScoreScratch scratch_;
};

}  // namespace

int64_t index_append_scratch(const ops::IndexAppendArgs& args, const ops::Stream& stream) {
  return fast_stream(stream).num_threads() * 2 * args.k.dim(1) * int64_t{sizeof(float)};
}

int64_t index_query_scratch(const ops::IndexQueryArgs& args, const ops::Stream& stream) {
  return fast_stream(stream).num_threads() * args.q.dim(2) * int64_t{sizeof(float)};
}

int64_t index_scores_scratch(const ops::IndexScoresArgs& args, const ops::Stream& stream) {
  ScratchArena arena;
  carve(args, fast_stream(stream), arena);
  return arena.bytes();
}

int64_t top_rows_scratch(const ops::TopRowsArgs&, const ops::Stream& stream) {
  return fast_stream(stream).num_threads() * reference::kRowBins * int64_t{sizeof(int32_t)};
}

void index_append(const ops::IndexAppendArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.k.dim(0), dim = args.k.dim(1);
  auto* const scratch = static_cast<float*>(stream.scratch());
  stream.run(tokens, tokens * dim, [&](int64_t token, int worker) {
    reference::append_key(args, token, scratch + worker * 2 * dim);
  });
}

void index_query(const ops::IndexQueryArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.q.dim(0), dim = args.q.dim(2);
  auto* const scratch = static_cast<float*>(stream.scratch());
  stream.run(tokens, args.q.num_elements(), [&](int64_t token, int worker) {
    reference::prepare_query(args, token, scratch + worker * dim);
  });
}

// Queries that are given.
bool takes_index_append_query(const ops::IndexAppendQueryArgs& args, const ops::Stream&) {
  return args.q_a.is_null();
}

int64_t index_append_query_scratch(const ops::IndexAppendQueryArgs& args,
                                   const ops::Stream& stream) {
  return std::max(fast::linear_scratch(ops::weights_product(args), stream),
                  index_append_scratch(args.append, stream));
}

// Behind the product one fork and join: a token's key, then its queries.
void index_append_query(const ops::IndexAppendQueryArgs& args, ops::Stream& ops_stream) {
  fast::linear(ops::weights_product(args), ops_stream);
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.append.k.dim(0), dim = args.append.k.dim(1);
  auto* const scratch = static_cast<float*>(stream.scratch());
  stream.run(tokens, args.query.q.num_elements() + tokens * dim, [&](int64_t token, int worker) {
    float* const mine = scratch + worker * 2 * dim;
    reference::append_key(args.append, token, mine);
    reference::prepare_query(args.query, token, mine);
  });
}

void index_scores(const ops::IndexScoresArgs& args, ops::Stream& stream) {
  IndexScores(args, fast_stream(stream)).run();
}

void top_rows(const ops::TopRowsArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.queries.num_tokens();
  const int64_t max_rows = args.queries.block_tables.dim(1) * args.block_tokens;
  auto* const bins = static_cast<int32_t*>(stream.scratch());
  stream.run(tokens, tokens * max_rows, [&](int64_t i, int worker) {
    reference::choose_rows(args, args.queries.token_begin + i, bins + worker * reference::kRowBins);
  });
}

}  // namespace fathom::cpu::fast
