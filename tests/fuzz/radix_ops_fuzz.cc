// Bytes as operations on a radix tree, its pools and a few sequences, each compared with a plain model
// (tests/cache/radix_world.h). The first three bytes choose the world, then four bytes are one operation.

#include <cstdint>

#include "base/check.h"
#include "tests/cache/radix_world.h"

namespace {

using fathom::cache::testing::describe_ops;
using fathom::cache::testing::RadixOp;
using fathom::cache::testing::RadixWorld;
using fathom::cache::testing::RadixWorldConfig;

RadixWorldConfig world_of(const uint8_t* data) {
  static constexpr int kBlockTokens[] = {1, 2, 16, 64};
  RadixWorldConfig config{.num_groups = 1 + data[0] % 2,
                          .block_tokens = kBlockTokens[data[1] % 4],
                          .num_blocks = data[2] % 48};
  if (data[0] >= 128) config.hash_mask = data[1] >> 4;
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  std::vector<RadixOp> ops;
  for (size_t i = 3; i + 4 <= size; i += 4)
    ops.push_back({data[i], data[i + 1], data[i + 2], data[i + 3]});
  const std::string problem = RadixWorld(world_of(data)).run(ops, 1);
  FATHOM_CHECK(problem.empty(), problem << "\n" << describe_ops(ops));
  return 0;
}
