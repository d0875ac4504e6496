// The tests, or another node that a test has started.

#include <gtest/gtest.h>

#include <string_view>

#include "tests/nodes/peer_program.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "peer") return fathom::nodes::run_peer(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
