// draft_inputs, draft_rows, accept_drafts, move_rows against plain oracles on random trees. What an operator does not
// write keeps the poison of a fresh tensor.

#include "ops/verify.h"

#include <algorithm>
#include <random>

#include "ops/sample.h"
#include "tests/ops/device.h"

namespace fathom::ops_test {
namespace {

constexpr int kNumSlots = 6, kMaxDrafts = 11, kVocab = 2, kPoison = 0x7f7f7f7f;
static_assert(poison(DType::kI32) == 0x7f);

// Some slices over random slots: of drafts, of given tokens, padding.
struct World {
  std::vector<int32_t> last_token, length, max_rows, num_drafts, drafts, parents;
  std::vector<int32_t> slice_slot, query_start{0}, num_wanted, first_row, penalty_row;
  std::vector<int32_t> sampled, next_given;
  std::vector<int64_t> kv_rows;

  int num_slices() const { return static_cast<int>(slice_slot.size()); }
  int32_t num_tokens() const { return query_start.back(); }
  int32_t draft(int slot, int i) const {
    return drafts[static_cast<size_t>(slot * kMaxDrafts + i)];
  }
  int32_t parent(int slot, int i) const {
    return parents[static_cast<size_t>(slot * kMaxDrafts + i)];
  }
  // Drafts on the way to draft i, itself last.
  std::vector<int> path(int slot, int i) const {
    std::vector<int> nodes;
    for (; i >= 0; i = parent(slot, i)) nodes.insert(nodes.begin(), i);
    return nodes;
  }
  int num_active(int slice) const {
    const auto slot = static_cast<size_t>(slice_slot[static_cast<size_t>(slice)]);
    const int wanted = std::min(num_wanted[static_cast<size_t>(slice)] - 1, num_drafts[slot]) + 1;
    return std::clamp(wanted, 0, std::max(0, max_rows[slot] - length[slot]));
  }
};

World make_world(uint64_t seed, bool chains) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
  };
  World w;
  for (int slot = 0; slot < kNumSlots; ++slot) {
    w.last_token.push_back(below(kVocab));
    w.length.push_back(1 + below(90));
    w.max_rows.push_back(below(4) > 0 ? 1000 : w.length.back() + below(5));
    w.num_drafts.push_back(below(kMaxDrafts + 1));
    for (int i = 0; i < kMaxDrafts; ++i) {
      w.drafts.push_back(below(kVocab));
      w.parents.push_back(chains ? i - 1 : below(i + 1) - 1);
    }
  }
  std::vector<int32_t> slots(kNumSlots);
  for (int i = 0; i < kNumSlots; ++i) slots[static_cast<size_t>(i)] = below(5) == 0 ? -1 : i;
  std::shuffle(slots.begin(), slots.end(), random);
  for (const int32_t slot : slots) {
    const bool goes_on = below(3) > 0;
    const int32_t tokens = goes_on ? 1 + below(kMaxDrafts + 1) : 1 + below(150);
    w.slice_slot.push_back(slot);
    w.num_wanted.push_back(!goes_on ? 0 : 1 + below(tokens));
    w.query_start.push_back(w.num_tokens() + tokens);
    w.penalty_row.push_back(slot >= 0 && below(2) > 0 ? slot : -1);
    const int32_t rows = goes_on ? tokens : below(2);
    w.first_row.push_back(rows > 0 ? static_cast<int32_t>(w.sampled.size()) : -1);
    for (int i = 0; i < rows; ++i) w.sampled.push_back(below(20) == 0 ? -1 : below(kVocab));
    for (int i = 0; i < tokens; ++i) {
      w.next_given.push_back(!goes_on && i + 1 < tokens ? below(kVocab) : -1);
      w.kv_rows.push_back(static_cast<int64_t>(random() % 100000));
    }
  }
  w.sampled.push_back(0);
  return w;
}

