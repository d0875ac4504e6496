#pragma once
// How many ranks compute a model, and how they share it: flags, what they mean together, and what is refused.
//
//   RankFlags flags;
//   rank_flags().add_to(*subcommand, flags);
//   check_ranks(flags, config);                     // throws: the flag, its value and the rule
//   runner::RankGroup ranks(rank_sizes(flags), backend);
//
// Names are SGLang's. Plain data and pure functions.

#include <chrono>
#include <optional>

#include "apps/flags/flag_table.h"
#include "base/json_fwd.h"
#include "config/model_config.h"
#include "cuda/comm/peer_ranks.h"
#include "ops/backend.h"
#include "runner/ranks/rank_group.h"

namespace fathom::apps {

struct RankFlags {
  int tp_size = 1;
  bool experts_apart = false;  // --enable-ep-moe
  std::optional<int> ep_size;
  bool dp_attention = false;
  std::optional<int> dp_size;
  int deterministic_tp = 1;
  cuda::PeerOptions peers = {};        // of ranks that are GPUs
  std::optional<double> dist_timeout;  // seconds

  int num_lanes() const { return dp_attention ? dp_size.value_or(1) : 1; }
};

const FlagTable<RankFlags>& rank_flags();
// Those of how GPUs add.
const FlagTable<cuda::PeerOptions>& peer_flags();
// Of commands whose ranks compute.
const FlagTable<RankFlags>& rank_wait_flag();

// Whether the flags fit together and the model divides. What a parameter's own size forbids beyond that
// (weights/shard.h) is found when the model is made.
void check_ranks(const RankFlags& flags, const config::ModelConfig& config);
// num_local: ranks in this process.
void check_ranks_on(const RankFlags& flags, int num_local, const ops::Backend& backend);
// Of a simulation, whose ranks have no model to share.
void check_simulated_ranks(const RankFlags& flags);
runner::RankSizes rank_sizes(const RankFlags& flags);
// How long ranks wait for one that stands still.
std::chrono::milliseconds rank_standstill(const RankFlags& flags);
// Requests that each lane has room for, where all lanes together run so many.
int slots_of_lane(const RankFlags& flags, int max_running_requests);
// What the three tables show.
json::Value rank_settings(const RankFlags& flags);

}  // namespace fathom::apps
