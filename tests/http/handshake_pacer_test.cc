// HandshakePacer on a loop of its own: turns of addresses, and that other handlers come between handshakes.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "http/handshake_pacer_internal.h"

namespace fathom::http::tests {
namespace {

TEST(HandshakePacer, addresses_take_turns) {
  boost::asio::io_context io(1);
  HandshakePacer pacer(io);
  std::string order;
  for (int i = 0; i < 3; ++i) pacer.add("flood", [&order] { order += 'f'; });
  pacer.add("other", [&order] { order += 'o'; });
  pacer.add("third", [&order] { order += 't'; });
  io.run();
  EXPECT_EQ(order, "ffotf");  // the first began at once
}

TEST(HandshakePacer, the_loop_has_as_long_for_others_as_a_handshake_took) {
  using Clock = std::chrono::steady_clock;
  boost::asio::io_context io(1);
  HandshakePacer pacer(io);
  struct Spell {
    Clock::time_point begin, end;
  };
  std::vector<Spell> spells;
  const auto compute = [&spells] {
    const Clock::time_point begin = Clock::now();
    while (Clock::now() < begin + std::chrono::milliseconds(3)) {
    }
    spells.push_back({begin, Clock::now()});
  };
  // As a handshake does: what is begun computes in a later handler.
  for (int i = 0; i < 4; ++i) pacer.add("a", [&] { boost::asio::post(io, compute); });
  io.run();
  ASSERT_EQ(spells.size(), 4u);
  for (size_t i = 1; i < spells.size(); ++i) {
    EXPECT_GE(spells[i].begin - spells[i - 1].end, std::chrono::milliseconds(3)) << i;
  }
}

TEST(HandshakePacer, begins_nothing_once_stopped) {
  boost::asio::io_context io(1);
  HandshakePacer pacer(io);
  int num_begun = 0;
  for (int i = 0; i < 3; ++i) pacer.add("a", [&num_begun] { ++num_begun; });
  pacer.stop();
  pacer.add("b", [&num_begun] { ++num_begun; });
  io.run();
  EXPECT_EQ(num_begun, 1);
}

}  // namespace
}  // namespace fathom::http::tests
