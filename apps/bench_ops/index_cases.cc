// The indexer and attention to what it keeps, of models that have one: a decode of one token per sequence.

#include <algorithm>

#include "apps/bench_ops/cases.h"
#include "apps/bench_ops/paged_cache.h"
#include "apps/bench_ops/rope_angles.h"
#include "config/rope.h"
#include "layers/attention_kind.h"
#include "ops/index.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

ops::IndexFormat key_format(const OpShapes& shapes) {
  return *layers::cache_format(shapes.config, shapes.kv_cache_dtype).index;
}

// Where in its block a key is written.
constexpr int64_t kBenchedRow = 37;

template <class Room>
ops::IndexCache key_room(Room& room, const ops::IndexFormat& format, int64_t blocks) {
  ops::IndexCache keys{
      .values = room.empty(format.values, {blocks, kBenchedBlockTokens, format.dim}), .scales = {}};
  if (format.has_scale()) keys.scales = room.empty(DType::kF32, {blocks, kBenchedBlockTokens});
  return keys;
}

// Sequences of one token each, all of `context` rows.
struct IndexStep {
  PagedCache paged;  // its blocks are those of the keys
  ops::IndexCache keys;
  ops::IndexQueries queries;
  Tensor q, weights;  // as index_query makes them
  int64_t context = 0, topk = 0;

  int64_t tokens() const { return q.dim(0); }
};

std::vector<int32_t> rising(int64_t count) {
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<int32_t>(i));
  return numbers;
}

IndexStep make_step(Operands& operands, const OpShapes& shapes, int64_t tokens, int64_t context) {
  const ops::IndexFormat format = key_format(shapes);
  IndexStep step{.paged = PagedCache::make(operands, shapes, tokens, context),
                 .keys = {},
                 .queries = {},
                 .q = {},
                 .weights = {},
                 .context = context,
                 .topk = shapes.config.index_config->topk};
  const int64_t blocks = step.paged.cache.num_blocks();
  step.keys.values = operands.random(format.values, {blocks, kBenchedBlockTokens, format.dim});
  if (format.has_scale())
    step.keys.scales = operands.random(DType::kF32, {blocks, kBenchedBlockTokens}, 0.5f, 1.0f);
  const std::vector<int32_t> kv_len(static_cast<size_t>(tokens), static_cast<int32_t>(context));
  step.queries = {.query_start = operands.upload(rising(tokens + 1), {tokens + 1}),
                  .kv_len = operands.upload(kv_len, {tokens}),
                  .block_tables = step.paged.block_tables,
                  .tree_mask = {},
                  .token_begin = 0,
                  .token_end = tokens};
  const int64_t heads = shapes.config.index_config->n_heads;
  step.q = operands.random(format.values, {tokens, heads, format.dim});
  step.weights = operands.random(DType::kF32, {tokens, heads});
  return step;
}

// The last sequence by itself, its blocks in order.
IndexStep on_reference(OnReference& reference, const IndexStep& step) {
  const int64_t last = step.tokens() - 1, blocks = step.paged.blocks_per_sequence;
  const ops::IndexFormat format = ops::IndexFormat::of(step.keys.values.dtype(), step.keys.dim());
  IndexStep cut = step;
  cut.keys = key_room(reference, format, blocks);
  for (int64_t i = 0; i < blocks; ++i) {
    const int32_t block = step.paged.block_order[static_cast<size_t>(last * blocks + i)];
    reference.copy_into(cut.keys.values[i], step.keys.values[block]);
    if (format.has_scale()) reference.copy_into(cut.keys.scales[i], step.keys.scales[block]);
  }
  cut.queries.query_start = reference.upload(rising(2), {2});
  cut.queries.kv_len = reference.copy(step.queries.kv_len.slice(0, last, last + 1));
  cut.queries.block_tables = rising_table(reference, blocks);
  cut.queries.token_end = 1;
  cut.q = reference.copy(step.q.slice(0, last, last + 1));
  cut.weights = reference.copy(step.weights.slice(0, last, last + 1));
  return cut;
}

ops::IndexScoresArgs scores_of(const IndexStep& step, const Tensor& scores) {
  return {.q = step.q,
          .weights = step.weights,
          .cache = step.keys,
          .queries = step.queries,
          .topk = step.topk,
          .scores = scores};
}

// Those of the rows that there are.
std::vector<float> first_of(std::vector<float> values, int64_t count) {
  values.resize(static_cast<size_t>(count));
  return values;
}

