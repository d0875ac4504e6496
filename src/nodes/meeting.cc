#include "nodes/meeting.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/base64.h"
#include "base/json.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "nodes/agreement.h"

namespace fathom::nodes {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kProofTime{2}, kWordsTime{5}, kLogInterval{10};
constexpr std::chrono::milliseconds kRetryInterval{200};

Deadline from_now(std::chrono::milliseconds time) { return steady_clock::now() + time; }

std::string node_name(int node, const std::string& address) {
  return "node " + std::to_string(node) + " at " + address;
}

SocketAddress checked_address(const ClusterConfig& config, const SocketAddress& address) {
  if (config.key.empty() && !address.is_loopback())
    throw StartupError("--dist-init-addr " + config.address + ": " + address.text() +
                       " is reached by others than this host, which needs --cluster-key-file");
  return address;
}

std::optional<SocketAddress> resolved(const ClusterConfig& config) {
  try {
    std::optional<SocketAddress> address = resolve(config.address);
    if (address) checked_address(config, *address);
    return address;
  } catch (const SocketError& error) {
    throw StartupError("--dist-init-addr " + std::string(error.what()));
  }
}

std::string text_of(const json::Value& value) {
  if (!value.is_string()) throw SocketError("sent what is no message");
  return value.get<std::string>();
}

std::string text_member(const json::Value& words, const char* name) {
  const auto it = words.find(name);
  if (it == words.end()) throw SocketError("sent what is no message");
  return text_of(*it);
}

std::string bytes_of_text(const json::Value& text) {
  std::optional<std::string> bytes;
  if (text.is_string()) bytes = decode_base64(text.get_ref<const std::string&>());
  if (!bytes) throw SocketError("sent what is no message");
  return std::move(*bytes);
}

std::string bytes_member(const json::Value& words, const char* name) {
  return bytes_of_text(text_member(words, name));
}

std::string joined_text(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

// The facts of a configuration, and what belongs to the meeting itself.
json::Value all_facts(const ClusterConfig& config) {
  json::Value facts = *config.facts;
  facts["nnodes"] = config.num_nodes;
  return facts;
}

// Node 0's side.
class Host {
 public:
  explicit Host(const ClusterConfig& config) : config_(config), facts_(all_facts(config)) {
    meeting_.doors.resize(static_cast<size_t>(config.num_nodes));
    meeting_.addresses.resize(meeting_.doors.size());
    meeting_.names.resize(meeting_.doors.size());
    meeting_.names[0] = node_name(0, config.address);
  }

  Meeting run(const MakeTransport& make_transport) {
    wait_for_all();
    meeting_.network_interface = interface_of(any_door().socket().local());
    meeting_.transport = make_transport(meeting_.network_interface);
    meeting_.addresses[0] = meeting_.transport->address();
    const std::string nonce = random_bytes(32);
    meeting_.session = derived_key(config_.key, nonce);
    json::Value words = {{"session", encode_base64(nonce)},
                         {"names", meeting_.names},
                         {"addresses", json::Value::array()}};
    for (const std::string& address : meeting_.addresses)
      words["addresses"].push_back(encode_base64(address));
    tell_all(words);
    return std::move(meeting_);
  }

 private:
  void wait_for_all() {
    const std::optional<SocketAddress> address = resolved(config_);
    if (!address)
      throw StartupError("--dist-init-addr " + config_.address + ": the host has no known address");
    Socket listener;
    try {
      listener = Socket::listen(*address);
    } catch (const SocketError& error) {
      throw StartupError("--dist-init-addr " + config_.address + ": " + error.what());
    }
    const Deadline end = from_now(config_.start_limit);
    Deadline next_line = steady_clock::now();
    for (std::string missing = missing_nodes(); !missing.empty(); missing = missing_nodes()) {
      if (steady_clock::now() >= end)
        throw StartupError("no word from " + missing + " within the start's time");
      if (steady_clock::now() >= next_line) {
        FATHOM_LOG(kInfo, "nodes", "waiting", {{"for", missing}, {"at", address->text()}});
        next_line = from_now(kLogInterval);
      }
      if (std::optional<Socket> guest = listener.accept(std::min(end, next_line)))
        receive(std::move(*guest));
    }
  }

  std::string missing_nodes() const {
    std::string missing;
    for (size_t node = 1; node < meeting_.doors.size(); ++node)
      if (!meeting_.doors[node])
        missing += (missing.empty() ? "node " : ", node ") + std::to_string(node);
    return missing;
  }

  const Door& any_door() const { return *meeting_.doors.back(); }

  // A guest who is none is none of the service's business; one of us who differs ends the start.
  void receive(Socket guest) {
    const std::string from = guest.peer();
    try {
      Door door = Door::admit(std::move(guest), config_.key, from_now(kProofTime));
      const json::Value words = door.hear(from_now(kWordsTime));
      check_facts(door, words, from);
      take_in(std::move(door), words, from);
    } catch (const SocketError& error) {
      FATHOM_LOG(kWarning, "nodes", "a connection was refused",
                 {{"from", from}, {"why", error.what()}});
    }
  }

  void check_facts(Door& door, const json::Value& words, const std::string& from) {
    const auto facts = words.find("facts");
    if (facts == words.end()) throw SocketError("sent what is no message");
    const std::string name = "node " + std::to_string(door.node_rank());
    const std::vector<std::string> found = differences(facts_, *facts, name);
    if (found.empty()) return;
    const std::string why =
        node_name(door.node_rank(), from) + " does not agree with node 0: " + joined_text(found);
    tell(door, {{"refused", why}});
    tell_all({{"refused", why}});
    throw StartupError(why);
  }

  void take_in(Door door, const json::Value& words, const std::string& from) {
    const int node = door.node_rank();
    if (node < 1 || node >= config_.num_nodes)
      throw SocketError("says it is node " + std::to_string(node));
    const auto place = static_cast<size_t>(node);
    const bool is_taken = meeting_.doors[place] && !meeting_.doors[place]->socket().is_closed();
    if (is_taken) {
      const std::string why =
          "node " + std::to_string(node) + " is there already: " + meeting_.names[place];
      tell(door, {{"refused", why}});
      throw SocketError("says it is one that is there: " + why);
    }
    meeting_.addresses[place] = bytes_member(words, "ucx");
    meeting_.names[place] = node_name(node, from);
    meeting_.doors[place] = std::make_unique<Door>(std::move(door));
    FATHOM_LOG(kInfo, "nodes", "a node has come", {{"node", meeting_.names[place]}});
  }

  // Who does not hear it ends by itself when the connection closes.
  static void tell(Door& door, const json::Value& words) {
    try {
      door.tell(words, from_now(kWordsTime));
    } catch (const SocketError&) {
    }
  }

  void tell_all(const json::Value& words) {
    for (const auto& door : meeting_.doors)
      if (door) tell(*door, words);
  }

  const ClusterConfig& config_;
  const json::Value facts_;
  Meeting meeting_;
};

Socket connected(const ClusterConfig& config, Deadline end) {
  Deadline next_line = from_now(kLogInterval);
  while (steady_clock::now() < end) {
    if (const std::optional<SocketAddress> address = resolved(config))
      if (std::optional<Socket> socket =
              Socket::connect(*address, std::min(end, from_now(kWordsTime))))
        return std::move(*socket);
    if (steady_clock::now() >= next_line) {
      FATHOM_LOG(kInfo, "nodes", "waiting", {{"for", node_name(0, config.address)}});
      next_line = from_now(kLogInterval);
    }
    std::this_thread::sleep_for(kRetryInterval);
  }
  throw StartupError(node_name(0, config.address) + " did not answer within the start's time");
}

void read_plan(const json::Value& words, const ClusterConfig& config, Meeting& meeting) {
  const auto addresses = words.find("addresses"), names = words.find("names");
  const auto num_nodes = static_cast<size_t>(config.num_nodes);
  const auto is_list = [&](auto it) {
    return it != words.end() && it->is_array() && it->size() == num_nodes;
  };
  if (!is_list(addresses) || !is_list(names)) throw SocketError("sent what is no message");
  for (const json::Value& name : *names) meeting.names.push_back(text_of(name));
  for (const json::Value& address : *addresses) meeting.addresses.push_back(bytes_of_text(address));
  meeting.names[0] = node_name(0, config.address);
  meeting.session = derived_key(config.key, bytes_member(words, "session"));
}

Meeting visit(const ClusterConfig& config, const MakeTransport& make_transport) {
  const Deadline end = from_now(config.start_limit);
  Meeting meeting;
  try {
    Socket socket = connected(config, end);
    // Node 0 admits one after the other, so how long it takes is not this node's fault, nor node 0's.
    meeting.doors.push_back(
        std::make_unique<Door>(Door::enter(std::move(socket), config.key, config.node_rank, end)));
    Door& door = *meeting.doors.front();
    meeting.network_interface = interface_of(door.socket().local());
    meeting.transport = make_transport(meeting.network_interface);
    door.tell({{"facts", all_facts(config)}, {"ucx", encode_base64(meeting.transport->address())}},
              from_now(kWordsTime));
    const json::Value words = door.hear(end);
    if (words.contains("refused")) throw StartupError(text_member(words, "refused"));
    read_plan(words, config, meeting);
  } catch (const SocketError& error) {
    throw StartupError(node_name(0, config.address) + " " + error.what());
  }
  return meeting;
}

}  // namespace

Meeting meet(const ClusterConfig& config, const MakeTransport& make_transport) {
  return config.node_rank == 0 ? Host(config).run(make_transport) : visit(config, make_transport);
}

}  // namespace fathom::nodes
