// Violations of contracts die at the boundary, before any backend runs, and the message names what is wrong.

#include "ops/embedding.h"
#include "ops/fill_from_table.h"
#include "ops/head_linear.h"
#include "ops/index.h"
#include "ops/kv_cache.h"
#include "ops/linear.h"
#include "ops/mla.h"
#include "ops/moe.h"
#include "ops/rms_norm.h"
#include "tests/ops/device.h"

namespace fathom::ops_test {
namespace {

class BoundaryDeathTest : public OpsTest {
 protected:
  // Views without memory: the boundary reads shapes only.
  static Tensor shape(DType dtype, std::initializer_list<int64_t> dims) {
    return Tensor::contiguous(nullptr, dtype, dims);
  }
  static constexpr DType kF32 = DType::kF32, kI32 = DType::kI32;
};
INSTANTIATE_TEST_SUITE_P(reference, BoundaryDeathTest, testing::Values(tested_backends().front()),
                         backend_name);

TEST_P(BoundaryDeathTest, a_dimension_that_disagrees_is_named_with_both_values) {
  EXPECT_DEATH(
      ops::embedding(
          {.ids = shape(kI32, {3}), .table = shape(kF32, {10, 64}), .out = shape(kF32, {2, 64})},
          stream()),
      "out axis 0: tokens is 3, got 2");
  EXPECT_DEATH(ops::linear({.x = shape(kF32, {3, 60}),
                            .weight = {.data = shape(kF32, {8, 64}), .scale = {}},
                            .out = shape(kF32, {3, 8})},
                           stream()),
               "weight axis 1: in is 60, got 64");
}

TEST_P(BoundaryDeathTest, a_dtype_or_rank_that_the_contract_lacks_is_refused) {
  EXPECT_DEATH(ops::rms_norm({.x = shape(DType::kF16, {3, 8}),
                              .weight = shape(kF32, {8}),
                              .residual = {},
                              .out = shape(kF32, {3, 8})},
                             stream()),
               "x is f16\\[3, 8\\], dtype is not one the operator takes");
  EXPECT_DEATH(ops::rms_norm({.x = shape(kF32, {8}),
                              .weight = shape(kF32, {8}),
                              .residual = {},
                              .out = shape(kF32, {3, 8})},
                             stream()),
               "x is f32\\[8\\], rank must be 2");
}

TEST_P(BoundaryDeathTest, a_table_must_have_the_type_of_what_it_fills_and_room_for_a_block) {
  const Tensor out = shape(kF32, {1, 8});
  EXPECT_DEATH(
      ops::fill_from_table({.out = out, .table = shape(kF32, {4092}), .row_elements = 8}, stream()),
      "table has 4092 elements, must be a multiple of 4 from 4096 on");
  EXPECT_DEATH(ops::fill_from_table(
                   {.out = out, .table = shape(DType::kBf16, {8192}), .row_elements = 8}, stream()),
               "table is bf16");
  EXPECT_DEATH(
      ops::fill_from_table({.out = out, .table = shape(kF32, {4096}), .row_elements = 7}, stream()),
      "rows of 8 at 0, rows of the whole are 7");
}

TEST_P(BoundaryDeathTest, a_missing_tensor_is_refused_by_name) {
  EXPECT_DEATH(
      ops::rms_norm(
          {.x = shape(kF32, {3, 8}), .weight = {}, .residual = {}, .out = shape(kF32, {3, 8})},
          stream()),
      "weight is null");
}

TEST_P(BoundaryDeathTest, f8_weights_need_the_scales_of_their_blocks_and_others_none) {
  const Tensor x = shape(kF32, {3, 200}), out = shape(kF32, {3, 130});
  const Tensor weight = shape(DType::kF8E4M3, {130, 200});
  EXPECT_DEATH(ops::linear({.x = x, .weight = {.data = weight, .scale = {}}, .out = out}, stream()),
               "scale is null, rank must be 2");
  EXPECT_DEATH(
      ops::linear({.x = x, .weight = {.data = weight, .scale = shape(kF32, {2, 1})}, .out = out},
                  stream()),
      "scale axis 1: must be 2, got 1");
  EXPECT_DEATH(
      ops::linear({.x = x,
                   .weight = {.data = shape(kF32, {130, 200}), .scale = shape(kF32, {2, 2})},
                   .out = out},
                  stream()),
      "must be null without f8, i8, i4x2 or u4x2 weights");
  const auto of_heads = [&](const Tensor& weights, const Tensor& scale) {
    ops::head_linear({.x = shape(kF32, {3, 2, 200}),
                      .weight = {.data = weights, .scale = scale},
                      .out = shape(kF32, {3, 2, 130})},
                     stream());
  };
  EXPECT_DEATH(of_heads(shape(DType::kF8E4M3, {2, 130, 200}), {}), "scale is null");
  EXPECT_DEATH(of_heads(shape(DType::kF8E4M3, {2, 130, 200}), shape(kF32, {2, 1, 2})),
               "scale axis 1: blocks of out is 2, got 1");
  EXPECT_DEATH(of_heads(shape(kF32, {2, 130, 200}), shape(kF32, {2, 2, 2})),
               "must be null without f8, i8, i4x2 or u4x2 weights");
}

TEST_P(BoundaryDeathTest, strided_memory_is_refused_where_the_contract_wants_contiguous) {
  const Tensor wide = shape(kF32, {130, 300});
  EXPECT_DEATH(ops::linear({.x = shape(kF32, {3, 200}),
                            .weight = {.data = wide.slice(1, 0, 200), .scale = {}},
                            .out = shape(kF32, {3, 130})},
                           stream()),
               "weight is a strided f32\\[130, 200\\], must be contiguous");
  const auto of_heads = [&](const Tensor& weight, const Tensor& scale) {
    ops::head_linear({.x = shape(kF32, {3, 2, weight.dim(2)}),
                      .weight = {.data = weight, .scale = scale},
                      .out = shape(kF32, {3, 2, weight.dim(1)})},
                     stream());
  };
  EXPECT_DEATH(of_heads(shape(kF32, {2, 4, 16}).slice(2, 0, 8), {}),
               "weight rows have stride 16, must be 8");
  EXPECT_DEATH(
      of_heads(shape(DType::kF8E4M3, {2, 200, 130}), shape(kF32, {2, 2, 3}).slice(2, 0, 2)),
      "scale rows have stride 3, must be 2");
}

TEST_P(BoundaryDeathTest, rows_beyond_the_block_table_are_refused) {
  const ops::KvFormat format = ops::KvFormat::of(kF32, 64, 8);
  const ops::ExpandedSegment segment{.row_begin = 100, .num_rows = 29};
  EXPECT_DEATH(ops::kv_gather({.cache = {.rows = shape(DType::kU8, {9, 64, 288}), .format = format},
                               .block_tables = shape(kI32, {1, 2}),
                               .segments = {&segment, 1},
                               .latent = shape(kF32, {29, 64}),
                               .k_rope = shape(kF32, {29, 8})},
                              stream()),
               "rows \\[100, 129\\) of 2 blocks of 64");
}

TEST_P(BoundaryDeathTest, cache_rows_of_another_width_or_format_are_refused) {
  const ops::ExpandedSegment segment{.num_rows = 1};
  const auto gather = [&](const ops::KvFormat& format, int64_t row_bytes) {
    ops::kv_gather({.cache = {.rows = shape(DType::kU8, {9, 64, row_bytes}), .format = format},
                    .block_tables = shape(kI32, {1, 2}),
                    .segments = {&segment, 1},
                    .latent = shape(kF32, {1, 64}),
                    .k_rope = shape(kF32, {1, 8})},
                   stream());
  };
  EXPECT_DEATH(gather(ops::KvFormat::of(DType::kF8E4M3, 64, 8), 288),
               "cache axis 2: row_bytes is 96, got 288");
  EXPECT_DEATH(
      gather(ops::KvFormat::of(kF32, 60, 12), 288),
      "cache rows are of 60 \\+ 12 values, must be kv_lora_rank 64 \\+ qk_rope_head_dim 8");
}

TEST_P(BoundaryDeathTest, index_keys_and_lists_that_do_not_fit_are_refused) {
  const DType f8 = DType::kF8E4M3;
  const auto append = [&](int64_t dim, const ops::IndexCache& cache, int64_t rope_dim = 8) {
    ops::index_append({.k = shape(kF32, {3, dim}),
                       .weight = shape(kF32, {dim}),
                       .bias = shape(kF32, {dim}),
                       .table = shape(kF32, {3, rope_dim}),
                       .kv_rows = shape(DType::kI64, {3}),
                       .cache = cache},
                      stream());
  };
  EXPECT_DEATH(append(32, {.values = shape(f8, {4, 64, 32}), .scales = {}}),
               "cache scales are missing, values are f8_e4m3");
  EXPECT_DEATH(append(24, {.values = shape(f8, {4, 64, 24}), .scales = shape(kF32, {4, 64})}),
               "index_head_dim is 24, must be a power of two");
  EXPECT_DEATH(append(32, {.values = shape(kF32, {4, 64, 32}), .scales = {}}, 64),
               "qk_rope_head_dim is 64, must be even and at most 32");
  const auto top_rows = [&](const Tensor& scores, int64_t token_end) {
    ops::top_rows({.scores = scores,
                   .queries = {.query_start = shape(kI32, {3}),
                               .kv_len = shape(kI32, {2}),
                               .block_tables = shape(kI32, {2, 5}),
                               .tree_mask = {},
                               .token_begin = 1,
                               .token_end = token_end},
                   .block_tokens = 64,
                   .rows = shape(kI32, {4, 100}),
                   .counts = shape(kI32, {4})},
                  stream());
  };
  EXPECT_DEATH(top_rows(shape(kF32, {3, 256}), 4), "scores axis 1: max_rows is 320, got 256");
  EXPECT_DEATH(top_rows({}, 4), "scores is null");
  EXPECT_DEATH(top_rows(shape(kF32, {4, 320}), 5), "query tokens \\[1, 5\\) of 4");
}

TEST_P(BoundaryDeathTest, impossible_gates_are_refused) {
  ops::MoeGateArgs args{.x = shape(kF32, {3, 8}),
                        .weight = shape(kF32, {12, 8}),
                        .bias = shape(kF32, {12}),
                        .kv_rows = {},
                        .n_group = 3,
                        .topk_group = 1,
                        .ids = shape(kI32, {3, 5}),
                        .weights = shape(kF32, {3, 5})};
  EXPECT_DEATH(ops::moe_gate(args, stream()), "num_experts_per_tok 5 of 4 experts");
  args.n_group = 5;
  EXPECT_DEATH(ops::moe_gate(args, stream()), "n_group 5 must divide n_routed_experts 12");
  args.kind = ops::GateKind::kSoftmaxGreedy;
  EXPECT_DEATH(ops::moe_gate(args, stream()), "bias is f32\\[12\\], must be null");
}

TEST_P(BoundaryDeathTest, quantised_rows_are_refused_for_weights_that_are_not_f8) {
  const ops::Activation x(shape(DType::kF8E4M3, {3, 200}), shape(kF32, {3, 2}));
  EXPECT_DEATH(ops::linear({.x = x,
                            .weight = {.data = shape(kF32, {8, 200}), .scale = {}},
                            .out = shape(kF32, {3, 8})},
                           stream()),
               "x is quantised, must not be for weights of f32");
  EXPECT_DEATH(ops::linear({.x = {x.values, shape(kF32, {3, 1})},
                            .weight = {.data = shape(DType::kF8E4M3, {8, 200}),
                                       .scale = shape(kF32, {1, 2})},
                            .out = shape(kF32, {3, 8})},
                           stream()),
               "x scale axis 1: ceil\\(dim / 128\\) is 2, got 1");
}

TEST_P(BoundaryDeathTest, segments_that_overlap_or_leave_gaps_are_refused) {
  const auto expanded = [&](const std::vector<ops::ExpandedSegment>& segments) {
    ops::mla_expanded({.q = shape(kF32, {9, 1, 6}),
                       .kv = shape(kF32, {9, 1, 8}),
                       .k_rope = shape(kF32, {9, 2}),
                       .segments = segments,
                       .tree_mask = {},
                       .state_max = shape(kF32, {9, 1}),
                       .state_sum = shape(kF32, {9, 1}),
                       .state_acc = shape(kF32, {9, 1, 4}),
                       .out = {}},
                      stream());
  };
  const ops::ExpandedSegment first{.num_rows = 4, .num_tokens = 4};
  EXPECT_DEATH(expanded({first, {.num_rows = 5, .buffer_begin = 3}}),
               "segment of 5 rows at 3 of the buffer, expected at 4");
  EXPECT_DEATH(expanded({first}), "segments have 4 rows, the buffer 9");
  EXPECT_DEATH(expanded({first, {.num_rows = 5, .buffer_begin = 4, .token_begin = 3}}),
               "queries begin at token 3, must follow token 4");
}

TEST_P(BoundaryDeathTest, a_last_segment_without_an_output_is_refused) {
  const ops::ExpandedSegment segment{.num_rows = 2, .num_tokens = 2, .last = true};
  EXPECT_DEATH(ops::mla_expanded({.q = shape(kF32, {2, 1, 6}),
                                  .kv = shape(kF32, {2, 1, 8}),
                                  .k_rope = shape(kF32, {2, 2}),
                                  .segments = {&segment, 1},
                                  .tree_mask = {},
                                  .state_max = shape(kF32, {2, 1}),
                                  .state_sum = shape(kF32, {2, 1}),
                                  .state_acc = shape(kF32, {2, 1, 4}),
                                  .out = {}},
                                 stream()),
               "out is null, a segment is the last");
}

TEST_P(BoundaryDeathTest, a_tree_of_more_than_64_queries_is_refused) {
  const ops::ExpandedSegment segment{.num_rows = 65, .num_tokens = 65, .has_tree_mask = true};
  EXPECT_DEATH(ops::mla_expanded({.q = shape(kF32, {65, 1, 6}),
                                  .kv = shape(kF32, {65, 1, 8}),
                                  .k_rope = shape(kF32, {65, 2}),
                                  .segments = {&segment, 1},
                                  .tree_mask = shape(DType::kU64, {65}),
                                  .state_max = shape(kF32, {65, 1}),
                                  .state_sum = shape(kF32, {65, 1}),
                                  .state_acc = shape(kF32, {65, 1, 4}),
                                  .out = {}},
                                 stream()),
               "tree_mask with 65 queries, at most 64");
}

TEST_P(BoundaryDeathTest, ids_outside_the_table_are_refused_by_the_cpu) {
  const DeviceTensor ids = upload<int32_t>({2}, {0, 10});
  const DeviceTensor table = empty(kF32, {10, 4}), out = empty(kF32, {2, 4});
  EXPECT_DEATH(
      ops::embedding({.ids = ids.view(), .table = table.view(), .out = out.view()}, stream()),
      "ids\\[1\\] is 10 of 10");
}

}  // namespace
}  // namespace fathom::ops_test