class VerifyTest : public OpsTest {
 protected:
  template <class T>
  DeviceTensor put(const std::vector<T>& values) {
    return upload<T>({static_cast<int64_t>(values.size())}, values);
  }
  struct Slots {
    DeviceTensor last_token, length, max_rows, drafts, parents, num_drafts;
    ops::DraftSlots view() const {
      return {.last_token = last_token.view(),
              .length = length.view(),
              .max_rows = max_rows.view(),
              .drafts = drafts.view(),
              .parents = parents.view(),
              .num_drafts = num_drafts.view()};
    }
  };
  Slots put_slots(const World& w) {
    return {.last_token = put(w.last_token),
            .length = put(w.length),
            .max_rows = put(w.max_rows),
            .drafts = upload<int32_t>({kNumSlots, kMaxDrafts}, w.drafts),
            .parents = upload<int32_t>({kNumSlots, kMaxDrafts}, w.parents),
            .num_drafts = put(w.num_drafts)};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, VerifyTest, testing::ValuesIn(tested_backends()), backend_name);

TEST_P(VerifyTest, draft_inputs_place_active_drafts_and_make_the_others_inert) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const World w = make_world(seed, seed % 2 == 0);
    const auto tokens = static_cast<size_t>(w.num_tokens());
    std::vector<int32_t> ids(tokens, 777), positions(tokens, 888);
    std::vector<int64_t> kv_rows = w.kv_rows;
    std::vector<uint64_t> masks(tokens, 999);
    const Slots slots = put_slots(w);
    const DeviceTensor slot = put(w.slice_slot);
    const DeviceTensor start = put(w.query_start), wanted = put(w.num_wanted);
    const DeviceTensor d_ids = put(ids), d_positions = put(positions), d_rows = put(kv_rows);
    const DeviceTensor d_masks = put(masks);
    ops::draft_inputs({.slots = slots.view(),
                       .slice_slot = slot.view(),
                       .query_start = start.view(),
                       .num_wanted = wanted.view(),
                       .token_ids = d_ids.view(),
                       .positions = d_positions.view(),
                       .kv_rows = d_rows.view(),
                       .tree_mask = seed % 2 == 0 ? Tensor() : d_masks.view()},
                      stream());
    for (int slice = 0; slice < w.num_slices(); ++slice) {
      const auto s = static_cast<size_t>(slice);
      const int slot_idx = w.slice_slot[s];
      if (slot_idx < 0 || w.num_wanted[s] == 0) continue;
      for (int i = 0; i < w.query_start[s + 1] - w.query_start[s]; ++i) {
        const auto t = static_cast<size_t>(w.query_start[s] + i);
        const bool active = i < w.num_active(slice);
        if (!active) {
          ids[t] = 0;
          kv_rows[t] = -1;
          if (i > 0) positions[t] = w.length[static_cast<size_t>(slot_idx)];
          masks[t] = uint64_t{1} << i;
          continue;
        }
        masks[t] = 1;
        if (i == 0) continue;
        const std::vector<int> path = w.path(slot_idx, i - 1);
        for (const int node : path) masks[t] |= uint64_t{1} << (node + 1);
        ids[t] = w.draft(slot_idx, i - 1);
        positions[t] = w.length[static_cast<size_t>(slot_idx)] + static_cast<int32_t>(path.size());
      }
    }
    EXPECT_EQ(download_as<int32_t>(d_ids.view()), ids);
    EXPECT_EQ(download_as<int32_t>(d_positions.view()), positions);
    EXPECT_EQ(download_as<int64_t>(d_rows.view()), kv_rows);
    if (seed % 2 == 1) {
      EXPECT_EQ(download_as<uint64_t>(d_masks.view()), masks);
    }
  }
}

