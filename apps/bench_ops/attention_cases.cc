// Both forms of attention: decodes of one token per sequence, verifications of drafts, and one prompt over its own
// rows.

#include <algorithm>

#include "apps/bench_ops/cases.h"
#include "apps/bench_ops/paged_cache.h"
#include "config/rope.h"
#include "ops/mla.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// What each sequence of a step asks.
struct DecodeShape {
  int64_t context = 0;  // rows it sees, its own query tokens' among them
  int64_t queries = 1;  // its last token and drafts
  bool is_tree = false;

  std::string what() const {
    std::string text = "context " + std::to_string(context);
    if (queries > 1) text += (is_tree ? ", tree of " : ", chain of ") + std::to_string(queries);
    return text;
  }
};

struct Decode {
  PagedCache paged;
  ops::MlaAbsorbedArgs args;
  DecodeShape shape;
};

// Every token has two drafts behind it.
std::vector<uint64_t> binary_tree(int64_t queries) {
  std::vector<uint64_t> masks = {1};
  for (int64_t i = 1; i < queries; ++i)
    masks.push_back(masks[static_cast<size_t>((i - 1) / 2)] | uint64_t{1} << i);
  return masks;
}

// Of as many whole sequences as so many tokens are.
Decode make_decode(Operands& operands, const OpShapes& shapes, int64_t wanted_tokens,
                   const DecodeShape& shape) {
  const config::ModelConfig& c = shapes.config;
  const DType act = operands.backend().act;
  const int64_t heads = c.num_attention_heads;
  const int64_t sequences = wanted_tokens / shape.queries, tokens = sequences * shape.queries;
  const PagedCache paged = PagedCache::make(operands, shapes, sequences, shape.context);
  std::vector<int32_t> query_start;
  std::vector<uint64_t> tree_mask;
  for (int64_t s = 0; s <= sequences; ++s) {
    query_start.push_back(static_cast<int32_t>(s * shape.queries));
    if (!shape.is_tree || s == sequences) continue;
    const std::vector<uint64_t> tree = binary_tree(shape.queries);
    tree_mask.insert(tree_mask.end(), tree.begin(), tree.end());
  }
  const std::vector<int32_t> kv_len(static_cast<size_t>(sequences),
                                    static_cast<int32_t>(shape.context));
  const Tensor q = operands.random(act, {tokens, heads, c.qk_head_dim()});
  return {.paged = paged,
          .args = {.q_latent = operands.random(act, {tokens, heads, c.kv_lora_rank}),
                   .q_rope = q.slice(2, c.qk_nope_head_dim, c.qk_head_dim()),
                   .cache = paged.cache,
                   .query_start = operands.upload(query_start, {sequences + 1}),
                   .kv_len = operands.upload(kv_len, {sequences}),
                   .block_tables = paged.block_tables,
                   .tree_mask = shape.is_tree ? operands.upload(tree_mask, {tokens}) : Tensor(),
                   .plan = {},
                   .scale = config::make_rope_params(c).softmax_scale,
                   .out = operands.empty(act, {tokens, heads, c.kv_lora_rank})},
          .shape = shape};
}

// The last sequence by itself.
std::vector<float> reference_decode(OnReference& on_reference, const Decode& decode) {
  const ops::MlaAbsorbedArgs& all = decode.args;
  const int64_t tokens = all.out.dim(0), blocks = decode.paged.blocks_per_sequence;
  const int64_t first = tokens - decode.shape.queries, sequence = all.kv_len.dim(0) - 1;
  ops::MlaAbsorbedArgs cut = all;
  cut.q_latent = on_reference.act(all.q_latent.slice(0, first, tokens));
  cut.q_rope = on_reference.act(all.q_rope.slice(0, first, tokens));
  cut.cache = decode.paged.on_reference(on_reference, sequence, 0, blocks);
  cut.query_start =
      on_reference.upload(std::vector<int32_t>{0, static_cast<int32_t>(tokens - first)}, {2});
  cut.kv_len = on_reference.copy(all.kv_len.slice(0, sequence, sequence + 1));
  cut.block_tables = rising_table(on_reference, blocks);
  if (decode.shape.is_tree)
    cut.tree_mask = on_reference.copy(all.tree_mask.slice(0, first, tokens));
  cut.plan = {};
  cut.out = on_reference.empty(DType::kF32, {tokens - first, all.out.dim(1), all.out.dim(2)});
  ops::mla_absorbed(cut, on_reference.stream());
  return values_of(cut.out);
}

