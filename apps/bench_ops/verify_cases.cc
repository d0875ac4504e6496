// Verification of drafts around the model: drafts into a step, which of them hold, and their rows of the cache.

#include <array>

#include "apps/bench_ops/exact.h"
#include "apps/bench_ops/paged_cache.h"
#include "ops/step.h"
#include "ops/verify.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// Drafts of a slot: parents, -1 the last token, and those that the target agrees with, from the last token down.
struct DraftShape {
  const char* name;
  std::vector<int32_t> parents, accepted;

  int64_t num_drafts() const { return static_cast<int64_t>(parents.size()); }
  int64_t width() const { return num_drafts() + 1; }  // query tokens
  bool is_tree() const { return parents.back() != num_drafts() - 2; }
};

const std::array<DraftShape, 2>& draft_shapes() {
  static const std::array<DraftShape, 2> shapes = {
      DraftShape{"chain of 4", {-1, 0, 1}, {0, 1, 2}},
      DraftShape{"tree of 8", {-1, -1, 0, 0, 1, 1, 2}, {0, 2, 6}}};
  return shapes;
}

// As many slots as slices, slice s of slot s, with all of their drafts.
struct DraftWorld {
  int64_t slices = 0, tokens = 0;
  ops::DraftSlots slots;
  Tensor slice_slot, query_start, num_wanted, kv_rows;

  DraftWorld(Operands& operands, const OpShapes& shapes, const DraftShape& shape,
             int64_t max_tokens)
      : slices(max_tokens / shape.width()), tokens(slices * shape.width()) {
    const int64_t drafts = shape.num_drafts(), width = shape.width();
    const auto number = [](int64_t i) { return static_cast<int32_t>(i); };
    const auto context = static_cast<int32_t>(shapes.contexts.front());
    slots.last_token = filled(operands, slices, int32_t{1});
    slots.length = filled(operands, slices, context);
    slots.max_rows = filled(operands, slices, context + 1000);
    // Siblings differ, and so does every draft from what is drawn elsewhere.
    slots.drafts = made(operands, slices * drafts, [&](int64_t i) {
                     return number(token(i % drafts));
                   }).reshape({slices, drafts});
    slots.parents = made(operands, slices * drafts, [&](int64_t i) {
                      return shape.parents[static_cast<size_t>(i % drafts)];
                    }).reshape({slices, drafts});
    slots.num_drafts = filled(operands, slices, number(drafts));
    slice_slot = made(operands, slices, number);
    query_start = made(operands, slices + 1, [&](int64_t i) { return number(i * width); });
    num_wanted = filled(operands, slices, number(width));
    kv_rows = made(operands, tokens,
                   [&](int64_t t) { return t / width * kBenchedBlockTokens + t % width; });
  }

  static int64_t token(int64_t draft) { return 10 + draft; }
};

OpCall draft_inputs_call(Operands& operands, const OpShapes& shapes, const DraftShape& shape,
                         int64_t tokens) {
  const DraftWorld world(operands, shapes, shape, tokens);
  const ops::DraftInputsArgs args{
      .slots = world.slots,
      .slice_slot = world.slice_slot,
      .query_start = world.query_start,
      .num_wanted = world.num_wanted,
      .token_ids = filled(operands, world.tokens, int32_t{0}),
      .positions = filled(operands, world.tokens, static_cast<int32_t>(shapes.contexts.front())),
      .kv_rows = world.kv_rows,
      .tree_mask = shape.is_tree() ? filled(operands, world.tokens, uint64_t{0}) : Tensor()};
  const auto all = [](auto& a, const auto& each) {
    each_of_slots(a.slots, each);
    for (auto* tensor : {&a.slice_slot, &a.query_start, &a.num_wanted, &a.token_ids, &a.positions,
                         &a.kv_rows, &a.tree_mask})
      each(*tensor);
  };
  return exact_call(args, all, ops::draft_inputs, bytes_of_arguments(args, all));
}