TEST_P(VerifyTest, draft_rows_know_their_position_and_path) {
  const World w = make_world(5, false);
  constexpr int kRows = 150, kMaxPath = 5;
  std::mt19937_64 random(3);
  const auto below = [&](int n) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
  };
  std::vector<int32_t> positions(70), row_tokens, row_slot, row_draft;
  std::vector<int32_t> expected_position, expected_paths;
  for (int32_t& position : positions) position = below(100);
  for (int row = 0; row < kRows; ++row) {
    row_tokens.push_back(below(70));
    row_slot.push_back(below(kNumSlots + 1) - 1);
    row_draft.push_back(below(kMaxDrafts + 1) - 1);
    expected_position.push_back(positions[static_cast<size_t>(row_tokens.back())] + 1);
    std::vector<int32_t> path;
    if (row_slot.back() >= 0)
      for (const int node : w.path(row_slot.back(), row_draft.back()))
        path.insert(path.begin(), w.draft(row_slot.back(), node));
    path.resize(kMaxPath, -1);
    expected_paths.insert(expected_paths.end(), path.begin(), path.end());
  }
  const Slots slots = put_slots(w);
  const DeviceTensor d_positions = put(positions), d_tokens = put(row_tokens);
  const DeviceTensor d_slot = put(row_slot), d_draft = put(row_draft);
  const DeviceTensor position = empty(DType::kI32, {kRows});
  const DeviceTensor paths = empty(DType::kI32, {kRows, kMaxPath});
  ops::draft_rows({.slots = slots.view(),
                   .positions = d_positions.view(),
                   .row_tokens = d_tokens.view(),
                   .row_slot = d_slot.view(),
                   .row_draft = d_draft.view(),
                   .position = position.view(),
                   .paths = paths.view()},
                  stream());
  EXPECT_EQ(download_as<int32_t>(position.view()), expected_position);
  EXPECT_EQ(download_as<int32_t>(paths.view()), expected_paths);
}

// What accept_drafts must write, by another rule than walking down: a draft holds when every draft on its path is what
// was sampled at the row above and the first such sibling, and a row can be drawn from; the deepest that holds counts.
struct Expected {
  World after;
  std::vector<int32_t> counts, num_out, num_verified, first_position, draft_row;
  std::vector<int32_t> out_rows, out_tokens, source, next_ids, positions;
  std::vector<int64_t> kv_rows;
  std::vector<int64_t> draft_row_kv() const {
    std::vector<int64_t> of_rows;
    for (const int32_t row : draft_row) of_rows.push_back(kv_rows[static_cast<size_t>(row)]);
    return of_rows;
  }

  explicit Expected(const World& w)
      : after(w), counts(static_cast<size_t>(kNumSlots * kVocab), 1 << 30) {
    const auto slices = static_cast<size_t>(w.num_slices());
    const auto tokens = static_cast<size_t>(w.num_tokens());
    for (auto* each : {&num_out, &num_verified, &first_position, &draft_row})
      each->assign(slices, 0);
    for (auto* each : {&out_rows, &out_tokens}) each->assign(tokens, kPoison);
    for (auto* each : {&next_ids, &positions}) each->assign(tokens, 0);
    for (size_t t = 0; t < tokens; ++t) source.push_back(static_cast<int32_t>(t));
    kv_rows.assign(tokens, -1);
    for (int slice = 0; slice < w.num_slices(); ++slice) add(w, slice);
  }

  bool holds(const World& w, int slice, int slot, int draft) const {
    for (const int node : w.path(slot, draft)) {
      const auto row = [&](int of) {
        return w.sampled[static_cast<size_t>(w.first_row[static_cast<size_t>(slice)] + of + 1)];
      };
      const int above = w.parent(slot, node);
      if (row(above) != w.draft(slot, node) || row(node) < 0) return false;
      for (int other = 0; other < node; ++other)
        if (w.parent(slot, other) == above && w.draft(slot, other) == w.draft(slot, node))
          return false;
    }
    return true;
  }

  void stay(const World& w, size_t s, int k, int from, int32_t next) {
    const auto t = static_cast<size_t>(w.query_start[s] + k);
    source[t] = w.query_start[s] + from;
    next_ids[t] = next;
    positions[t] = first_position[s] + k;
    kv_rows[t] = w.kv_rows[t];
  }

  void add(const World& w, int slice) {
    const auto s = static_cast<size_t>(slice);
    const int slot = w.slice_slot[s];
    draft_row[s] = w.query_start[s];
    if (slot < 0) return;
    const auto at = static_cast<size_t>(slot);
    first_position[s] = w.length[at];
    after.num_drafts[at] = 0;
    w.num_wanted[s] == 0 ? add_given(w, s, at) : add_drafts(w, slice, at);
  }

