// grow_drafts against a tree of paths, level by level, and select_rows.

#include "ops/draft.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/ops/device.h"

namespace fathom::ops_test {
namespace {

constexpr int kSlots = 4, kSlices = 5, kMaxBlocks = 5, kBlockTokens = 64, kSpare = 1000;

// A node by its choices from the root, so that ancestors are prefixes.
struct Node {
  std::vector<int> path{};
  int32_t token = 0;
  float score = 0;
};

bool is_above(const Node& above, const Node& below) {
  return above.path.size() <= below.path.size() &&
         std::equal(above.path.begin(), above.path.end(), below.path.begin());
}

std::vector<Node> best_of(std::vector<Node> nodes, size_t count) {
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const Node& a, const Node& b) { return a.score > b.score; });
  if (nodes.size() > count) nodes.resize(count);
  return nodes;
}

struct SliceTree {
  std::vector<Node> all, fed;  // fed: top_k of each level, in order

  // The level's nodes are the children of the last top_k fed ones, of the root on level 1.
  void add_level(const std::vector<int32_t>& ids, const std::vector<float>& logprobs, int top_k) {
    const std::vector<Node> above =
        fed.empty() ? std::vector<Node>{Node{}} : std::vector<Node>(fed.end() - top_k, fed.end());
    std::vector<Node> level;
    for (size_t i = 0; i < ids.size(); ++i) {
      Node node = above[i / static_cast<size_t>(top_k)];
      node.path.push_back(static_cast<int>(i) % top_k);
      node.token = std::max(ids[i], 0);
      node.score = ids[i] < 0 ? -HUGE_VALF : node.score + std::min(logprobs[i], 0.0f);
      level.push_back(node);
    }
    all.insert(all.end(), level.begin(), level.end());
    const std::vector<Node> best = best_of(level, static_cast<size_t>(top_k));
    fed.insert(fed.end(), best.begin(), best.end());
  }
};

struct TreeShape {
  int num_steps, top_k, max_drafts;
};

class DraftTest : public OpsTest {
 protected:
  template <class T>
  DeviceTensor put(std::vector<int64_t> shape, const std::vector<T>& values) {
    return upload<T>(std::move(shape), values);
  }
  void grow_and_compare(const TreeShape& shape, uint64_t seed);
};
INSTANTIATE_TEST_SUITE_P(backends, DraftTest, testing::ValuesIn(tested_backends()), backend_name);

