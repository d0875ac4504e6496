#pragma once
// Publisher: tells routers which blocks the prefix caches of this server have, as vLLM and SGLang do: batches of events
// (lane_events.h) from a PUB socket of ZeroMQ, one for each lane, and from a ROUTER socket again what was missed.
//
//   Publisher publisher(config, /*num_lanes=*/1, registry);      // throws StartupError
//   StepLoopConfig step{.block_listener = &publisher};
//
// Messages are [topic, sequence, payload], the sequence in 8 bytes, the most significant first, from 0 on for each
// lane. [sequence] to the ROUTER socket, as REQ sends it, is answered by messages [sequence, payload] of all batches
// from that one on that are still kept, and [eight bytes 0xff, ""] behind the last.
// Batch 0 says that nothing is cached: a router may know an earlier process by the same address.
// The engine's thread writes into a bounded queue and never waits; a thread of its own does the rest. What is lost
// there is counted, and the lane begins anew with "AllBlocksCleared". The registry outlives it. Listener functions are
// called by one thread.

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "cache/block_listener.h"
#include "kv_events/config.h"
#include "kv_events/event_queue.h"
#include "kv_events/lane_events.h"
#include "kv_events/zmq_socket.h"
#include "metrics/registry.h"

namespace fathom::kv_events {

class Publisher : public cache::BlockListener {
 public:
  Publisher(const PublisherConfig& config, int num_lanes, metrics::Registry& registry);
  // What is in the queue is published first.
  ~Publisher() override;

  void stored(int cache, const cache::StoredBlocks& blocks) override;
  void removed(int cache, uint64_t name) override;
  void cleared(int cache) override;

 private:
  struct Lane {
    Lane(ZmqContext& context, const PublisherConfig& config, int number);

    LaneEvents events;
    ZmqSocket pub;
    std::unique_ptr<ZmqSocket> replay;  // null = there is none
    uint64_t next_sequence = 0;
    // The last ones, up to next_sequence, where they can be sent again.
    std::deque<std::string> kept{};
    size_t num_kept_bytes = 0;
  };

  void add(int cache, Event event);
  // The thread's.
  void run();
  void publish(Lane& lane, int number);
  void keep(Lane& lane, std::string payload);
  static void answer_replay(Lane& lane);

  const PublisherConfig config_;
  metrics::Counter &num_batches_, &num_events_, &num_lost_;
  EventQueue queue_;
  ZmqContext context_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace fathom::kv_events