  void come_out(const World& w, size_t s, size_t at, int32_t token) {
    after.last_token[at] = token;
    if (w.penalty_row[s] >= 0) ++counts[static_cast<size_t>(w.penalty_row[s] * kVocab + token)];
  }

  void add_given(const World& w, size_t s, size_t at) {
    const int tokens = w.query_start[s + 1] - w.query_start[s];
    const int32_t row = w.first_row[s];
    if (row >= 0 && w.sampled[static_cast<size_t>(row)] >= 0)
      come_out(w, s, at, w.sampled[static_cast<size_t>(row)]);
    for (int k = 0; k < tokens; ++k) {
      const int32_t given = w.next_given[static_cast<size_t>(w.query_start[s] + k)];
      stay(w, s, k, k, given >= 0 ? given : after.last_token[at]);
    }
    after.length[at] += tokens;
    draft_row[s] += tokens - 1;
  }

  void add_drafts(const World& w, int slice, size_t at) {
    const auto s = static_cast<size_t>(slice);
    const int slot = static_cast<int>(at), active = w.num_active(slice);
    if (active == 0) return;
    num_verified[s] = active - 1;
    const auto sampled = [&](int node) {
      return w.sampled[static_cast<size_t>(w.first_row[s] + node)];
    };
    if (sampled(0) < 0) {
      num_out[s] = -1;
      stay(w, s, 0, 0, w.last_token[at]);
      ++after.length[at];
      return;
    }
    std::vector<int> nodes = {0};
    for (int draft = 0; draft < active - 1; ++draft) {
      if (!holds(w, slice, slot, draft)) continue;
      const std::vector<int> path = w.path(slot, draft);
      if (path.size() < nodes.size()) continue;
      nodes = {0};
      for (const int node : path) nodes.push_back(node + 1);
    }
    for (size_t k = 0; k < nodes.size(); ++k) {
      const auto t = static_cast<size_t>(w.query_start[s]) + k;
      out_rows[t] = w.first_row[s] + nodes[k];
      out_tokens[t] = sampled(nodes[k]);
      stay(w, s, static_cast<int>(k), nodes[k], out_tokens[t]);
      come_out(w, s, at, out_tokens[t]);
    }
    num_out[s] = static_cast<int32_t>(nodes.size());
    after.length[at] += num_out[s];
    draft_row[s] += num_out[s] - 1;
  }
};