OpCall index_scores_call(Operands& operands, const OpShapes& shapes, int64_t tokens,
                         int64_t context) {
  const IndexStep step = make_step(operands, shapes, tokens, context);
  const int64_t max_rows = step.paged.blocks_per_sequence * kBenchedBlockTokens;
  const Tensor scores = operands.empty(DType::kF32, {tokens, max_rows});
  const auto rows = static_cast<double>(tokens * context);
  return {
      .bytes = rows * static_cast<double>(key_format(shapes).row_bytes() + int64_t{sizeof(float)}) +
               bytes_of({step.q, step.weights}),
      .flops = rows * static_cast<double>(2 * step.q.dim(1) * step.q.dim(2)),
      .prepare = {},
      .run = [=](ops::Stream& stream) { ops::index_scores(scores_of(step, scores), stream); },
      .expected =
          [=](OnReference& reference) {
            const Tensor own = reference.empty(DType::kF32, {1, max_rows});
            ops::index_scores(scores_of(on_reference(reference, step), own), reference.stream());
            return first_of(values_of(own), context);
          },
      .actual =
          [=](OnReference& reference) {
            return first_of(reference.values(scores.slice(0, tokens - 1, tokens)), context);
          }};
}

// Of scores that are random.
OpCall top_rows_call(Operands& operands, const OpShapes& shapes, int64_t tokens, int64_t context) {
  const IndexStep step = make_step(operands, shapes, tokens, context);
  const int64_t blocks = step.paged.blocks_per_sequence;
  const ops::TopRowsArgs args{
      .scores = operands.random(DType::kF32, {tokens, blocks * kBenchedBlockTokens}),
      .queries = step.queries,
      .block_tokens = kBenchedBlockTokens,
      .rows = operands.empty(DType::kI32, {tokens, step.topk}),
      .counts = operands.empty(DType::kI32, {tokens})};
  // Rows of the sequence, each a value.
  const auto listed = [](const Tensor& rows, const std::vector<int32_t>& order) {
    std::vector<float> values;
    for (int64_t i = 0; i < rows.dim(1) && rows.row<int32_t>(0)[i] >= 0; ++i) {
      const int32_t row = rows.row<int32_t>(0)[i], block = row / kBenchedBlockTokens;
      const auto at = std::find(order.begin(), order.end(), block) - order.begin();
      values.push_back(static_cast<float>(at * kBenchedBlockTokens + row % kBenchedBlockTokens));
    }
    return values;
  };
  return {.bytes = static_cast<double>(tokens * context) * sizeof(float) + bytes_of({args.rows}),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::top_rows(args, stream); },
          .expected =
              [=](OnReference& reference) {
                ops::TopRowsArgs cut = args;
                cut.scores = reference.copy(args.scores.slice(0, tokens - 1, tokens));
                cut.queries = on_reference(reference, step).queries;
                cut.rows = reference.empty(DType::kI32, {1, step.topk});
                cut.counts = reference.empty(DType::kI32, {1});
                ops::top_rows(cut, reference.stream());
                return listed(cut.rows, rising(blocks));
              },
          .actual =
              [=](OnReference& reference) {
                const std::vector<int32_t>& all = step.paged.block_order;
                return listed(reference.copy(args.rows.slice(0, tokens - 1, tokens)),
                              {all.end() - blocks, all.end()});
              }};
}

