#include "tuned/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tuned/few_experts.h"

namespace fathom::tuned {
namespace {

using tensor::DType;

constexpr MatrixShape kMatrix{.dtype = DType::kF8E4M3, .n = 1536, .k = 1536};
constexpr ExpertShape kExperts{.dtype = DType::kF8E4M3, .experts = 256, .inter = 256};

// What a test sets is gone behind it.
class TunedTable : public testing::Test {
 protected:
  ~TunedTable() override { set_table({}); }

  static void set(std::vector<Entry<MatrixChoice>> entries) {
    Table table;
    table.put(MatrixChoices{
        .device = "D", .shape = kMatrix, .entries = std::move(entries), .from = "here"});
    set_table(std::move(table));
  }
  static void set(std::vector<Entry<ExpertChoice>> entries) {
    Table table;
    table.put(ExpertChoices{
        .device = "D", .shape = kExperts, .entries = std::move(entries), .from = "here"});
    set_table(std::move(table));
  }
};

MatrixChoice tiled(int raster) {
  return {.kernel = MatrixKernel::kTiled, .tile = Tile::kLarge, .raster = raster};
}

TEST_F(TunedTable, without_files_everything_is_by_the_rule) {
  EXPECT_EQ(choose(kMatrix, 8), MatrixChoice{});
  EXPECT_EQ(choose(kExperts, 8), ExpertChoice{});
  EXPECT_EQ(find_entry(kMatrix, 1024), nullptr);
}

TEST_F(TunedTable, rows_that_were_not_measured_go_with_the_nearest_in_ratio) {
  set({{.rows = 256, .choice = tiled(1)}, {.rows = 1024, .choice = tiled(2)}});
  EXPECT_EQ(choose(kMatrix, 129).raster, 1);
  EXPECT_EQ(choose(kMatrix, 511).raster, 1);
  EXPECT_EQ(choose(kMatrix, 513).raster, 2);
  EXPECT_EQ(choose(kMatrix, 1 << 20).raster, 2);
  EXPECT_EQ(find_entry(kMatrix, 300)->rows, 256);
}

TEST_F(TunedTable, no_choice_leaves_its_class_of_rows) {
  set({{.rows = 256, .choice = tiled(1)}});
  EXPECT_EQ(choose(kMatrix, 128), MatrixChoice{});
  EXPECT_EQ(choose(kMatrix, 8), MatrixChoice{});
}

TEST_F(TunedTable, an_entry_of_the_default_stands_for_the_rule) {
  set({{.rows = 256, .choice = tiled(1)}, {.rows = 1024, .choice = {}}});
  EXPECT_EQ(find_entry(kMatrix, 1024), nullptr);
  EXPECT_EQ(choose(kMatrix, 900), MatrixChoice{});
}

TEST_F(TunedTable, all_rows_of_a_class_are_divided_alike) {
  const MatrixChoice eight{.kernel = MatrixKernel::kStreaming, .cluster = 2, .warps = 8};
  set({{.rows = 1, .choice = eight}, {.rows = 8, .choice = eight}});
  for (int64_t rows = 1; rows <= kMaxStreamedRows; ++rows)
    EXPECT_TRUE(has_same_sums(choose(kMatrix, rows), eight)) << rows;
}

TEST_F(TunedTable, another_shape_or_type_is_by_the_rule) {
  set({{.rows = 256, .choice = tiled(1)}});
  EXPECT_EQ(choose({.dtype = DType::kBf16, .n = 1536, .k = 1536}, 256), MatrixChoice{});
  EXPECT_EQ(choose({.dtype = DType::kF8E4M3, .n = 1536, .k = 1408}, 256), MatrixChoice{});
}

TEST_F(TunedTable, wide_experts_take_one_slab) {
  set({{.rows = 512, .choice = {.kernel = ExpertKernel::kWide}}});
  EXPECT_EQ(choose(kExperts, 1024).kernel, ExpertKernel::kWide);
  EXPECT_EQ(choose(kExperts, 1025).kernel, ExpertKernel::kDefault);
  EXPECT_EQ(choose(kExperts, 128).kernel, ExpertKernel::kDefault);
}

TEST_F(TunedTable, a_later_file_of_a_shape_replaces_the_one_before) {
  Table table;
  table.put(MatrixChoices{.device = "D", .shape = kMatrix, .entries = {}, .from = "first"});
  table.put(MatrixChoices{.device = "D", .shape = kMatrix, .entries = {}, .from = "second"});
  ASSERT_EQ(table.matrices.size(), 1U);
  EXPECT_EQ(table.find(kMatrix)->from, "second");
}

struct Refused {
  int64_t rows;
  MatrixChoice choice;
  const char* why;
};

TEST(TunedChoice, what_kernels_cannot_do_is_named) {
  const Refused cases[] = {
      {64, {.kernel = MatrixKernel::kStreaming, .cluster = 1, .warps = 8}, "does not take 64 rows"},
      {8, {.kernel = MatrixKernel::kBatch, .cluster = 1}, "does not take 8 rows"},
      {128, {.kernel = MatrixKernel::kTiled}, "does not take 128 rows"},
      {8, {.kernel = MatrixKernel::kStreaming, .cluster = 3, .warps = 8}, "cluster is 3"},
      {8, {.kernel = MatrixKernel::kStreaming, .cluster = 2, .warps = 4}, "needs warps 8"},
      {8,
       {.kernel = MatrixKernel::kStreaming, .cluster = 8, .warps = 8},
       "without a part of K 1536"},
      {8,
       {.kernel = MatrixKernel::kStreaming, .cluster = 1, .warps = 8, .stages = 5},
       "stages is 5"},
      {64, {.kernel = MatrixKernel::kBatch, .cluster = 8}, "without a part of K 1536"}};
  for (const Refused& refused : cases)
    EXPECT_THAT(why_not(kMatrix, refused.rows, refused.choice), testing::HasSubstr(refused.why));
}

TEST(TunedChoice, few_tokens_of_experts_of_256_channels_have_no_choice) {
  const ExpertChoice wide{.kernel = ExpertKernel::kWide};
  EXPECT_THAT(why_not(kExperts, kMaxFewExpertTokens, wide),
              testing::HasSubstr("kernels of their own"));
  EXPECT_EQ(why_not(kExperts, kMaxFewExpertTokens, {}), "");
  EXPECT_EQ(why_not(kExperts, kMaxFewExpertTokens + 1, wide), "");
  EXPECT_FALSE(is_one_class(kExperts, kMaxFewExpertTokens, kMaxFewExpertTokens + 1));
  ExpertShape wider = kExperts;
  wider.inter = 512;
  EXPECT_EQ(why_not(wider, 1, wide), "");
  EXPECT_TRUE(is_one_class(wider, 1, kMaxStreamedExpertRows));
}

// A choice of more tokens is not theirs.
TEST_F(TunedTable, few_tokens_of_experts_of_256_channels_are_by_the_rule) {
  set({{.rows = 32, .choice = {.kernel = ExpertKernel::kWide}}});
  EXPECT_EQ(choose(kExperts, kMaxFewExpertTokens + 1).kernel, ExpertKernel::kWide);
  EXPECT_EQ(choose(kExperts, kMaxFewExpertTokens).kernel, ExpertKernel::kDefault);
}

}  // namespace
}  // namespace fathom::tuned
