#include "sched/lanes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fathom::sched {
namespace {

cache::BlockHashConfig hash_config(const LanesConfig& config) {
  cache::BlockHashConfig hash{.block_tokens = config.kv_groups.front().block_tokens};
  for (const KvGroupConfig& group : config.kv_groups)
    hash.lookahead_tokens = std::max(hash.lookahead_tokens, group.lookahead_tokens);
  return hash;
}

std::string check_running(const Sequence& sequence) {
  if (!sequence.ended && sequence.min_advance >= 0 &&
      sequence.max_advance >= sequence.min_advance && sequence.min_rows() <= sequence.row_limit())
    return "";
  return "request " + std::to_string(sequence.id) + " runs with " +
         std::to_string(sequence.num_computed_rows) + " rows computed, " +
         std::to_string(sequence.min_advance) + " to " + std::to_string(sequence.max_advance) +
         " under way and at most " + std::to_string(sequence.row_limit());
}

}  // namespace

bool ranks_before(const Sequence* a, const Sequence* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->turn < b->turn;
}

Lane::Lane(const LanesConfig& config, int lane, cache::PrefixIndex* index)
    : number(lane),
      blocks(config.kv_groups, config.radix_cache,
             {.index = index, .listener = config.listener, .number = lane}) {
  const int32_t first = lane * config.slots_per_lane;
  for (int32_t slot = first + config.slots_per_lane - 1; slot >= first; --slot)
    free_slots.push_back(slot);
}

Lanes::Lanes(const LanesConfig& config)
    : slots_per_lane_(config.slots_per_lane),
      placement_(config.placement),
      index_(hash_config(config)) {
  FATHOM_CHECK(config.num_lanes >= 1 && config.num_lanes <= cache::PrefixIndex::kMaxCaches,
               config.num_lanes << " lanes, at most " << cache::PrefixIndex::kMaxCaches);
  for (int lane = 0; lane < config.num_lanes; ++lane)
    lanes_.emplace_back(config, lane, config.num_lanes == 1 ? nullptr : &index_);
}

int Lanes::num_running() const {
  size_t count = 0;
  for (const Lane& lane : lanes_) count += lane.running.size();
  return static_cast<int>(count);
}

int Lanes::num_free_slots() const {
  size_t count = 0;
  for (const Lane& lane : lanes_) count += lane.free_slots.size();
  return static_cast<int>(count);
}

int Lanes::num_available_blocks() const {
  int count = 0;
  for (const Lane& lane : lanes_) count += lane.blocks.num_available();
  return count;
}

bool Lanes::has_releases() const {
  return std::any_of(begin(), end(),
                     [](const Lane& lane) { return !lane.pending_releases.empty(); });
}

void Lanes::start_plan() {
  version_ = 0;
  for (Lane& lane : lanes_) {
    version_ += lane.blocks.version();
    lane.num_growing = 0;
    lane.work = {};
    lane.has_streams = false;
  }
}

void Lanes::look_up(Sequence& sequence) {
  if (sequence.hint_version == version_) return;
  sequence.hint_version = version_;
  if (size() == 1) {
    sequence.hint_tokens = lanes_.front().blocks.cached_prefix(sequence);
    return;
  }
  sequence.lane_blocks.assign(lanes_.size(), 0);
  sequence.hint_tokens = 0;
  if (!sequence.reads_cache || !lanes_.front().blocks.has_cache()) return;
  index_.find(sequence.cache_salt, sequence.tokens, sequence.num_known_tokens() - 1,
              sequence.lane_blocks);
  sequence.hint_tokens = int64_t{block_tokens()} * *std::max_element(sequence.lane_blocks.begin(),
                                                                     sequence.lane_blocks.end());
}

bool Lanes::attracts(int lane) const {
  if (size() == 1) return true;
  int64_t all = 0, least = lanes_.front().load;
  for (const Lane& each : lanes_) {
    all += each.load;
    least = std::min(least, each.load);
  }
  const int64_t load = (*this)[lane].load;
  return load == least || static_cast<double>(load) * size() < kMostLoad * static_cast<double>(all);
}