// To topk rows that lie evenly over the context.
OpCall mla_sparse_call(Operands& operands, const OpShapes& shapes, int64_t tokens,
                       int64_t context) {
  const config::ModelConfig& c = shapes.config;
  const DType act = operands.backend().act;
  const PagedCache paged = PagedCache::make(operands, shapes, tokens, context);
  const int64_t blocks = paged.blocks_per_sequence;
  const int64_t count = std::min<int64_t>(context, c.index_config->topk);
  std::vector<int32_t> rows, own;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = i * context / count;
      const auto entry = static_cast<size_t>(t * blocks + row / kBenchedBlockTokens);
      rows.push_back(paged.block_order[entry] * static_cast<int32_t>(kBenchedBlockTokens) +
                     static_cast<int32_t>(row % kBenchedBlockTokens));
      if (t == 0) own.push_back(static_cast<int32_t>(row));
    }
  const std::vector<int32_t> counts(static_cast<size_t>(tokens), static_cast<int32_t>(count));
  const Tensor q = operands.random(act, {tokens, c.num_attention_heads, c.qk_head_dim()});
  const ops::MlaSparseArgs args{
      .q_latent = operands.random(act, {tokens, c.num_attention_heads, c.kv_lora_rank}),
      .q_rope = q.slice(2, c.qk_nope_head_dim, c.qk_head_dim()),
      .cache = paged.cache,
      .rows = operands.upload(rows, {tokens, count}),
      .counts = operands.upload(counts, {tokens}),
      .scale = config::make_rope_params(c).softmax_scale,
      .out = operands.empty(act, {tokens, c.num_attention_heads, c.kv_lora_rank})};
  const ops::KvFormat& format = args.cache.format;
  const auto read = static_cast<double>(tokens * count);
  return {.bytes = read * static_cast<double>(format.row_bytes) +
                   bytes_of({args.q_latent, args.q_rope, args.rows, args.out}),
          .flops = read * static_cast<double>(c.num_attention_heads * 2 *
                                              (format.dim() + format.latent_dim)),
          .prepare = paged.fill(operands, shapes),
          .run = [=](ops::Stream& stream) { ops::mla_sparse(args, stream); },
          .expected =
              [=](OnReference& reference) {
                ops::MlaSparseArgs cut = args;
                cut.q_latent = reference.act(args.q_latent.slice(0, tokens - 1, tokens));
                cut.q_rope = reference.act(args.q_rope.slice(0, tokens - 1, tokens));
                cut.cache = paged.on_reference(reference, tokens - 1, 0, blocks);
                cut.rows = reference.upload(own, {1, count});
                cut.counts = reference.copy(args.counts.slice(0, 0, 1));
                cut.out = reference.empty(DType::kF32, {1, args.out.dim(1), args.out.dim(2)});
                ops::mla_sparse(cut, reference.stream());
                return values_of(cut.out);
              },
          .actual =
              [=](OnReference& reference) {
                return reference.values(args.out.slice(0, tokens - 1, tokens));
              }};
}

// One key each, in blocks of their own.
ops::IndexAppendArgs append_args(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const ops::IndexFormat format = key_format(shapes);
  std::vector<int64_t> kv_rows;
  for (int64_t t = 0; t < tokens; ++t) kv_rows.push_back(t * kBenchedBlockTokens + kBenchedRow);
  return {.k = operands.random(operands.backend().act, {tokens, format.dim}),
          .weight = operands.random(shapes.types.plain, {format.dim}, 0.5f, 1.0f),
          .bias = operands.random(DType::kF32, {format.dim}),
          .table = random_rope_table(operands, tokens, shapes.config.qk_rope_head_dim),
          .kv_rows = operands.upload(kv_rows, {tokens}),
          .cache = key_room(operands, format, tokens)};
}

double append_bytes(const ops::IndexAppendArgs& args, const ops::IndexFormat& format) {
  return static_cast<double>(args.k.dim(0) * format.row_bytes()) +
         bytes_of({args.k, args.weight, args.bias, args.table, args.kv_rows});
}

// The last token's key.
std::vector<float> written_key(OnReference& reference, const ops::IndexAppendArgs& args) {
  return reference.values(
      args.cache.values[args.k.dim(0) - 1].slice(0, kBenchedRow, kBenchedRow + 1));
}

OpCall index_append_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const ops::IndexFormat format = key_format(shapes);
  const ops::IndexAppendArgs args = append_args(operands, shapes, tokens);
  return {.bytes = append_bytes(args, format),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::index_append(args, stream); },
          .expected =
              [=](OnReference& reference) {
                ops::IndexAppendArgs cut = args;
                cut.k = reference.act(args.k.slice(0, tokens - 1, tokens));
                cut.weight = reference.copy(args.weight);
                cut.bias = reference.copy(args.bias);
                cut.table = reference.copy(args.table.slice(0, tokens - 1, tokens));
                cut.kv_rows = reference.upload(std::vector<int64_t>{0}, {1});
                cut.cache = key_room(reference, format, 1);
                ops::index_append(cut, reference.stream());
                return values_of(cut.cache.values[0].slice(0, 0, 1));
              },
          .actual = [=](OnReference& reference) { return written_key(reference, args); }};
}

