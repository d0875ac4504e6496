#include "text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "tests/cpu_time.h"

namespace fathom::text {
namespace {

// Bytes are their own ids; rules join random earlier ids.
struct RandomMerges {
  std::array<int32_t, 256> byte_ids;
  std::vector<MergeRule> rules;
};

RandomMerges random_merges(std::mt19937& random, int num_letters, int num_rules) {
  RandomMerges merges;
  for (int i = 0; i < 256; ++i) merges.byte_ids[static_cast<size_t>(i)] = i;
  std::vector<int32_t> known;
  for (int i = 0; i < num_letters; ++i) known.push_back('a' + i);
  std::map<std::pair<int32_t, int32_t>, int32_t> pairs;
  for (int32_t id = 256; static_cast<int>(merges.rules.size()) < num_rules; ++id) {
    const int32_t left = known[random() % known.size()], right = known[random() % known.size()];
    if (!pairs.emplace(std::pair{left, right}, id).second) continue;
    merges.rules.push_back({left, right, id, static_cast<int32_t>(merges.rules.size())});
    known.push_back(id);
  }
  return merges;
}

// The definition, without any data structure.
std::vector<int32_t> merge_by_definition(const std::string& piece, const RandomMerges& merges) {
  std::vector<int32_t> ids(piece.begin(), piece.end());
  for (;;) {
    const MergeRule* best = nullptr;
    size_t best_at = 0;
    for (const MergeRule& rule : merges.rules) {
      for (size_t i = 0; i + 1 < ids.size() && best == nullptr; ++i) {
        if (ids[i] != rule.left_id || ids[i + 1] != rule.right_id) continue;
        best = &rule;
        best_at = i;
      }
      if (best != nullptr) break;
    }
    if (best == nullptr) return ids;
    ids[best_at] = best->merged_id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(Bpe, merges_as_the_definition_says_for_short_and_long_pieces) {
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  BpeScratch scratch;
  for (int round = 0; round < 300; ++round) {
    const int num_letters = 1 + static_cast<int>(random() % 4);
    const RandomMerges merges =
        random_merges(random, num_letters, 1 + static_cast<int>(random() % 12));
    const BpeMerges bpe(merges.byte_ids, merges.rules);
    for (const size_t length : {size_t{1}, size_t{2}, 1 + random() % 31, size_t{31}, size_t{32},
                                size_t{33}, size_t{34}, 33 + random() % 100}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) {
        piece += static_cast<char>('a' +
                                   static_cast<int>(random() % static_cast<uint32_t>(num_letters)));
      }
      std::vector<int32_t> ids;
      bpe.encode(piece, scratch, ids);
      ASSERT_EQ(ids, merge_by_definition(piece, merges))
          << piece << " seed " << kSeed << " round " << round;
    }
  }
}

TEST(Bpe, appends_to_what_is_there) {
  const BpeMerges bpe({}, {});
  BpeScratch scratch;
  std::vector<int32_t> ids = {5};
  bpe.encode("ab", scratch, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{5, 0, 0}));
}

// Doubling merges, and merges that cascade from one end, are the worst cases for a naive loop.
TEST(Bpe, stays_fast_on_a_piece_of_a_megabyte) {
  RandomMerges merges;
  for (int i = 0; i < 256; ++i) merges.byte_ids[static_cast<size_t>(i)] = i;
  merges.rules.push_back({'a', 'a', 256, 0});
  for (int32_t id = 257; id < 276; ++id) merges.rules.push_back({id - 1, id - 1, id, id - 256});
  merges.rules.push_back({'b', 'c', 300, 20});
  merges.rules.push_back({300, 'c', 300, 21});
  const BpeMerges bpe(merges.byte_ids, merges.rules);
  const CpuStopwatch watch;
  for (const std::string& piece : {std::string(1 << 20, 'a'), "b" + std::string(1 << 20, 'c')}) {
    BpeScratch scratch;
    std::vector<int32_t> ids;
    bpe.encode(piece, scratch, ids);
    EXPECT_EQ(ids.size(), 1u);
  }
  // Quadratic work would take minutes; this bound only has to tell the two apart on any machine.
  EXPECT_LT(watch.seconds(), 20.0);
}

// As in a tiktoken file: "aaa" is made of "aa" and "a" in either order, with the same rank.
TEST(Bpe, of_merges_of_one_rank_the_leftmost_is_done_first) {
  std::mt19937 random(1);
  RandomMerges merges = random_merges(random, 1, 0);
  merges.rules = {{'a', 'a', 256, 1}, {'a', 256, 257, 0}, {256, 'a', 257, 0}};
  const BpeMerges bpe(merges.byte_ids, merges.rules);
  BpeScratch scratch;
  std::vector<int32_t> ids;
  // aa first, as nothing else is there; then "aa" + "a" at once, and so on from the left.
  bpe.encode("aaaaaaa", scratch, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{257, 257, 'a'}));
  ids.clear();
  const std::string long_piece(40, 'a');  // by the heap
  bpe.encode(long_piece, scratch, ids);
  std::vector<int32_t> expected(13, 257);
  expected.push_back('a');
  EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace fathom::text
