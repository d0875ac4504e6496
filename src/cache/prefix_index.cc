#include "cache/prefix_index.h"

#include <algorithm>
#include <bit>

namespace fathom::cache {

void PrefixIndex::remove(uint64_t block_hash, int cache) {
  const auto found = caches_.find(block_hash);
  if (found == caches_.end()) return;
  found->second &= ~bit(cache);
  if (found->second == 0) caches_.erase(found);
}

void PrefixIndex::find(std::string_view salt, std::span<const int32_t> tokens, int64_t max_tokens,
                       std::span<int32_t> num_blocks) const {
  std::fill(num_blocks.begin(), num_blocks.end(), 0);
  const int64_t most = hash_.num_whole_blocks(tokens, max_tokens);
  uint64_t hash = hash_.of_salt(salt);
  // Those that have every block so far.
  uint64_t left =
      num_blocks.size() == kMaxCaches ? ~uint64_t{0} : bit(static_cast<int>(num_blocks.size())) - 1;
  for (int32_t block = 0; block < most; ++block) {
    hash = hash_.of_block(hash, hash_.key(tokens, static_cast<size_t>(block)));
    const auto found = caches_.find(hash);
    left &= found == caches_.end() ? 0 : found->second;
    if (left == 0) return;
    for (uint64_t rest = left; rest != 0; rest &= rest - 1)
      num_blocks[static_cast<size_t>(std::countr_zero(rest))] = block + 1;
  }
}

int64_t PrefixIndex::num_entries() const {
  int64_t count = 0;
  for (const auto& [hash, caches] : caches_) count += std::popcount(caches);
  return count;
}

}  // namespace fathom::cache