void DraftTest::grow_and_compare(const TreeShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
  };
  const int top_k = shape.top_k;
  const std::vector<int32_t> slice_slot = {2, 0, -1, 3, 1};
  const std::vector<int32_t> asked = {shape.max_drafts, 1 + below(shape.max_drafts), 3, 0,
                                      1 + below(shape.max_drafts)};
  // One that ends with its block, one that ends before, one in the middle.
  const std::vector<int32_t> lengths = {128, 63, 70, 10};
  std::vector<int32_t> tables;
  for (int i = 0; i < kSlots * kMaxBlocks; ++i) tables.push_back(10 + i);
  const int64_t max_nodes = top_k + (shape.num_steps - 1) * top_k * top_k;
  const DeviceTensor length = put<int32_t>({kSlots}, lengths);
  const DeviceTensor last_token = empty(DType::kI32, {kSlots});
  const DeviceTensor max_rows = empty(DType::kI32, {kSlots});
  const DeviceTensor block_tables = put<int32_t>({kSlots, kMaxBlocks}, tables);
  const DeviceTensor slot = put<int32_t>({kSlices}, slice_slot),
                     d_asked = put<int32_t>({kSlices}, asked);
  const DeviceTensor drafts = empty(DType::kI32, {kSlots, shape.max_drafts});
  const DeviceTensor parents = empty(DType::kI32, {kSlots, shape.max_drafts});
  const DeviceTensor num_drafts = empty(DType::kI32, {kSlots});
  const DeviceTensor out_drafts = empty(DType::kI32, {kSlices, shape.max_drafts});
  const DeviceTensor out_parents = empty(DType::kI32, {kSlices, shape.max_drafts});
  const DeviceTensor out_count = empty(DType::kI32, {kSlices});
  const DeviceTensor token = empty(DType::kI32, {kSlices, max_nodes});
  const DeviceTensor parent = empty(DType::kI32, {kSlices, max_nodes});
  const DeviceTensor score = empty(DType::kF32, {kSlices, max_nodes});
  const DeviceTensor fed = empty(DType::kI32, {kSlices, int64_t{shape.num_steps} * top_k});
  std::vector<SliceTree> trees(kSlices);
  for (int level = 1; level <= shape.num_steps; ++level) {
    const int fan = level == 1 ? 1 : top_k;
    const size_t said = static_cast<size_t>(fan * top_k);
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    for (int slice = 0; slice < kSlices; ++slice) {
      for (size_t i = 0; i < said; ++i) {
        ids.push_back(slice == 4 && below(4) == 0 ? -1 : below(5000));
        // Ties, and one that rounding lifted above certainty.
        logprobs.push_back(below(9) == 0 ? 1e-7f : -0.25f * static_cast<float>(below(12)));
      }
      trees[static_cast<size_t>(slice)].add_level(
          {ids.end() - static_cast<int64_t>(said), ids.end()},
          {logprobs.end() - static_cast<int64_t>(said), logprobs.end()}, top_k);
    }
    const int width = ops::draft_width(top_k, level);
    const DeviceTensor top_ids = put<int32_t>({kSlices * fan, top_k}, ids);
    const DeviceTensor top_logprobs = put<float>({kSlices * fan, top_k}, logprobs);
    const DeviceTensor token_ids = empty(DType::kI32, {kSlices * width});
    const DeviceTensor positions = empty(DType::kI32, {kSlices * width});
    const DeviceTensor kv_rows = empty(DType::kI64, {kSlices * width});
    const DeviceTensor kv_len = empty(DType::kI32, {kSlices});
    const DeviceTensor next_tables = empty(DType::kI32, {kSlices, kMaxBlocks});
    const DeviceTensor masks = empty(DType::kU64, {kSlices * width});
    const DeviceTensor source = empty(DType::kI32, {kSlices * width});
    const DeviceTensor logit_rows = empty(DType::kI32, {int64_t{kSlices} * top_k});
    const bool is_tree = top_k > 1;
    ops::grow_drafts({.level = level,
                      .top_k = top_k,
                      .is_last = level == shape.num_steps,
                      .slots = {.last_token = last_token.view(),
                                .length = length.view(),
                                .max_rows = max_rows.view(),
                                .drafts = drafts.view(),
                                .parents = parents.view(),
                                .num_drafts = num_drafts.view()},
                      .block_tables = block_tables.view(),
                      .slice_slot = slot.view(),
                      .num_asked = d_asked.view(),
                      .top_ids = top_ids.view(),
                      .top_logprobs = top_logprobs.view(),
                      .node_token = token.view(),
                      .node_parent = parent.view(),
                      .node_score = score.view(),
                      .fed = fed.view(),
                      .out_drafts = out_drafts.view(),
                      .out_parents = out_parents.view(),
                      .out_count = out_count.view(),
                      .block_tokens = kBlockTokens,
                      .first_spare_block = kSpare,
                      .token_ids = token_ids.view(),
                      .positions = positions.view(),
                      .kv_rows = kv_rows.view(),
                      .kv_len = kv_len.view(),
                      .tables = next_tables.view(),
                      .tree_mask = is_tree ? masks.view() : Tensor(),
                      .source = is_tree ? source.view() : Tensor(),
                      .logit_rows = is_tree ? logit_rows.view() : Tensor()},
                     stream());
    if (level == shape.num_steps) break;
    std::vector<int32_t> want_ids, want_positions, want_source, want_len, want_tables, want_rows;
    std::vector<int64_t> want_kv_rows;
    std::vector<uint64_t> want_masks;
    for (int slice = 0; slice < kSlices; ++slice) {
      const auto s = static_cast<size_t>(slice);
      const bool asks = slice_slot[s] >= 0 && asked[s] > 0;
      const int32_t rows = asks ? lengths[static_cast<size_t>(slice_slot[s])] : 0;
      const std::vector<Node>& nodes = trees[s].fed;
      const int last_block = (rows - 1) / kBlockTokens;
      want_len.push_back(asks ? rows + level * top_k : 0);
      for (int b = 0; b < kMaxBlocks; ++b)
        want_tables.push_back(!asks                 ? 0
                              : b == last_block + 1 ? kSpare + slice_slot[s]
                                                    : 10 + slice_slot[s] * kMaxBlocks + b);
      for (int i = 0; i < width; ++i) {
        const int place = is_tree ? i : level - 1;
        const Node& node = nodes[static_cast<size_t>(place)];
        const int32_t row = rows + place;
        want_ids.push_back(asks ? node.token : 0);
        want_positions.push_back(asks ? rows + static_cast<int32_t>(node.path.size()) - 1 : 0);
        const int64_t block = row / kBlockTokens == last_block
                                  ? 10 + slice_slot[s] * kMaxBlocks + last_block
                                  : kSpare + slice_slot[s];
        want_kv_rows.push_back(asks ? block * kBlockTokens + row % kBlockTokens : -1);
        uint64_t mask = 0;
        int32_t from = -1 - slice;
        for (int j = 0; asks && j <= i; ++j) {
          if (!is_above(nodes[static_cast<size_t>(j)], node)) continue;
          mask |= uint64_t{1} << j;
          if (nodes[static_cast<size_t>(j)].path.size() + 1 == node.path.size())
            from = slice * (width - top_k) + j;
        }
        want_masks.push_back(mask);
        want_source.push_back(from);
      }
      for (int i = 0; i < top_k; ++i) want_rows.push_back(slice * width + width - top_k + i);
    }
    EXPECT_EQ(download_as<int32_t>(token_ids.view()), want_ids);
    EXPECT_EQ(download_as<int32_t>(positions.view()), want_positions);
    EXPECT_EQ(download_as<int64_t>(kv_rows.view()), want_kv_rows);
    EXPECT_EQ(download_as<int32_t>(kv_len.view()), want_len);
    EXPECT_EQ(download_as<int32_t>(next_tables.view()), want_tables);
    if (!is_tree) continue;
    EXPECT_EQ(download_as<uint64_t>(masks.view()), want_masks);
    EXPECT_EQ(download_as<int32_t>(source.view()), want_source);
    EXPECT_EQ(download_as<int32_t>(logit_rows.view()), want_rows);
  }
  const auto got_drafts = download_as<int32_t>(out_drafts.view());
  const auto got_parents = download_as<int32_t>(out_parents.view());
  const auto got_count = download_as<int32_t>(out_count.view());
  const auto slot_drafts = download_as<int32_t>(drafts.view());
  const auto slot_parents = download_as<int32_t>(parents.view());
  const auto slot_count = download_as<int32_t>(num_drafts.view());
  for (size_t s = 0; s < kSlices; ++s) {
    std::vector<Node> best =
        best_of(trees[s].all, static_cast<size_t>(slice_slot[s] < 0 ? 0 : asked[s]));
    std::erase_if(best, [](const Node& node) { return node.score == -HUGE_VALF; });
    std::vector<int32_t> want_drafts, want_parents;
    for (const Node& node : best) {
      want_drafts.push_back(node.token);
      int32_t above = -1;
      for (size_t j = 0; j < best.size(); ++j)
        if (best[j].path.size() + 1 == node.path.size() && is_above(best[j], node))
          above = static_cast<int32_t>(j);
      EXPECT_TRUE(above >= 0 || node.path.size() == 1);
      want_parents.push_back(above);
    }
    want_drafts.resize(static_cast<size_t>(shape.max_drafts), 0);
    want_parents.resize(static_cast<size_t>(shape.max_drafts), -1);
    const auto row = [&](const std::vector<int32_t>& of, size_t index) {
      const auto begin = of.begin() + static_cast<int64_t>(index) * shape.max_drafts;
      return std::vector<int32_t>(begin, begin + shape.max_drafts);
    };
    EXPECT_EQ(got_count[s], static_cast<int32_t>(best.size())) << "slice " << s;
    EXPECT_EQ(row(got_drafts, s), want_drafts) << "slice " << s;
    EXPECT_EQ(row(got_parents, s), want_parents) << "slice " << s;
    if (slice_slot[s] < 0) continue;
    const auto at = static_cast<size_t>(slice_slot[s]);
    EXPECT_EQ(slot_count[at], static_cast<int32_t>(best.size()));
    EXPECT_EQ(row(slot_drafts, at), want_drafts);
    EXPECT_EQ(row(slot_parents, at), want_parents);
  }
}

