#pragma once
// Lanes: what each group of ranks with sequences of its own has (slots, blocks with their prefix cache, the sequences
// that run), how loaded it is, and where a sequence that waits would best go.
//
//   Lanes lanes({.num_lanes = 8, .slots_per_lane = 32, .kv_groups = groups});
//   lanes.start_plan();
//   lanes.look_up(sequence);                                  // its cached prefix in each lane
//   for (const int lane : lanes.places_for(sequence)) ...     // where to try, best first
//
// Slots are numbered through: lane l has slots [l * slots_per_lane, (l + 1) * slots_per_lane).
// Placement: of the lanes that may be chosen for what they have cached, the longest prefix, then the least load; then
// all others by load. A lane may be chosen so unless its load is kMostLoad times the mean or more, and the least
// loaded always may. A sequence's load are its known tokens and a block.
// One thread uses it. Outlives the pins and leases of the sequences.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cache/prefix_index.h"
#include "sched/kv_blocks.h"
#include "sched/sequence.h"
#include "sched/step_cost.h"

namespace fathom::sched {

// kPrefix is what is described above; the others know nothing of caches and are there to be compared with.
enum class LanePlacement : uint8_t { kPrefix, kRoundRobin, kLeastLoad };

struct LanesConfig {
  int num_lanes = 1, slots_per_lane = 1;
  LanePlacement placement = LanePlacement::kPrefix;
  std::vector<KvGroupConfig> kv_groups{};  // of each lane
  bool radix_cache = true;
  cache::BlockListener* listener = nullptr;  // of every lane's cache, by its number; null = none
};

struct Lane {
  Lane(const LanesConfig& config, int number, cache::PrefixIndex* index);

  int number;
  KvBlocks blocks;
  std::vector<Sequence*> running{};  // by priority, then turn: the first is never retracted
  std::vector<int32_t> free_slots{}, pending_releases{};
  int64_t load = 0;
  // Of the plan being made.
  int num_growing = 0;  // running sequences that may need another block
  StepWork work{};
  bool has_streams = false;  // sequences decode

  int64_t load_of(const Sequence& sequence) const {
    return sequence.num_prefill_tokens + blocks.block_tokens();
  }
};

class Lanes {
 public:
  static constexpr double kMostLoad = 1.3;

  explicit Lanes(const LanesConfig& config);

  int size() const { return static_cast<int>(lanes_.size()); }
  Lane& operator[](int lane) { return lanes_[static_cast<size_t>(lane)]; }
  const Lane& operator[](int lane) const { return lanes_[static_cast<size_t>(lane)]; }
  auto begin() { return lanes_.begin(); }
  auto end() { return lanes_.end(); }
  auto begin() const { return lanes_.begin(); }
  auto end() const { return lanes_.end(); }

  // REQUIRES: it has a slot.
  int number_of(const Sequence& sequence) const { return sequence.slot / slots_per_lane_; }
  Lane& of(const Sequence& sequence) { return (*this)[number_of(sequence)]; }

  int num_running() const;
  int num_free_slots() const;
  int num_available_blocks() const;
  bool has_releases() const;
  int block_tokens() const { return lanes_.front().blocks.block_tokens(); }
  int lookahead_tokens() const { return lanes_.front().blocks.lookahead_tokens(); }

  // What the caches hold and how loaded lanes are is read here, once a plan.
  void start_plan();
  // Sets the hints of a sequence that waits, unless they are up to date.
  void look_up(Sequence& sequence);
  // Whether a sequence may go there for what is cached.
  bool attracts(int lane) const;
  // Lanes with a free slot, best first; valid until the next call. REQUIRES: looked up in this plan.
  const std::vector<int>& places_for(const Sequence& sequence);

  KvUsage usage() const;
  std::string check_integrity(std::optional<uint64_t> part = {}) const;  // as Scheduler's

 private:
  std::string check_slots(const Lane& lane) const;

  void sort_places(const Sequence& sequence);

  int slots_per_lane_;
  LanePlacement placement_;
  int next_in_turn_ = 0;
  cache::PrefixIndex index_;  // of several lanes
  std::deque<Lane> lanes_;
  std::vector<int> places_;
  int64_t version_ = 0;
};

bool ranks_before(const Sequence* a, const Sequence* b);

}  // namespace fathom::sched
