// write_words and count_tokens: what an admission changes on the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "ops/device_writes.h"
#include "ops/step.h"
#include "tests/ops/device.h"

namespace fathom::ops_test {
namespace {

class SlotChangesTest : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(backends, SlotChangesTest, testing::ValuesIn(tested_backends()),
                         backend_name);

TEST_P(SlotChangesTest, words_of_several_arrays_change_and_no_others) {
  const DeviceTensor lengths = upload({5}, std::vector<int32_t>{1, 2, 3, 4, 5});
  const DeviceTensor scales = upload({3}, std::vector<float>{1, 2, 3});
  const DeviceTensor table = upload({2, 3}, std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  const DeviceTensor seeds = upload({3}, std::vector<uint64_t>{7, 8, 9});
  ops::DeviceWrites writes(backend(), 2);
  writes.send(0, stream());  // nothing
  writes.put(lengths.view(), 4, int32_t{-50});
  writes.put(scales.view(), 0, -0.5f);
  writes.put(table.view(), 4, int32_t{55});
  writes.put(seeds.view(), 1, uint64_t{0x89abcdef01234567});
  writes.send(0, stream());
  writes.put(lengths.view(), 0, int32_t{-10});
  writes.send(1, stream());
  stream().synchronize();
  EXPECT_EQ(download_as<int32_t>(lengths.view()), (std::vector<int32_t>{-10, 2, 3, 4, -50}));
  EXPECT_EQ(download_as<float>(scales.view()), (std::vector<float>{-0.5f, 2, 3}));
  EXPECT_EQ(download_as<int32_t>(table.view()), (std::vector<int32_t>{1, 2, 3, 4, 55, 6}));
  EXPECT_EQ(download_as<uint64_t>(seeds.view()), (std::vector<uint64_t>{7, 0x89abcdef01234567, 9}));
}

TEST_P(SlotChangesTest, more_words_than_go_at_once_arrive) {
  constexpr auto kWords = static_cast<size_t>(2 * ops::DeviceWrites::kWordsAtOnce + 7);
  const DeviceTensor array =
      upload({static_cast<int64_t>(kWords)}, std::vector<int32_t>(kWords, -1));
  std::vector<int32_t> expected(kWords);
  std::mt19937_64 random(11);
  ops::DeviceWrites writes(backend(), 1);
  for (size_t i = 0; i < kWords; ++i) {
    expected[i] = static_cast<int32_t>(random());
    writes.put(array.view(), static_cast<int64_t>(i), expected[i]);
  }
  writes.send(0, stream());
  EXPECT_EQ(download_as<int32_t>(array.view()), expected);
}

TEST_P(SlotChangesTest, counts_begin_with_the_prompt_and_go_on) {
  constexpr int32_t kInPrompt = std::numeric_limits<int32_t>::min();
  constexpr int32_t kVocab = 1000;
  std::mt19937_64 random(3);
  const auto tokens_of = [&](size_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 300);
    return tokens;
  };
  const std::vector<int32_t> first = tokens_of(1500), second = tokens_of(700);
  constexpr int64_t kFirstPrompt = 900;
  std::vector<int32_t> expected(kVocab, 0);
  for (size_t i = 0; i < first.size(); ++i) {
    int32_t& count = expected[static_cast<size_t>(first[i])];
    if (static_cast<int64_t>(i) < kFirstPrompt) {
      count |= kInPrompt;
    } else {
      ++count;
    }
  }
  // Three rows, of which the middle one is counted into.
  std::vector<int32_t> rows(3 * kVocab, 77);
  const DeviceTensor counts = upload({3, kVocab}, rows);
  const DeviceTensor d_first = upload({1500}, first), d_second = upload({700}, second);
  ops::count_tokens(
      {.counts = counts.view()[1], .tokens = d_first.view(), .num_prompt = kFirstPrompt}, stream());
  std::copy(expected.begin(), expected.end(), rows.begin() + kVocab);
  EXPECT_EQ(download_as<int32_t>(counts.view()), rows);
  for (const int32_t token : second) ++rows[static_cast<size_t>(kVocab + token)];
  ops::count_tokens(
      {.counts = counts.view()[1], .tokens = d_second.view(), .num_prompt = 0, .begins = false},
      stream());
  EXPECT_EQ(download_as<int32_t>(counts.view()), rows);
}

}  // namespace
}  // namespace fathom::ops_test