TEST_P(DraftTest, grow_drafts_keeps_the_best_of_each_level_and_of_the_whole_tree) {
  for (const TreeShape shape :
       {TreeShape{1, 1, 1}, TreeShape{3, 1, 3}, TreeShape{7, 1, 7}, TreeShape{1, 5, 4},
        TreeShape{2, 2, 6}, TreeShape{3, 3, 9}, TreeShape{4, 8, 40}, TreeShape{2, 40, 63}})
    for (uint64_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(testing::Message()
                   << shape.num_steps << " steps, top " << shape.top_k << ", seed " << seed);
      grow_and_compare(shape, seed);
    }
}

TEST_P(DraftTest, select_rows_takes_each_row_from_one_of_two_tensors) {
  for (const int64_t dim : {256, 61}) {
    ref::Random random(static_cast<uint64_t>(dim));
    const HostTensor a = random.normal(act(), {7, dim}), b = random.normal(act(), {4, dim});
    const std::vector<int32_t> rows = {6, -1, 0, -4, 3, 3, -2};
    const DeviceTensor d_a = upload(a), d_b = upload(b), d_rows = put<int32_t>({7}, rows);
    const DeviceTensor out = empty(act(), {7, dim});
    ops::select_rows({.a = d_a.view(), .b = d_b.view(), .rows = d_rows.view(), .out = out.view()},
                     stream());
    const HostTensor got = download(out.view());
    for (size_t i = 0; i < rows.size(); ++i)
      for (int64_t k = 0; k < dim; ++k)
        EXPECT_EQ(got.at(static_cast<int64_t>(i), k),
                  rows[i] >= 0 ? a.at(rows[i], k) : b.at(-1 - rows[i], k));
  }
}

}  // namespace
}  // namespace fathom::ops_test