TEST_P(VerifyTest, accept_drafts_takes_the_deepest_branch_that_holds) {
  int num_deep = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const World w = make_world(seed, seed % 2 == 0);
    const Expected expected(w);
    const int64_t slices = w.num_slices(), tokens = w.num_tokens();
    const Slots slots = put_slots(w);
    const DeviceTensor slot = put(w.slice_slot);
    const DeviceTensor start = put(w.query_start), wanted = put(w.num_wanted);
    const DeviceTensor row = put(w.first_row), penalty = put(w.penalty_row);
    const DeviceTensor counts =
        upload<int32_t>({kNumSlots, kVocab},
                        std::vector<int32_t>(static_cast<size_t>(kNumSlots * kVocab), 1 << 30));
    const DeviceTensor sampled = put(w.sampled), next = put(w.next_given), rows = put(w.kv_rows);
    const auto out = [&](int64_t size) { return empty(DType::kI32, {size}); };
    const DeviceTensor num_out = out(slices), verified = out(slices), position = out(slices);
    const DeviceTensor draft_row = out(slices), out_rows = out(tokens), out_tokens = out(tokens);
    const DeviceTensor source = out(tokens), ids = out(tokens), positions = out(tokens);
    const DeviceTensor draft_kv_rows = empty(DType::kI64, {tokens});
    const DeviceTensor draft_row_kv = empty(DType::kI64, {slices});
    ops::accept_drafts({.slots = slots.view(),
                        .slice_slot = slot.view(),
                        .query_start = start.view(),
                        .num_wanted = wanted.view(),
                        .first_row = row.view(),
                        .penalty_row = penalty.view(),
                        .counts = counts.view(),
                        .sampled = sampled.view(),
                        .next_given = next.view(),
                        .kv_rows = rows.view(),
                        .num_out = num_out.view(),
                        .out_rows = out_rows.view(),
                        .out_tokens = out_tokens.view(),
                        .num_verified = verified.view(),
                        .first_position = position.view(),
                        .source = source.view(),
                        .next_ids = ids.view(),
                        .draft_positions = positions.view(),
                        .draft_kv_rows = draft_kv_rows.view(),
                        .draft_row = draft_row.view(),
                        .draft_row_kv = draft_row_kv.view()},
                       stream());
    const auto got = [&](const DeviceTensor& tensor) {
      return download_as<int32_t>(tensor.view());
    };
    EXPECT_EQ(got(slots.last_token), expected.after.last_token);
    EXPECT_EQ(got(slots.length), expected.after.length);
    EXPECT_EQ(got(slots.num_drafts), expected.after.num_drafts);
    EXPECT_EQ(got(counts), expected.counts);
    EXPECT_EQ(got(num_out), expected.num_out);
    EXPECT_EQ(got(verified), expected.num_verified);
    EXPECT_EQ(got(position), expected.first_position);
    EXPECT_EQ(got(draft_row), expected.draft_row);
    EXPECT_EQ(got(out_rows), expected.out_rows);
    EXPECT_EQ(got(out_tokens), expected.out_tokens);
    EXPECT_EQ(got(source), expected.source);
    EXPECT_EQ(got(ids), expected.next_ids);
    EXPECT_EQ(got(positions), expected.positions);
    EXPECT_EQ(download_as<int64_t>(draft_kv_rows.view()), expected.kv_rows);
    EXPECT_EQ(download_as<int64_t>(draft_row_kv.view()), expected.draft_row_kv());
    num_deep += static_cast<int>(std::count_if(expected.num_out.begin(), expected.num_out.end(),
                                               [](int n) { return n > 2; }));
  }
  EXPECT_GT(num_deep, 40);
}

TEST_P(VerifyTest, move_rows_brings_accepted_rows_together_in_every_layer) {
  for (const int64_t row_bytes : {int64_t{48}, int64_t{37}}) {
    constexpr int64_t kLayers = 3, kBlocks = 4, kBlockTokens = 8, kRows = kBlocks * kBlockTokens;
    // Two slices of 6 tokens: 0, 2, 5 stay of the first, all of the second; its rows are scattered.
    const std::vector<int32_t> start = {0, 6, 12};
    const std::vector<int32_t> source = {0, 2, 5, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const std::vector<int64_t> from = {9, 3, 30, 17, 4, 11, 0, 1, 2, 5, 6, 7};
    const std::vector<int64_t> to = {9, 3, 30, -1, -1, -1, 0, 1, 2, 5, 6, 7};
    std::vector<uint8_t> bytes_before(static_cast<size_t>(kLayers * kRows * row_bytes));
    std::mt19937_64 random(1);
    for (uint8_t& byte : bytes_before) byte = static_cast<uint8_t>(random());
    std::vector<uint8_t> expected = bytes_before;
    const auto row = [&](std::vector<uint8_t>& of, int64_t layer, int64_t index) {
      return of.begin() + (layer * kRows + index) * row_bytes;
    };
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::copy_n(row(bytes_before, layer, 30), row_bytes, row(expected, layer, 3));
      std::copy_n(row(bytes_before, layer, 11), row_bytes, row(expected, layer, 30));
    }
    const DeviceTensor rows =
        upload<uint8_t>({kLayers, kBlocks, kBlockTokens, row_bytes}, bytes_before);
    const DeviceTensor d_start = put(start), d_source = put(source), d_from = put(from);
    const DeviceTensor d_to = put(to);
    ops::move_rows({.rows = rows.view(),
                    .query_start = d_start.view(),
                    .source = d_source.view(),
                    .from = d_from.view(),
                    .to = d_to.view()},
                   stream());
    EXPECT_EQ(bytes(rows.view()), expected) << row_bytes;
  }
}

}  // namespace
}  // namespace fathom::ops_test
