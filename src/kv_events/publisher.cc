#include "kv_events/publisher.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/startup_error.h"

namespace fathom::kv_events {
namespace {

// Of the batches that each lane keeps, beside their number.
constexpr size_t kMaxKeptBytes = size_t{64} << 20;

std::string big_endian(uint64_t value) {
  std::string bytes;
  for (int byte = 7; byte >= 0; --byte) bytes += static_cast<char>(value >> (8 * byte));
  return bytes;
}

uint64_t from_big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string lane_endpoint(const std::string& endpoint, int lane) {
  Result<std::string> found = endpoint_of_lane(endpoint, lane);
  if (!found) throw StartupError("--kv-events-config: " + found.error().message);
  return *found;
}

metrics::Counter& counter(metrics::Registry& registry, const std::string& name,
                          const std::string& help) {
  return registry.counter({.name = name, .help = help});
}

}  // namespace

Publisher::Lane::Lane(ZmqContext& context, const PublisherConfig& config, int number)
    : events(number), pub(context, ZmqSocket::Kind::kPub, {.hwm = config.hwm}) {
  pub.open(lane_endpoint(config.endpoint, number), is_bound(config.endpoint));
  if (config.replay_endpoint.empty()) return;
  // Room for one answer, with its end.
  replay = std::make_unique<ZmqSocket>(context, ZmqSocket::Kind::kRouter,
                                       ZmqSocket::Limits{.hwm = config.buffer_steps + 1});
  replay->open(lane_endpoint(config.replay_endpoint, number), /*bind=*/true);
}

Publisher::Publisher(const PublisherConfig& config, int num_lanes, metrics::Registry& registry)
    : config_(config),
      num_batches_(counter(registry, "fathom:kv_event_batches_total",
                           "Batches of KV events that were published.")),
      num_events_(counter(registry, "fathom:kv_events_total",
                          "Events of the prefix caches that were published.")),
      num_lost_(
          counter(registry, "fathom:kv_events_lost_total",
                  "Events of the prefix caches that found no room, or whose parent did not.")),
      queue_(num_lanes, config.max_queue_size) {
  for (int lane = 0; lane < num_lanes; ++lane) {
    lanes_.push_back(std::make_unique<Lane>(context_, config_, lane));
    add(lane, {.kind = Event::Kind::kCleared});
  }
  FATHOM_LOG(kInfo, "kv_events", "publishing",
             {{"endpoint", config_.endpoint},
              {"replay_endpoint", config_.replay_endpoint},
              {"topic", config_.topic},
              {"ranks", num_lanes}});
  thread_ = std::thread([this] { run(); });
}

Publisher::~Publisher() {
  stops_ = true;
  queue_.wake();
  thread_.join();
}

void Publisher::stored(int cache, const cache::StoredBlocks& blocks) {
  add(cache, {.kind = Event::Kind::kStored,
              .salt = std::string(blocks.salt),
              .parent = blocks.parent,
              .names = {blocks.names.begin(), blocks.names.end()},
              .tokens = {blocks.tokens.begin(), blocks.tokens.end()},
              .block_tokens = blocks.block_tokens});
}

void Publisher::removed(int cache, uint64_t name) {
  add(cache, {.kind = Event::Kind::kRemoved, .names = {name}});
}

void Publisher::cleared(int cache) { add(cache, {.kind = Event::Kind::kCleared}); }

void Publisher::add(int cache, Event event) {
  num_lost_.add(static_cast<double>(queue_.add(cache, std::move(event))));
}

void Publisher::run() {
  std::vector<ZmqSocket*> replays;
  for (const auto& lane : lanes_)
    if (lane->replay != nullptr) replays.push_back(lane->replay.get());
  for (bool ends = false; !ends;) {
    wait_for_input(context_, queue_.fd(), replays);
    // Read before the queue, so that the last round takes all that came before the end.
    ends = stops_;
    queue_.clear_wake();
    for (size_t i = 0; i < lanes_.size(); ++i) {
      publish(*lanes_[i], static_cast<int>(i));
      if (lanes_[i]->replay != nullptr) answer_replay(*lanes_[i]);
    }
  }
}

void Publisher::publish(Lane& lane, int number) {
  for (const Event& event : queue_.take(number))
    if (!lane.events.add(event)) num_lost_.add();
  const int num_events = lane.events.num_events();
  std::string payload = lane.events.take_batch(unix_seconds());
  if (payload.empty()) return;
  // Whoever misses it sees the gap in the sequence.
  lane.pub.send({config_.topic, big_endian(lane.next_sequence), payload});
  ++lane.next_sequence;
  num_batches_.add();
  num_events_.add(num_events);
  if (lane.replay != nullptr) keep(lane, std::move(payload));
}

void Publisher::keep(Lane& lane, std::string payload) {
  lane.num_kept_bytes += payload.size();
  lane.kept.push_back(std::move(payload));
  while (lane.kept.size() > static_cast<size_t>(config_.buffer_steps) ||
         (lane.num_kept_bytes > kMaxKeptBytes && lane.kept.size() > 1)) {
    lane.num_kept_bytes -= lane.kept.front().size();
    lane.kept.pop_front();
  }
}

// One request: run() comes back for the next, so that nobody who asks and asks keeps others from what is new.
void Publisher::answer_replay(Lane& lane) {
  const std::vector<std::string> request = lane.replay->receive();
  if (request.empty()) return;
  const std::string& client = request.front();
  if (request.size() != 3 || request[2].size() != 8) {
    FATHOM_LOG(kDebug, "kv_events", "a replay request is not [\"\", sequence of 8 bytes]",
               {{"parts", request.size()}});
    return;
  }
  const uint64_t oldest = lane.next_sequence - lane.kept.size();
  for (uint64_t sequence = std::max(oldest, from_big_endian(request[2]));
       sequence < lane.next_sequence; ++sequence)
    lane.replay->send({client, "", big_endian(sequence), lane.kept[sequence - oldest]});
  lane.replay->send({client, "", std::string(8, '\xff'), ""});
}

}  // namespace fathom::kv_events
