// Drafting around the model: levels of a tree of drafts, and the hidden states that its passes begin with.

#include <array>

#include "apps/bench_ops/exact.h"
#include "apps/bench_ops/paged_cache.h"
#include "ops/draft.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// Of EAGLE-2: levels, continuations of each node, drafts.
struct GrowShape {
  const char* name;
  int level, num_levels, top_k;
  int64_t max_drafts;
};
constexpr std::array<GrowShape, 4> kGrowShapes = {
    GrowShape{
        .name = "chain, 1st of 3 levels", .level = 1, .num_levels = 3, .top_k = 1, .max_drafts = 3},
    GrowShape{.name = "chain, last of 3 levels",
              .level = 3,
              .num_levels = 3,
              .top_k = 1,
              .max_drafts = 3},
    GrowShape{.name = "top 4, 2nd of 3 levels",
              .level = 2,
              .num_levels = 3,
              .top_k = 4,
              .max_drafts = 15},
    GrowShape{.name = "top 4, last of 3 levels",
              .level = 3,
              .num_levels = 3,
              .top_k = 4,
              .max_drafts = 15}};

// Level 1, with room for all of them.
ops::GrowDraftsArgs first_level(Operands& operands, const OpShapes& shapes, const GrowShape& shape,
                                int64_t slices) {
  const auto zeros = [&](int64_t rows, int64_t columns) {
    return filled(operands, rows * columns, int32_t{0}).reshape({rows, columns});
  };
  const auto context = static_cast<int32_t>(shapes.contexts.front());
  const int64_t k = shape.top_k, nodes = k + (shape.num_levels - 1) * k * k,
                fed = shape.num_levels * k;
  const int64_t blocks = context / kBenchedBlockTokens + 2;
  return {.top_k = shape.top_k,
          .slots = {.last_token = filled(operands, slices, int32_t{1}),
                    .length = filled(operands, slices, context),
                    .max_rows = filled(operands, slices, context + 1000),
                    .drafts = zeros(slices, shape.max_drafts),
                    .parents = zeros(slices, shape.max_drafts),
                    .num_drafts = filled(operands, slices, int32_t{0})},
          .block_tables =
              made(operands, slices * blocks, [](int64_t i) { return static_cast<int32_t>(i); })
                  .reshape({slices, blocks}),
          .slice_slot = made(operands, slices, [](int64_t i) { return static_cast<int32_t>(i); }),
          .num_asked = filled(operands, slices, static_cast<int32_t>(shape.max_drafts)),
          .top_ids = {},
          .top_logprobs = {},
          .node_token = zeros(slices, nodes),
          .node_parent = zeros(slices, nodes),
          .node_score = filled(operands, slices * nodes, 0.0f).reshape({slices, nodes}),
          .fed = zeros(slices, fed),
          .out_drafts = zeros(slices, shape.max_drafts),
          .out_parents = zeros(slices, shape.max_drafts),
          .out_count = filled(operands, slices, int32_t{0}),
          .block_tokens = kBenchedBlockTokens,
          .first_spare_block = slices * blocks};
}

// The same on a level, with what the drafter said about the level before and the inputs of the pass after it.
ops::GrowDraftsArgs on_level(ops::GrowDraftsArgs args, Operands& operands, const OpShapes& shapes,
                             const GrowShape& shape, int level) {
  const int64_t slices = args.slice_slot.dim(0), k = shape.top_k,
                said = slices * (level == 1 ? 1 : k);
  const int64_t tokens = slices * ops::draft_width(shape.top_k, level);
  args.level = level;
  args.is_last = level == shape.num_levels;
  args.top_ids = made(operands, said * k, [&](int64_t) {
                   return static_cast<int32_t>(operands.draw(shapes.config.vocab_size));
                 }).reshape({said, k});
  args.top_logprobs = operands.random(DType::kF32, {said, k}, -4, -0.01f);
  if (args.is_last) return args;
  args.token_ids = filled(operands, tokens, int32_t{0});
  args.positions = filled(operands, tokens, int32_t{0});
  args.kv_rows = filled(operands, tokens, int64_t{0});
  args.kv_len = filled(operands, slices, int32_t{0});
  args.tables = filled(operands, args.block_tables.num_elements(), int32_t{0})
                    .reshape({slices, args.block_tables.dim(1)});
  if (k == 1) return args;
  args.tree_mask = filled(operands, tokens, uint64_t{0});
  args.source = filled(operands, tokens, int32_t{0});
  args.logit_rows = filled(operands, slices * k, int32_t{0});
  return args;
}

OpCall grow_drafts_call(Operands& operands, const OpShapes& shapes, const GrowShape& shape,
                        int64_t slices) {
  const ops::GrowDraftsArgs first = first_level(operands, shapes, shape, slices);
  std::vector<ops::GrowDraftsArgs> before;
  for (int level = 1; level < shape.level; ++level)
    before.push_back(on_level(first, operands, shapes, shape, level));
  const ops::GrowDraftsArgs args = on_level(first, operands, shapes, shape, shape.level);
  const auto all = [](auto& a, const auto& each) {
    each_of_slots(a.slots, each);
    for (auto* tensor :
         {&a.block_tables, &a.slice_slot,  &a.num_asked,  &a.top_ids,   &a.top_logprobs,
          &a.node_token,   &a.node_parent, &a.node_score, &a.fed,       &a.out_drafts,
          &a.out_parents,  &a.out_count,   &a.token_ids,  &a.positions, &a.kv_rows,
          &a.kv_len,       &a.tables,      &a.tree_mask,  &a.source,    &a.logit_rows})
      each(*tensor);
  };
  OpCall call = exact_call(args, all, ops::grow_drafts, bytes_of_arguments(args, all));
  call.prepare = [=](ops::Stream& stream) {
    for (const ops::GrowDraftsArgs& level : before) ops::grow_drafts(level, stream);
  };
  return call;
}

// Hidden states of parents in a tree's pass: of the pass before, or the root's.
OpCall select_rows_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const DType act = operands.backend().act;
  const int64_t dim = shapes.config.hidden_size, roots = (tokens + 3) / 4;
  const ops::SelectRowsArgs args{
      .a = operands.random(act, {tokens, dim}),
      .b = operands.random(act, {roots, dim}),
      .rows = made(
          operands, tokens,
          [&](int64_t) { return static_cast<int32_t>(operands.draw(tokens + roots) - roots); }),
      .out = operands.empty(act, {tokens, dim})};
  const auto all = [](auto& a, const auto& each) {
    each(a.a), each(a.b), each(a.rows), each(a.out);
  };
  return exact_call(args, all, ops::select_rows, bytes_of({args.rows, args.out, args.out}));
}

}  // namespace

std::vector<OpCase> draft_cases(const OpShapes& shapes) {
  const DType act = shapes.backend->act;
  std::vector<OpCase> cases;
  const auto add = [&](const char* op, const char* what, auto make) {
    cases.push_back({.op = op,
                     .what = what,
                     .dtype = act,
                     .make = std::move(make),
                     .max_tokens = kMaxDecodeTokens});
  };
  for (const GrowShape& shape : kGrowShapes)
    add("grow_drafts", shape.name, [&](Operands& operands, int64_t tokens) {
      return grow_drafts_call(operands, shapes, shape, tokens);
    });
  add("select_rows", "hidden states of parents", [&](Operands& operands, int64_t tokens) {
    return select_rows_call(operands, shapes, tokens);
  });
  return cases;
}

}  // namespace fathom::apps