ops::IndexQueryArgs query_args(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const ops::IndexFormat format = key_format(shapes);
  const int64_t heads = shapes.config.index_config->n_heads;
  return {.q = operands.random(operands.backend().act, {tokens, heads, format.dim}),
          .w = operands.random(DType::kF32, {tokens, heads}),
          .table = random_rope_table(operands, tokens, shapes.config.qk_rope_head_dim),
          .out = operands.empty(format.values, {tokens, heads, format.dim}),
          .weights = operands.empty(DType::kF32, {tokens, heads})};
}

// What the reference makes of the last token.
std::vector<float> reference_query(OnReference& reference, const ops::IndexQueryArgs& args) {
  const int64_t tokens = args.q.dim(0), heads = args.q.dim(1);
  ops::IndexQueryArgs cut = args;
  cut.q = reference.act(args.q.slice(0, tokens - 1, tokens));
  cut.w = reference.copy(args.w.slice(0, tokens - 1, tokens));
  cut.table = reference.copy(args.table.slice(0, tokens - 1, tokens));
  cut.out = reference.empty(args.out.dtype(), {1, heads, args.q.dim(2)});
  cut.weights = reference.empty(DType::kF32, {1, heads});
  ops::index_query(cut, reference.stream());
  return values_of(cut.out);
}

OpCall index_query_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const ops::IndexQueryArgs args = query_args(operands, shapes, tokens);
  return {.bytes = bytes_of({args.q, args.w, args.table, args.out, args.weights}),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::index_query(args, stream); },
          .expected = [=](OnReference& reference) { return reference_query(reference, args); },
          .actual =
              [=](OnReference& reference) {
                return reference.values(args.out.slice(0, tokens - 1, tokens));
              }};
}

// Checked by its queries: keys are, in index_append.
OpCall index_append_query_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const int64_t hidden = shapes.config.hidden_size, heads = shapes.config.index_config->n_heads;
  const ops::IndexAppendQueryArgs args{
      .q_a = {},
      .q_norm = {},
      .wq_b = {},
      .x = operands.random(operands.backend().act, {tokens, hidden}),
      .weights_proj = operands.random(DType::kBf16, {heads, hidden}),
      .append = append_args(operands, shapes, tokens),
      .query = query_args(operands, shapes, tokens)};
  const ops::IndexQueryArgs& query = args.query;
  return {
      .bytes =
          append_bytes(args.append, key_format(shapes)) +
          bytes_of({args.x, args.weights_proj, query.q, query.table, query.out, query.weights}),
      .prepare = {},
      .run = [=](ops::Stream& stream) { ops::index_append_query(args, stream); },
      .expected = [=](OnReference& reference) { return reference_query(reference, args.query); },
      .actual =
          [=](OnReference& reference) {
            return reference.values(args.query.out.slice(0, tokens - 1, tokens));
          }};
}

}  // namespace

std::vector<OpCase> index_cases(const OpShapes& shapes) {
  std::vector<OpCase> cases;
  if (!shapes.config.index_config) return cases;
  const DType keys = key_format(shapes).values;
  using Make = OpCall (*)(Operands&, const OpShapes&, int64_t tokens);
  for (const auto& [op, make] : {std::pair<const char*, Make>{"index_append", index_append_call},
                                 {"index_query", index_query_call},
                                 {"index_append_query", index_append_query_call}})
    cases.push_back({.op = op,
                     .what = "one row each",
                     .dtype = keys,
                     .make = [&shapes, make = make](Operands& operands, int64_t tokens) {
                       return make(operands, shapes, tokens);
                     }});
  using MakeBehind = OpCall (*)(Operands&, const OpShapes&, int64_t tokens, int64_t context);
  struct Behind {
    const char* op;
    DType dtype;
    MakeBehind make;
  };
  for (const int64_t context : shapes.contexts)
    for (const Behind& each : {Behind{"index_scores", keys, index_scores_call},
                               {"top_rows", DType::kF32, top_rows_call},
                               {"mla_sparse", shapes.kv_cache_dtype, mla_sparse_call}}) {
      // Where all rows are kept nobody scores them.
      const bool is_scored = context > shapes.config.index_config->topk;
      if (!is_scored && each.make == index_scores_call) continue;
      cases.push_back(
          {.op = each.op,
           .what = "context " + std::to_string(context),
           .dtype = each.dtype,
           .make = [&shapes, context, make = each.make](
                       Operands& operands,
                       int64_t tokens) { return make(operands, shapes, tokens, context); },
           .max_tokens = kMaxDecodeTokens});
    }
  return cases;
}

}  // namespace fathom::apps
