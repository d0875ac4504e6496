#pragma once
// Shard: the part of a checkpoint's tensor that one rank holds, the rank'th of `size` equal parts along an axis.
// (The files of a checkpoint, which others call shards too, are shard_index.h's.)
//
//   const Shard heads{.axis = 0, .rank = 3, .size = 8, .granule = 192};            // whole heads of 192 rows
//   const int64_t rows = shard_length(heads, "model.layers.0.self_attn.q_b_proj.weight", 24576);    // 3072
//
// Plain data and pure functions.

#include <cstdint>
#include <string>

namespace fathom::weights {

struct Shard {
  int axis = 0;
  int rank = 0, size = 1;
  int64_t granule = 1;            // entries that stay together: of a head, of a block of scales
  const char* holders = "ranks";  // what there are `size` of, for messages

  bool is_whole() const { return size == 1; }
};

// Entries that each rank holds of `whole` along the shard's axis. Throws StartupError, which names the parameter, the
// dimension and the number of ranks, where they do not divide into equal parts of whole granules.
int64_t shard_length(const Shard& shard, const std::string& name, int64_t whole);

// Whether parts of this length never straddle a border between blocks of 128 that they do not begin or end at: whole
// blocks, or equal fractions of one, each with the scale of its block.
bool fits_scale_blocks(int64_t length);
// Of `whole` entries with a scale for each 128. Throws StartupError, which says what helps, where parts straddle
// blocks.
int64_t scaled_shard_length(const Shard& shard, const std::string& name, int64_t whole);

}  // namespace fathom::weights
