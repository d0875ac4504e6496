#pragma once
// ZmqSocket: a socket of ZeroMQ, whose library is opened when the first one is wanted.
//
//   ZmqContext context;                                     // throws StartupError where there is no ZeroMQ
//   ZmqSocket pub(context, ZmqSocket::Kind::kPub, {.hwm = 1000});
//   pub.open("tcp://*:5557", /*bind=*/true);                // throws StartupError: the endpoint and why
//   pub.send({topic, sequence, payload});                   // never waits
//
// Used by one thread at a time. The context outlives its sockets.

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv_events/zmq_library.h"

namespace fathom::kv_events {

class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();  // waits for what its sockets still send, a moment at most
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  const ZmqFunctions& library() const { return library_; }
  void* handle() const { return context_; }

 private:
  ZmqFunctions library_;
  void* context_;
};

class ZmqSocket {
 public:
  enum class Kind { kPub = 1, kRouter = 6 };  // ZeroMQ's numbers
  struct Limits {
    int hwm = 1000;  // messages that wait for a peer
  };

  ZmqSocket(ZmqContext& context, Kind kind, const Limits& limits);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  void open(const std::string& endpoint, bool bind);
  // One message of several parts. False: it went nowhere.
  bool send(std::initializer_list<std::string_view> parts);
  // The parts of a message that is there; empty = none is. Parts of more than kMaxPartBytes are cut.
  std::vector<std::string> receive();
  void* handle() const { return socket_; }

  static constexpr size_t kMaxPartBytes = 256;

 private:
  void set(int option, int value);

  const ZmqFunctions& library_;
  void* socket_;
};

// Waits until `fd` or one of the sockets can be read.
void wait_for_input(const ZmqContext& context, int fd, std::span<ZmqSocket* const> sockets);

}  // namespace fathom::kv_events
