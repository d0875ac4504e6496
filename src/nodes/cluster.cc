#include "nodes/cluster.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "nodes/frame.h"
#include "nodes/ucx_link.h"

namespace fathom::nodes {
namespace {

using std::chrono::steady_clock;

constexpr int kBeatsPerSilence = 5;
constexpr std::chrono::milliseconds kTellTime{1000}, kAfterEnd{100};

std::string direction_key(const std::string& session, int from, int to) {
  return derived_key(session, std::to_string(from) + " to " + std::to_string(to));
}

// Wakes a thread that polls.
class Bell {
 public:
  Bell() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    FATHOM_CHECK(descriptor_ >= 0, "eventfd");
  }
  ~Bell() { ::close(descriptor_); }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  void ring() { [[maybe_unused]] const int done = ::eventfd_write(descriptor_, 1); }
  void silence() {
    eventfd_t count = 0;
    [[maybe_unused]] const int done = ::eventfd_read(descriptor_, &count);
  }
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

// One other node.
struct Peer {
  Peer(int other, UcxLink& its_link, const std::string& session, int self)
      : link(its_link),
        writer(direction_key(session, self, other), self),
        reader(direction_key(session, other, self), other,
               [this](uint32_t channel, std::vector<std::byte> message) {
                 link.deliver(channel, std::move(message));
               }) {}

  // Why nothing more will come, a moment before the link fails: what is under way may still come. That a process has
  // ended says more than that messages do not get there.
  void is_ending(const std::string& why, bool has_ended = false) {
    if (end.empty()) fails_at = steady_clock::now() + kAfterEnd;
    if (end.empty() || has_ended) end = why;
  }
  bool is_gone() const { return !end.empty() || link.has_heard_farewell(); }

  UcxLink& link;
  FrameWriter writer;
  FrameReader reader;
  steady_clock::time_point last_heard = steady_clock::now();
  Door* door = nullptr;  // null: none to this node, or it is closed
  std::string end;
  steady_clock::time_point fails_at;
};

}  // namespace

// The thread, and all that it alone touches.
class Cluster::Mover {
 public:
  explicit Mover(const ClusterConfig& config)
      : config_(config),
        interval_(config.silence / kBeatsPerSilence),
        meeting_(meet(config, [this](const std::string& network_interface) {
          return std::make_unique<UcxTransport>(UcxTransport::Config{
              .network_interface = network_interface,
              .arrived = [this](Bytes header, Bytes payload) { arrived(header, payload); },
              .broken = [this](int peer, const std::string& why) { broken(peer, why); }});
        })) {
    for (int node = 0; node < config.num_nodes; ++node) add_peer(node);
    thread_ = std::thread([this] { run(); });
  }

  ~Mover() {
    leave("it has ended");
    ending_ = true;
    bell_.ring();
    thread_.join();
    for (const auto& link : links_)
      if (link) link->end();
  }

  const ClusterConfig& config() const { return config_; }
  const std::string& network_interface() const { return meeting_.network_interface; }
  UcxLink* link(int node) { return links_.at(static_cast<size_t>(node)).get(); }

  void leave(const std::string& why) {
    for (const auto& link : links_)
      if (link) link->say_farewell(why);
  }

 private:
  void add_peer(int node) {
    const bool is_other = node != config_.node_rank;
    links_.push_back(is_other
                         ? std::make_unique<UcxLink>(meeting_.names.at(static_cast<size_t>(node)),
                                                     [this] { bell_.ring(); })
                         : nullptr);
    peers_.emplace_back();
    if (!is_other) return;
    const auto place = static_cast<size_t>(node);
    meeting_.transport->connect(node, meeting_.addresses[place]);
    peers_.back() =
        std::make_unique<Peer>(node, *links_.back(), meeting_.session, config_.node_rank);
    if (place < meeting_.doors.size()) peers_.back()->door = meeting_.doors[place].get();
  }

  void run() {
    while (!ending_) turn();
    // Who has heard the farewell answers: then nothing of what was sent before is under way.
    const auto end = steady_clock::now() + kTellTime;
    while (!all_gone() && steady_clock::now() < end) turn();
    for (size_t node = 0; node < peers_.size(); ++node)
      if (peers_[node] && !peers_[node]->link.has_heard_farewell())
        meeting_.transport->give_up(static_cast<int>(node));
    meeting_.transport.reset();
  }

  void turn() {
    bell_.silence();
    send_outgoing();
    beat();
    while (meeting_.transport->progress()) {
    }
    end_links();
    sleep(/*is_quiet=*/meeting_.transport->arm());
  }

