#include "ops/verify.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_or_null;

namespace {

struct NamedTensor {
  const char* name;
  const tensor::Tensor* tensor;
};

void expect_all(std::initializer_list<NamedTensor> tensors, DType dtype, Dim& dim) {
  for (const NamedTensor& each : tensors) expect(each.name, *each.tensor, dtype, {&dim});
}

void expect_starts(const tensor::Tensor& query_start, const Dim& slices) {
  Dim starts("slices + 1", slices.value() + 1);
  expect("query_start", query_start, DType::kI32, {&starts});
}

}  // namespace

void expect_draft_slots(const DraftSlots& slots, Dim& num_slots) {
  Dim max_drafts("max_drafts");
  expect_all({{"last_token", &slots.last_token},
              {"length", &slots.length},
              {"max_rows", &slots.max_rows},
              {"num_drafts", &slots.num_drafts}},
             DType::kI32, num_slots);
  expect("drafts", slots.drafts, DType::kI32, {&num_slots, &max_drafts});
  expect("parents", slots.parents, DType::kI32, {&num_slots, &max_drafts});
  expect_contiguous("drafts", slots.drafts);
  expect_contiguous("parents", slots.parents);
}

void draft_inputs(const DraftInputsArgs& args, Stream& stream) {
  Dim slots("slots"), slices("slices"), tokens("tokens");
  expect_draft_slots(args.slots, slots);
  expect_all({{"slice_slot", &args.slice_slot}, {"num_wanted", &args.num_wanted}}, DType::kI32,
             slices);
  expect_starts(args.query_start, slices);
  expect_all({{"token_ids", &args.token_ids}, {"positions", &args.positions}}, DType::kI32, tokens);
  expect("kv_rows", args.kv_rows, DType::kI64, {&tokens});
  expect_or_null("tree_mask", args.tree_mask, DType::kU64, {&tokens});
  dispatch("draft_inputs", stream.backend().act, stream.backend().draft_inputs, args, stream);
}

void draft_rows(const DraftRowsArgs& args, Stream& stream) {
  Dim slots("slots"), tokens("tokens"), rows("rows"), max_path("max_path");
  expect_draft_slots(args.slots, slots);
  expect("positions", args.positions, DType::kI32, {&tokens});
  expect_all({{"row_tokens", &args.row_tokens},
              {"row_slot", &args.row_slot},
              {"row_draft", &args.row_draft},
              {"position", &args.position}},
             DType::kI32, rows);
  expect("paths", args.paths, DType::kI32, {&rows, &max_path});
  expect_contiguous("paths", args.paths);
  dispatch("draft_rows", stream.backend().act, stream.backend().draft_rows, args, stream);
}

void accept_drafts(const AcceptDraftsArgs& args, Stream& stream) {
  Dim slots("slots"), slices("slices"), tokens("tokens"), rows("rows");
  Dim penalty_rows("penalty_rows"), vocab_size("vocab_size");
  expect_draft_slots(args.slots, slots);
  expect_all({{"slice_slot", &args.slice_slot},
              {"num_wanted", &args.num_wanted},
              {"first_row", &args.first_row},
              {"penalty_row", &args.penalty_row},
              {"num_out", &args.num_out},
              {"num_verified", &args.num_verified},
              {"first_position", &args.first_position},
              {"draft_row", &args.draft_row}},
             DType::kI32, slices);
  expect_starts(args.query_start, slices);
  expect_or_null("counts", args.counts, DType::kI32, {&penalty_rows, &vocab_size});
  expect_contiguous("counts", args.counts);
  expect("sampled", args.sampled, DType::kI32, {&rows});
  expect_all({{"next_given", &args.next_given},
              {"out_rows", &args.out_rows},
              {"out_tokens", &args.out_tokens},
              {"source", &args.source},
              {"next_ids", &args.next_ids},
              {"draft_positions", &args.draft_positions}},
             DType::kI32, tokens);
  expect_all({{"kv_rows", &args.kv_rows}, {"draft_kv_rows", &args.draft_kv_rows}}, DType::kI64,
             tokens);
  expect("draft_row_kv", args.draft_row_kv, DType::kI64, {&slices});
  FATHOM_CHECK(args.agreement <= 1, "agreement is " << args.agreement);
  dispatch("accept_drafts", stream.backend().act, stream.backend().accept_drafts, args, stream);
}

void move_rows(const MoveRowsArgs& args, Stream& stream) {
  Dim layers("layers"), blocks("blocks"), block_tokens("block_tokens"), row_bytes("row_bytes");
  Dim starts("slices + 1"), tokens("tokens");
  expect("rows", args.rows, DType::kU8, {&layers, &blocks, &block_tokens, &row_bytes});
  expect_contiguous("rows", args.rows);
  expect("query_start", args.query_start, DType::kI32, {&starts});
  expect("source", args.source, DType::kI32, {&tokens});
  expect_all({{"from", &args.from}, {"to", &args.to}}, DType::kI64, tokens);
  dispatch("move_rows", stream.backend().act, stream.backend().move_rows, args, stream);
}

}  // namespace fathom::ops
