#include "base/bounded_heap.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace fathom::memory {
namespace {

constexpr int64_t kOneMiB = int64_t{1} << 20;

std::function<bool()> always() {
  return [] { return true; };
}

// How many pieces of 100,000 bytes can be had at once.
int num_pieces_within(int64_t max_bytes) {
  std::vector<std::unique_ptr<char[]>> pieces;
  pieces.reserve(1000);
  const BoundedHeap scope(max_bytes, always());
  try {
    while (pieces.size() < 1000) pieces.push_back(std::make_unique<char[]>(100'000));
  } catch (const BeyondBound&) {
    return static_cast<int>(pieces.size());
  }
  return -1;
}

class BoundedHeapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kIsHeapBounded) GTEST_SKIP() << "the sanitizer has an allocator of its own";
  }
};

TEST_F(BoundedHeapTest, what_is_held_at_once_is_bounded) {
  EXPECT_EQ(num_pieces_within(kOneMiB), 10);
  EXPECT_EQ(num_pieces_within(4 * kOneMiB), 41);
}

TEST_F(BoundedHeapTest, what_is_freed_makes_room) {
  const BoundedHeap scope(kOneMiB, always());
  for (int i = 0; i < 100; ++i) {
    const std::vector<char> piece(600'000);
    EXPECT_EQ(piece.size(), 600'000U);
  }
}

TEST_F(BoundedHeapTest, it_ends_when_the_question_is_answered_with_no) {
  int num_asked = 0;
  const BoundedHeap scope(kOneMiB, [&] { return ++num_asked < 3; });
  int num_made = 0;
  try {
    for (; num_made < 100; ++num_made) const std::vector<char> piece(600'000);
  } catch (const BeyondBound&) {
  }
  EXPECT_EQ(num_asked, 3);
  EXPECT_EQ(num_made, 5);  // two pieces to a question
}

TEST_F(BoundedHeapTest, it_holds_for_its_thread_while_it_lives) {
  {
    const BoundedHeap scope(kOneMiB, always());
    std::thread([] { EXPECT_EQ(std::vector<char>(3 * kOneMiB).size(), 3U << 20); }).join();
    {
      const BoundedHeap inner(8 * kOneMiB, always());
      EXPECT_EQ(std::vector<char>(3 * kOneMiB).size(), 3U << 20);
    }
    EXPECT_THROW(std::vector<char>(3 * kOneMiB), BeyondBound);
  }
  EXPECT_EQ(std::vector<char>(3 * kOneMiB).size(), 3U << 20);
}

}  // namespace
}  // namespace fathom::memory
