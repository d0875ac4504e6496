#pragma once
// UcxTransport: frames to and from other nodes through UCX: TCP or RDMA, as UCX_TLS and UCX_NET_DEVICES say, else TCP
// through one network interface.
//
//   UcxTransport transport({.network_interface = "lo", .arrived = ..., .broken = ...});
//   tell_others(transport.address());
//   transport.connect(1, address_of_node_1);
//   transport.send(1, header, payload, message);
//   while (transport.progress()) {}                    // calls arrived() and broken()
//   if (transport.arm()) poll(transport.descriptor()); // sleeps until there is something to do
//
// One thread at a time. Throws StartupError where UCX cannot be had or refuses; after that broken() tells of a peer
// that cannot be reached.

#include <functional>
#include <memory>
#include <string>

#include "nodes/frame.h"

namespace fathom::nodes {

class UcxTransport {
 public:
  struct Config {
    std::string network_interface;  // "lo", "eth0"
    // From anybody who reaches the port: nothing is proven yet. Neither may throw.
    std::function<void(Bytes header, Bytes payload)> arrived;
    std::function<void(int peer, const std::string& why)> broken;
  };
  using Message = std::shared_ptr<const std::vector<std::byte>>;

  explicit UcxTransport(Config config);
  // Waits at most a second for what was sent to leave.
  ~UcxTransport();
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  std::string address() const;
  void connect(int peer, const std::string& address);
  // `payload` lies in `message`, which is kept until it has left. To a peer that is broken: nothing.
  void send(int peer, const FrameHeader& header, Bytes payload, Message message);
  // Nothing is sent to it any more, and nothing waited for.
  void give_up(int peer);
  bool progress();
  bool arm();
  int descriptor() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::nodes
