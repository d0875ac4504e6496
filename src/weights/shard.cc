#include "weights/shard.h"

#include "base/startup_error.h"
#include "tensor/scale_block.h"

namespace fathom::weights {

int64_t shard_length(const Shard& shard, const std::string& name, int64_t whole) {
  if (shard.is_whole() || whole % (shard.size * shard.granule) == 0) return whole / shard.size;
  throw StartupError(name + ": dimension " + std::to_string(shard.axis) + " is " +
                     std::to_string(whole) + ", which does not divide among " +
                     std::to_string(shard.size) + " " + shard.holders + " in multiples of " +
                     std::to_string(shard.granule));
}

bool fits_scale_blocks(int64_t length) {
  return length % tensor::kScaleBlock == 0 || tensor::kScaleBlock % length == 0;
}

int64_t scaled_shard_length(const Shard& shard, const std::string& name, int64_t whole) {
  const int64_t length = shard_length(shard, name, whole);
  if (shard.is_whole() || fits_scale_blocks(length)) return length;
  throw StartupError(
      name + ": dimension " + std::to_string(shard.axis) + " is " + std::to_string(whole) +
      ", of which each of " + std::to_string(shard.size) + " " + shard.holders + " would hold " +
      std::to_string(length) +
      ", but parts with block scales are multiples of 128 or divide it: they may not straddle "
      "blocks of scales (--dequantize does without them)");
}

}  // namespace fathom::weights