  bool all_gone() const {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const auto& peer) { return !peer || peer->is_gone(); });
  }

  void end_links() {
    const auto now = steady_clock::now();
    for (const auto& peer : peers_) {
      if (!peer || peer->end.empty() || now < peer->fails_at) continue;
      if (peer->door != nullptr && peer->door->socket().is_closed()) listen_at(*peer);
      peer->link.lose(peer->end);
    }
  }

  // Sleeps, if all is quiet, until a message comes or is to be sent, a door opens or closes, or it is time for a
  // heartbeat.
  void sleep(bool is_quiet) {
    std::vector<pollfd> wanted = {
        {.fd = bell_.descriptor(), .events = POLLIN, .revents = 0},
        {.fd = meeting_.transport->descriptor(), .events = POLLIN, .revents = 0}};
    std::vector<Peer*> at_doors;
    for (const auto& peer : peers_) {
      if (!peer || peer->door == nullptr) continue;
      at_doors.push_back(peer.get());
      wanted.push_back({.fd = peer->door->socket().descriptor(), .events = POLLIN, .revents = 0});
    }
    auto until = next_beat_;
    for (const auto& peer : peers_)
      if (peer && !peer->end.empty() && peer->link.failure().empty())
        until = std::min(until, peer->fails_at);
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now()).count();
    const int patience = is_quiet ? static_cast<int>(std::max<int64_t>(left, 0)) + 1 : 0;
    if (::poll(wanted.data(), wanted.size(), patience) <= 0) return;
    for (size_t i = 0; i < at_doors.size(); ++i)
      if (wanted[i + 2].revents != 0) listen_at(*at_doors[i]);
  }

  // After the start nobody speaks at a door: what is to be read there is its end.
  static void listen_at(Peer& peer) {
    const char* const why = peer.door->socket().is_closed()
                                ? " closed its connection: its process has ended"
                                : " sent what is no message";
    peer.is_ending(peer.link.peer_name() + why, /*has_ended=*/true);
    peer.door = nullptr;
  }

  void send_outgoing() {
    for (size_t node = 0; node < peers_.size(); ++node)
      if (peers_[node])
        for (auto& [channel, message] : peers_[node]->link.take_outgoing())
          send(static_cast<int>(node), channel, message);
  }

  void send(int node, uint32_t channel, const UcxLink::Message& message) {
    peers_[static_cast<size_t>(node)]->writer.split(
        channel, *message, [&](const FrameHeader& header, Bytes payload) {
          meeting_.transport->send(node, header, payload, message);
          meeting_.transport->progress();
        });
  }

  void beat() {
    const auto now = steady_clock::now();
    if (now < next_beat_) return;
    // While this thread did not run it could not hear either.
    const auto missed =
        next_beat_ == steady_clock::time_point() ? steady_clock::duration() : now - next_beat_;
    next_beat_ = now + interval_;
    static const auto nothing = std::make_shared<const std::vector<std::byte>>();
    for (size_t node = 0; node < peers_.size(); ++node) {
      if (!peers_[node] || !peers_[node]->link.failure().empty()) continue;
      Peer& peer = *peers_[node];
      peer.last_heard += missed;
      if (now - peer.last_heard > config_.silence) {
        peer.is_ending(peer.link.peer_name() + " was silent for " +
                       std::to_string(config_.silence.count()) + " ms");
      } else {
        send(static_cast<int>(node), kHeartbeatChannel, nothing);
      }
    }
  }

  void arrived(Bytes header, Bytes payload) {
    const int node = claimed_source(header);
    if (node < 0 || node >= static_cast<int>(peers_.size()) || !peers_[static_cast<size_t>(node)])
      return;
    Peer& peer = *peers_[static_cast<size_t>(node)];
    if (peer.reader.take(header, payload) == FrameReader::Taken::kInOrder)
      peer.last_heard = steady_clock::now();
  }

  void broken(int node, const std::string& why) {
    Peer& peer = *peers_.at(static_cast<size_t>(node));
    peer.is_ending(peer.link.peer_name() + " cannot be reached: " + why);
  }

  const ClusterConfig config_;
  const std::chrono::milliseconds interval_;
  std::vector<std::unique_ptr<UcxLink>> links_;  // by node
  std::vector<std::unique_ptr<Peer>> peers_;     // by node
  Bell bell_;
  steady_clock::time_point next_beat_;
  Meeting meeting_;  // its transport may call arrived() and broken() until it has ended
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

Cluster::Cluster(const ClusterConfig& config) : mover_(std::make_unique<Mover>(config)) {}

Cluster::~Cluster() = default;

int Cluster::num_nodes() const { return mover_->config().num_nodes; }

int Cluster::node_rank() const { return mover_->config().node_rank; }

const std::string& Cluster::network_interface() const { return mover_->network_interface(); }

comm::Link& Cluster::link(int node) {
  UcxLink* const link = mover_->link(node);
  FATHOM_CHECK(link != nullptr, "node " << node << " is this one");
  return *link;
}

void Cluster::leave(const std::string& why) { mover_->leave(why); }

}  // namespace fathom::nodes
