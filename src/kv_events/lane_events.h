#pragma once
// LaneEvents: what a listener heard of one cache, as the batches of events that vLLM publishes and routers read.
//
//   LaneEvents events(/*lane=*/0);
//   events.add(event);  ...
//   const std::string payload = events.take_batch(unix_seconds);     // empty: nothing to say
//
// A batch is a MessagePack array [seconds, [event, ...], data_parallel_rank], an event one of
//
//   ["BlockStored", [name, ...], parent name or nil, [token id, ...], block size, nil, "GPU", nil]
//   ["BlockRemoved", [name, ...], "GPU"]
//   ["AllBlocksCleared"]
//
// The nils stand where vLLM has an adapter; "GPU" is the memory that steps read, on a CPU too. Blocks of a salt have a
// ninth value, one for each block: [[salt], nil, ...], where the prefix begins, and nils else. The salt is the client's
// own where requests bring no key; behind a key nobody else's prompts find these blocks, and it is "KEY NAME\nSALT".
// While no event was lost, a name is stored once until it is removed, and its parent is there. A cache may have a name
// more than once (cache/block_listener.h): the first and the last of them count.
// Not synchronised.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/block_listener.h"
#include "kv_events/message_pack.h"

namespace fathom::kv_events {

// One call of a BlockListener.
struct Event {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };

  Kind kind = Kind::kCleared;
  // kStored: cache::StoredBlocks. kRemoved: one name.
  std::string salt{};
  uint64_t parent = 0;
  std::vector<uint64_t> names{};
  std::vector<int32_t> tokens{};
  int block_tokens = 0;
};

class LaneEvents {
 public:
  explicit LaneEvents(int lane) : lane_(lane) {}

  // False: nobody can be told, since what it follows was lost.
  bool add(const Event& event);
  std::string take_batch(double unix_seconds);

  int64_t num_blocks() const { return static_cast<int64_t>(counts_.size()); }  // published
  int num_events() const { return num_events_ + (removed_.empty() ? 0 : 1); }  // of the next batch

 private:
  bool store(const Event& event);
  void write_stored(const Event& event, size_t first, uint64_t parent);
  void write_salt(const Event& event, size_t first, uint64_t parent);
  void remove(uint64_t name);
  void write_removed();

  int lane_;
  std::unordered_map<uint64_t, int> counts_;  // how often the cache has a name
  MessagePack events_;
  int num_events_ = 0;             // in events_
  std::vector<uint64_t> removed_;  // since the last event in events_
};

}  // namespace fathom::kv_events
