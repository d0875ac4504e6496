#include "text/piece_owner.h"

#include <gtest/gtest.h>

#include <thread>

namespace fathom::text {
namespace {

TEST(PieceOwner, is_of_its_thread_while_it_lives) {
  EXPECT_EQ(PieceOwner::current(), 0U);
  const PieceOwner alice("alice");
  const uint32_t number = PieceOwner::current();
  EXPECT_NE(number, 0U);
  {
    const PieceOwner bob("bob");
    EXPECT_NE(PieceOwner::current(), number);
    const PieceOwner nobody("");
    EXPECT_EQ(PieceOwner::current(), 0U);
  }
  EXPECT_EQ(PieceOwner::current(), number);
  std::thread([] { EXPECT_EQ(PieceOwner::current(), 0U); }).join();
}

}  // namespace
}  // namespace fathom::text