const std::vector<int>& Lanes::places_for(const Sequence& sequence) {
  places_.clear();
  for (const Lane& lane : lanes_)
    if (!lane.free_slots.empty()) places_.push_back(lane.number);
  if (size() > 1) sort_places(sequence);
  return places_;
}

void Lanes::sort_places(const Sequence& sequence) {
  const auto by_load = [&](int a, int b) {
    return std::pair((*this)[a].load, a) < std::pair((*this)[b].load, b);
  };
  if (placement_ == LanePlacement::kRoundRobin) {
    const int first = next_in_turn_++;
    const auto turn = [&](int lane) { return (lane - first % size() + size()) % size(); };
    return std::sort(places_.begin(), places_.end(),
                     [&](int a, int b) { return turn(a) < turn(b); });
  }
  if (placement_ == LanePlacement::kLeastLoad)
    return std::sort(places_.begin(), places_.end(), by_load);
  const auto cached = [&](int lane) { return sequence.lane_blocks[static_cast<size_t>(lane)]; };
  const auto others =
      std::partition(places_.begin(), places_.end(), [&](int lane) { return attracts(lane); });
  std::sort(places_.begin(), others, [&](int a, int b) {
    return cached(a) != cached(b) ? cached(a) > cached(b) : by_load(a, b);
  });
  std::sort(others, places_.end(), by_load);
}

KvUsage Lanes::usage() const {
  KvUsage all;
  for (const Lane& lane : lanes_) {
    const KvUsage usage = lane.blocks.usage();
    all.num_blocks += usage.num_blocks;
    all.num_free += usage.num_free;
    all.num_fenced += usage.num_fenced;
    all.num_cached += usage.num_cached;
    all.num_evictable += usage.num_evictable;
    all.num_leased += usage.num_leased;
  }
  return all;
}

std::string Lanes::check_slots(const Lane& lane) const {
  std::vector<int> uses(static_cast<size_t>(slots_per_lane_), 0);
  const auto use = [&](int32_t slot) {
    ++uses.at(static_cast<size_t>(slot - lane.number * slots_per_lane_));
  };
  for (const Sequence* sequence : lane.running) use(sequence->slot);
  for (const int32_t slot : lane.free_slots) use(slot);
  for (const int32_t slot : lane.pending_releases) use(slot);
  for (size_t slot = 0; slot < uses.size(); ++slot)
    if (uses[slot] != 1)
      return "slot " + std::to_string(slot) + " of lane " + std::to_string(lane.number) +
             " is running, free or to release " + std::to_string(uses[slot]) + " times";
  return "";
}

std::string Lanes::check_integrity(std::optional<uint64_t> part) const {
  int64_t num_cached = 0;
  for (const Lane& lane : lanes_) {
    if (std::string problem = lane.blocks.check_integrity(lane.running, part); !problem.empty())
      return problem;
    if (std::string problem = check_slots(lane); !problem.empty()) return problem;
    int64_t load = 0;
    for (const Sequence* sequence : lane.running) {
      if (std::string problem = check_running(*sequence); !problem.empty()) return problem;
      load += lane.load_of(*sequence);
    }
    if (!std::is_sorted(lane.running.begin(), lane.running.end(), ranks_before))
      return "running sequences are not in the order of their rank";
    if (load != lane.load)
      return "lane " + std::to_string(lane.number) + " has a load of " + std::to_string(load) +
             ", counted " + std::to_string(lane.load);
    num_cached += lane.blocks.usage().num_cached;
  }
  if (size() > 1 && !part && index_.num_entries() != num_cached)
    return std::to_string(num_cached) + " blocks are cached, the index of prefixes has " +
           std::to_string(index_.num_entries());
  return "";
}

}  // namespace fathom::sched
