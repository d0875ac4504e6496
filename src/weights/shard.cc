#include "weights/shard.h"

#include "base/startup_error.h"

namespace fathom::weights {

int64_t shard_length(const Shard& shard, const std::string& name, int64_t whole) {
  if (shard.is_whole() || whole % (shard.size * shard.granule) == 0) return whole / shard.size;
  throw StartupError(name + ": dimension " + std::to_string(shard.axis) + " is " +
                     std::to_string(whole) + ", which does not divide among " +
                     std::to_string(shard.size) + " ranks in multiples of " +
                     std::to_string(shard.granule));
}

}  // namespace fathom::weights