OpCall draft_rows_call(Operands& operands, const OpShapes& shapes, const DraftShape& shape,
                       int64_t tokens) {
  const DraftWorld world(operands, shapes, shape, tokens);
  const auto in_slice = [width = shape.width()](int64_t t) {
    return static_cast<int32_t>(t % width);
  };
  const ops::DraftRowsArgs args{
      .slots = world.slots,
      .positions = made(operands, world.tokens, in_slice),
      .row_tokens = made(operands, world.tokens, [](int64_t t) { return static_cast<int32_t>(t); }),
      .row_slot =
          made(operands, world.tokens,
               [width = shape.width()](int64_t t) { return static_cast<int32_t>(t / width); }),
      .row_draft = made(operands, world.tokens, [&](int64_t t) { return in_slice(t) - 1; }),
      .position = operands.empty(DType::kI32, {world.tokens}),
      .paths = operands.empty(DType::kI32, {world.tokens, shape.num_drafts()})};
  const auto all = [](auto& a, const auto& each) {
    each_of_slots(a.slots, each);
    for (auto* tensor :
         {&a.positions, &a.row_tokens, &a.row_slot, &a.row_draft, &a.position, &a.paths})
      each(*tensor);
  };
  return exact_call(args, all, ops::draft_rows, bytes_of_arguments(args, all));
}

// What a target that agrees with `accepted` samples at each query token; elsewhere what no draft has.
std::vector<int32_t> sampled_tokens(const DraftWorld& world, const DraftShape& shape) {
  std::vector<int32_t> sampled(static_cast<size_t>(world.tokens), 5);
  for (int64_t s = 0; s < world.slices; ++s) {
    int64_t row = s * shape.width();
    for (const int32_t draft : shape.accepted) {
      sampled[static_cast<size_t>(row)] = static_cast<int32_t>(DraftWorld::token(draft));
      row = s * shape.width() + draft + 1;
    }
  }
  return sampled;
}

ops::AcceptDraftsArgs accept_args(Operands& operands, const DraftWorld& world,
                                  const DraftShape& shape) {
  const auto zeros = [&](int64_t count) { return filled(operands, count, int32_t{0}); };
  return {.slots = world.slots,
          .slice_slot = world.slice_slot,
          .query_start = world.query_start,
          .num_wanted = world.num_wanted,
          .first_row =
              made(operands, world.slices,
                   [width = shape.width()](int64_t s) { return static_cast<int32_t>(s * width); }),
          .penalty_row = filled(operands, world.slices, int32_t{-1}),
          .counts = {},
          .sampled = operands.upload(sampled_tokens(world, shape), {world.tokens}),
          .next_given = filled(operands, world.tokens, int32_t{-1}),
          .kv_rows = world.kv_rows,
          .num_out = zeros(world.slices),
          .out_rows = zeros(world.tokens),
          .out_tokens = zeros(world.tokens),
          .num_verified = zeros(world.slices),
          .first_position = zeros(world.slices),
          .source = zeros(world.tokens),
          .next_ids = zeros(world.tokens),
          .draft_positions = zeros(world.tokens),
          .draft_kv_rows = filled(operands, world.tokens, int64_t{0}),
          .draft_row = zeros(world.slices),
          .draft_row_kv = filled(operands, world.slices, int64_t{0})};
}

// Puts lengths and numbers of drafts back: the next call would find no drafts.
ops::WriteWordsArgs restoring(Operands& operands, const OpShapes& shapes, const DraftWorld& world,
                              const DraftShape& shape) {
  std::vector<uint64_t> addresses;
  std::vector<int32_t> values;
  for (int64_t s = 0; s < world.slices; ++s) {
    const auto offset = static_cast<uint64_t>(s) * sizeof(int32_t);
    addresses.push_back(reinterpret_cast<uint64_t>(world.slots.length.data()) + offset);
    values.push_back(shapes.contexts.front());
    addresses.push_back(reinterpret_cast<uint64_t>(world.slots.num_drafts.data()) + offset);
    values.push_back(static_cast<int32_t>(shape.num_drafts()));
  }
  return {.address = operands.upload(addresses, {2 * world.slices}),
          .value = operands.upload(values, {2 * world.slices})};
}

