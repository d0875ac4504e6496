#include "ops/draft.h"

#include "ops/boundary.h"
#include "ops/mla.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_or_null;

namespace {

void expect_tree(const GrowDraftsArgs& args, Dim& slices, Dim& top_k) {
  const int64_t fan = args.level == 1 ? 1 : args.top_k;
  Dim rows("slices * fan", slices.value() * fan), max_nodes("max_nodes"), max_fed("max_fed");
  expect("top_ids", args.top_ids, DType::kI32, {&rows, &top_k});
  expect("top_logprobs", args.top_logprobs, DType::kF32, {&rows, &top_k});
  expect("node_token", args.node_token, DType::kI32, {&slices, &max_nodes});
  expect("node_parent", args.node_parent, DType::kI32, {&slices, &max_nodes});
  expect("node_score", args.node_score, DType::kF32, {&slices, &max_nodes});
  expect("fed", args.fed, DType::kI32, {&slices, &max_fed});
  const int64_t k = args.top_k, level = args.level;
  FATHOM_CHECK(max_nodes.value() >= k + (level - 1) * k * k && max_fed.value() >= level * k,
               "room for " << max_nodes.value() << " nodes and " << max_fed.value()
                           << " fed ones on level " << level << " of the top " << k);
}

void expect_next_pass(const GrowDraftsArgs& args, Dim& slices, Dim& max_blocks) {
  const int64_t width = draft_width(args.top_k, args.level);
  Dim tokens("slices * width", slices.value() * width);
  Dim newest("slices * top_k", slices.value() * args.top_k);
  expect("token_ids", args.token_ids, DType::kI32, {&tokens});
  expect("positions", args.positions, DType::kI32, {&tokens});
  expect("kv_rows", args.kv_rows, DType::kI64, {&tokens});
  expect("kv_len", args.kv_len, DType::kI32, {&slices});
  expect("tables", args.tables, DType::kI32, {&slices, &max_blocks});
  expect_contiguous("tables", args.tables);
  FATHOM_CHECK(width <= kMaxTreeTokens && args.level * args.top_k <= args.block_tokens,
               "level " << args.level << " of the top " << args.top_k << " in blocks of "
                        << args.block_tokens);
  if (args.top_k == 1) return;
  expect("tree_mask", args.tree_mask, DType::kU64, {&tokens});
  expect("source", args.source, DType::kI32, {&tokens});
  expect("logit_rows", args.logit_rows, DType::kI32, {&newest});
}

}  // namespace

void grow_drafts(const GrowDraftsArgs& args, Stream& stream) {
  FATHOM_CHECK(args.level >= 1 && args.top_k >= 1,
               "level " << args.level << " of the top " << args.top_k);
  Dim slots("slots"), slices("slices"), max_blocks("max_blocks");
  Dim max_drafts("max_drafts", args.slots.drafts.dim(1));
  Dim top_k("top_k", args.top_k);
  expect_draft_slots(args.slots, slots);
  expect("block_tables", args.block_tables, DType::kI32, {&slots, &max_blocks});
  expect("slice_slot", args.slice_slot, DType::kI32, {&slices});
  expect("num_asked", args.num_asked, DType::kI32, {&slices});
  expect_tree(args, slices, top_k);
  expect("out_drafts", args.out_drafts, DType::kI32, {&slices, &max_drafts});
  expect("out_parents", args.out_parents, DType::kI32, {&slices, &max_drafts});
  expect("out_count", args.out_count, DType::kI32, {&slices});
  if (!args.is_last) expect_next_pass(args, slices, max_blocks);
  for (const auto& [name, tensor] :
       {std::pair{"block_tables", &args.block_tables}, std::pair{"top_ids", &args.top_ids},
        std::pair{"top_logprobs", &args.top_logprobs}, std::pair{"node_token", &args.node_token},
        std::pair{"node_parent", &args.node_parent}, std::pair{"node_score", &args.node_score},
        std::pair{"fed", &args.fed}, std::pair{"out_drafts", &args.out_drafts},
        std::pair{"out_parents", &args.out_parents}})
    expect_contiguous(name, *tensor);
  dispatch("grow_drafts", stream.backend().act, stream.backend().grow_drafts, args, stream);
}

void select_rows(const SelectRowsArgs& args, Stream& stream) {
  Dim a_rows("a rows"), b_rows("b rows"), outputs("outputs"), dim("dim");
  const DType act = stream.backend().act;
  expect("a", args.a, act, {&a_rows, &dim});
  expect("b", args.b, act, {&b_rows, &dim});
  expect("rows", args.rows, DType::kI32, {&outputs});
  expect("out", args.out, act, {&outputs, &dim});
  for (const auto& [name, tensor] :
       {std::pair{"a", &args.a}, std::pair{"b", &args.b}, std::pair{"out", &args.out}})
    expect_contiguous(name, *tensor);
  dispatch("select_rows", act, stream.backend().select_rows, args, stream);
}

}  // namespace fathom::ops