OpCall mla_absorbed_call(Operands& operands, const OpShapes& shapes, int64_t wanted_tokens,
                         const DecodeShape& shape) {
  Decode decode = make_decode(operands, shapes, wanted_tokens, shape);
  ops::MlaAbsorbedArgs& args = decode.args;
  const int64_t tokens = args.out.dim(0), heads = args.out.dim(1), sequences = args.kv_len.dim(0);
  const ops::Backend& backend = operands.backend();
  // Planned once per step, not once per layer.
  if (shapes.fused.mla_plan)
    args.plan = operands.empty(
        DType::kU8,
        {std::max<int64_t>(
            backend.mla_plan_bytes({.tokens = tokens, .sequences = sequences, .heads = heads}),
            1)});
  const auto fill = decode.paged.fill(operands, shapes);
  const ops::KvFormat& format = args.cache.format;
  const auto rows = static_cast<double>(sequences * shape.context);
  return {
      .bytes = rows * static_cast<double>(format.row_bytes) +
               bytes_of({args.q_latent, args.q_rope, args.block_tables, args.out}),
      .flops = rows *
               static_cast<double>(shape.queries * heads * 2 * (format.dim() + format.latent_dim)),
      .prepare =
          [=](ops::Stream& stream) {
            fill(stream);
            if (args.plan.is_null()) return;
            ops::mla_plan({.query_start = args.query_start,
                           .kv_len = args.kv_len,
                           .tree_mask = args.tree_mask,
                           .tokens = tokens,
                           .heads = heads,
                           .max_rows = decode.paged.blocks_per_sequence * kBenchedBlockTokens,
                           .plan = args.plan},
                          stream);
          },
      .run = [=](ops::Stream& stream) { ops::mla_absorbed(args, stream); },
      .expected = [=](OnReference& on_reference) { return reference_decode(on_reference, decode); },
      .actual =
          [=](OnReference& on_reference) {
            return on_reference.values(args.out.slice(0, tokens - shape.queries, tokens));
          }};
}

ops::MlaExpandedArgs make_prompt(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const config::ModelConfig& c = shapes.config;
  const DType act = operands.backend().act;
  const int64_t heads = c.num_attention_heads;
  return {.q = operands.random(act, {tokens, heads, c.qk_head_dim()}),
          .kv = operands.random(act, {tokens, heads, c.qk_nope_head_dim + c.v_head_dim}),
          .k_rope = operands.random(act, {tokens, c.qk_rope_head_dim}),
          .segments = {},
          .tree_mask = {},
          .scale = config::make_rope_params(c).softmax_scale,
          .state_max = operands.empty(DType::kF32, {tokens, heads}),
          .state_sum = operands.empty(DType::kF32, {tokens, heads}),
          .state_acc = operands.empty(DType::kF32, {tokens, heads, c.v_head_dim}),
          .out = operands.empty(act, {tokens, heads, c.v_head_dim})};
}

void run_prompt(ops::MlaExpandedArgs args, const ops::ExpandedSegment& segment,
                ops::Stream& stream) {
  args.segments = {&segment, 1};
  ops::mla_expanded(args, stream);
}

std::vector<float> reference_prompt(OnReference& on_reference, const ops::MlaExpandedArgs& all) {
  const int64_t tokens = all.q.dim(0), heads = all.q.dim(1), first = first_checked(tokens);
  ops::MlaExpandedArgs cut = all;
  cut.q = on_reference.act(checked(all.q));
  cut.kv = on_reference.act(all.kv);
  cut.k_rope = on_reference.act(all.k_rope);
  cut.state_max = on_reference.empty(DType::kF32, {tokens - first, heads});
  cut.state_sum = on_reference.empty(DType::kF32, {tokens - first, heads});
  cut.state_acc = on_reference.empty(DType::kF32, {tokens - first, heads, all.state_acc.dim(2)});
  cut.out = on_reference.empty(DType::kF32, {tokens - first, heads, all.out.dim(2)});
  run_prompt(cut,
             {.num_rows = tokens,
              .num_tokens = tokens - first,
              .query_begin = first,
              .first = true,
              .last = true},
             on_reference.stream());
  return values_of(cut.out);
}

OpCall mla_expanded_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const ops::MlaExpandedArgs args = make_prompt(operands, shapes, tokens);
  const ops::ExpandedSegment segment{
      .num_rows = tokens, .num_tokens = tokens, .first = true, .last = true};
  const double visible = static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2;
  const int64_t row_flops = 2 * (args.q.dim(2) + args.out.dim(2));
  return {
      .bytes = bytes_of({args.q, args.kv, args.k_rope, args.out}),
      .flops = visible * static_cast<double>(args.q.dim(1) * row_flops),
      .prepare = {},
      .run = [=](ops::Stream& stream) { run_prompt(args, segment, stream); },
      .expected = [=](OnReference& on_reference) { return reference_prompt(on_reference, args); },
      .actual = [=](OnReference& on_reference) { return on_reference.values(checked(args.out)); }};
}

}  // namespace

std::vector<OpCase> attention_cases(const OpShapes& shapes) {
  std::vector<OpCase> cases;
  for (const int64_t context : shapes.contexts)
    for (const DecodeShape& shape :
         {DecodeShape{context}, {context, 4, /*is_tree=*/false}, {context, 8, /*is_tree=*/true}}) {
      if (context < shape.queries) continue;
      cases.push_back({.op = "mla_absorbed",
                       .what = shape.what(),
                       .dtype = shapes.kv_cache_dtype,
                       .make =
                           [&shapes, shape](Operands& operands, int64_t tokens) {
                             return mla_absorbed_call(operands, shapes, tokens, shape);
                           },
                       .min_tokens = shape.queries,
                       .max_tokens = kMaxDecodeTokens});
    }
  cases.push_back(
      {.op = "mla_expanded",
       .what = "one prompt",
       .dtype = shapes.backend->act,
       .make = [&shapes](Operands& operands,
                         int64_t tokens) { return mla_expanded_call(operands, shapes, tokens); },
       .min_tokens = kMinPromptTokens});
  return cases;
}

}  // namespace fathom::apps