OpCall accept_drafts_call(Operands& operands, const OpShapes& shapes, const DraftShape& shape,
                          int64_t tokens) {
  const DraftWorld world(operands, shapes, shape, tokens);
  const ops::AcceptDraftsArgs args = accept_args(operands, world, shape);
  const ops::WriteWordsArgs restore = restoring(operands, shapes, world, shape);
  const auto all = [](auto& a, const auto& each) {
    each_of_slots(a.slots, each);
    for (auto* tensor : {&a.slice_slot, &a.query_start, &a.num_wanted, &a.first_row, &a.penalty_row,
                         &a.sampled, &a.next_given, &a.kv_rows, &a.num_out, &a.out_rows,
                         &a.out_tokens, &a.num_verified, &a.first_position, &a.source, &a.next_ids,
                         &a.draft_positions, &a.draft_kv_rows, &a.draft_row, &a.draft_row_kv})
      each(*tensor);
  };
  OpCall call = exact_call(
      args, all, ops::accept_drafts,
      bytes_of_arguments(args, all) + bytes_of({restore.address, restore.value, restore.value}));
  call.run = [=](ops::Stream& stream) {
    ops::write_words(restore, stream);
    ops::accept_drafts(args, stream);
  };
  return call;
}

// The accepted rows of each slice, a block of its own, in every layer.
OpCall move_rows_call(Operands& operands, const OpShapes& shapes, const DraftShape& shape,
                      int64_t tokens) {
  const DraftWorld world(operands, shapes, shape, tokens);
  const config::ModelConfig& c = shapes.config;
  const int64_t row_bytes =
      ops::KvFormat::of(shapes.kv_cache_dtype, c.kv_lora_rank, c.qk_rope_head_dim).row_bytes;
  const int64_t layers = c.num_hidden_layers;
  const Tensor random =
      operands.random(DType::kF8E4M3, {layers, world.slices, kBenchedBlockTokens, row_bytes});
  std::vector<int32_t> source(static_cast<size_t>(world.tokens));
  std::vector<int64_t> to(source.size(), -1);
  int64_t num_moved = 0;
  for (int64_t t = 0; t < world.tokens; ++t) {
    const int64_t k = t % shape.width(), first = t - k;
    const bool stays = k <= static_cast<int64_t>(shape.accepted.size());
    const int64_t from =
        stays && k > 0 ? first + shape.accepted[static_cast<size_t>(k - 1)] + 1 : t;
    source[static_cast<size_t>(t)] = static_cast<int32_t>(from);
    if (stays) to[static_cast<size_t>(t)] = t / shape.width() * kBenchedBlockTokens + k;
    num_moved += from != t;
  }
  const ops::MoveRowsArgs args{
      .rows = Tensor::contiguous(random.data(), DType::kU8,
                                 {layers, world.slices, kBenchedBlockTokens, row_bytes}),
      .query_start = world.query_start,
      .source = operands.upload(source, {world.tokens}),
      .from = world.kv_rows,
      .to = operands.upload(to, {world.tokens})};
  const auto all = [](auto& a, const auto& each) {
    for (auto* tensor : {&a.rows, &a.query_start, &a.source, &a.from, &a.to}) each(*tensor);
  };
  return exact_call(args, all, ops::move_rows,
                    static_cast<double>(2 * num_moved * layers * row_bytes) +
                        bytes_of({args.query_start, args.source, args.from, args.to}));
}

}  // namespace

std::vector<OpCase> verify_cases(const OpShapes& shapes) {
  const DType act = shapes.backend->act;
  std::vector<OpCase> cases;
  for (const DraftShape& shape : draft_shapes()) {
    const auto add = [&](const char* op, const std::string& what, auto call) {
      cases.push_back({.op = op,
                       .what = what,
                       .dtype = act,
                       .make =
                           [&shapes, &shape, call](Operands& operands, int64_t tokens) {
                             return call(operands, shapes, shape, tokens);
                           },
                       .min_tokens = shape.width(),
                       .max_tokens = kMaxDecodeTokens});
    };
    add("draft_inputs", shape.name, draft_inputs_call);
    add("draft_rows", shape.name, draft_rows_call);
    add("accept_drafts", std::string(shape.name) + " + write_words", accept_drafts_call);
    if (shape.is_tree()) add("move_rows", shape.name, move_rows_call);
  }
  return cases;
}

}  // namespace fathom::apps
