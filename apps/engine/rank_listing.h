#pragma once
// What each of several ranks would hold of a model, counted from config.json without memory for it, and what cache is
// left in a device of a given size.
//
//   RankListing listing = list_ranks(config, options, address_only(backend), rank_sizes(flags));
//   listing.weight_bytes;                                   // of one rank: all have equal parts
//   listing.cache_tokens(int64_t{80} << 30);                // 0 = it does not fit
//
// Not thread-safe, as address_only.h. list_ranks() throws StartupError where ranks cannot share the model.

#include <cstdint>
#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "config/model_config.h"
#include "model/model.h"
#include "runner/ranks/rank_group.h"

namespace fathom::apps {

struct RankListing {
  runner::RankSizes sizes;
  int64_t weight_bytes = 0, weight_bytes_with_drafts = 0;  // of one rank; with the draft layer
  int64_t kv_bytes_per_token = 0;                          // of one rank

  // Of each rank, when nine tenths of what weights and a step leave of so many bytes are the cache's; the ranks of a
  // lane hold the same tokens, each lane has others.
  int64_t cache_tokens(int64_t device_bytes) const;
};

// The weights alone, of one rank.
int64_t rank_weight_bytes(const config::ModelConfig& config, const model::ModelOptions& options,
                          const ops::Backend& address_only, const runner::RankSizes& sizes);

RankListing list_ranks(const config::ModelConfig& config, const model::ModelOptions& options,
                       const ops::Backend& address_only, const runner::RankSizes& sizes);

// For people: what a rank holds.
std::string rank_text(const RankListing& listing);
json::Value rank_json(const RankListing& listing, std::optional<int64_t> device_bytes);

}  // namespace fathom::apps
