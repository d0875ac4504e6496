#pragma once
// Admission: which connections there may be, and which of them give way. Within the limits everybody gets a place. At
// the limit the connection that has waited longest for a request gives way to the new one; when all are busy, the new
// one gets a place of a small reserve, where only probes are answered. Only .cc files of this module include it.
//
//   Admission admission(limits);
//   std::variant<Place, TransportError> entered = admission.enter(peer);
//   std::shared_ptr<Connection> oldest = admission.waiting(is_reserve).take_oldest();
//   // ... post give_way() to its thread ...
//   admission.leave(place);
//
// Thread-safe. Owned by what all threads of a server share; outlives the connections.

#include <boost/asio/ip/address.hpp>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <variant>

#include "base/mutex.h"
#include "http/limits.h"
#include "http/transport_error.h"

namespace fathom::http {

class Connection;

// Connections that wait for their clients, the longest wait first.
class WaitingConnections {
 public:
  // A connection's place in the list, a member of the connection. Read and written by the list alone.
  struct Spot;
  struct Entry {
    std::weak_ptr<Connection> connection;
    Spot* spot = nullptr;
  };
  struct Spot {
    std::list<Entry>::iterator at;
    bool is_listed = false;
  };

  // Puts it at the end of the list, also when it is in the list already.
  void add(const std::shared_ptr<Connection>& connection, Spot* spot);
  void remove(Spot* spot);
  // Taken out of the list; null when nobody waits.
  std::shared_ptr<Connection> take_oldest();

 private:
  Mutex mutex_;
  std::list<Entry> entries_ FATHOM_GUARDED_BY(mutex_);
};

class Admission {
 public:
  // An IPv4 address mapped into IPv6, or the /64 network of an IPv6 address: who has one address of it has them all.
  using PeerKey = boost::asio::ip::address_v6::bytes_type;

  // What a connection holds from enter() to leave().
  struct Place {
    bool is_reserve = false;
    // In the reserve: the answer to requests that are no probes.
    TransportError refusal = TransportError::kTooManyConnections;
    // Whose connections it counts among; none: connections are not counted by address.
    std::optional<PeerKey> peer = {};
  };

  explicit Admission(const Limits& limits) : limits_(limits) {}
  // A place within the limits, or the error that says why there is none.
  std::variant<Place, TransportError> enter(const boost::asio::ip::address& peer);
  std::optional<Place> enter_reserve(TransportError refusal);
  void leave(const Place& place);
  WaitingConnections& waiting(bool is_reserve) { return is_reserve ? in_reserve_ : idle_; }

 private:
  Limits limits_;
  Mutex mutex_;
  int num_connections_ FATHOM_GUARDED_BY(mutex_) = 0, num_in_reserve_ FATHOM_GUARDED_BY(mutex_) = 0;
  std::map<PeerKey, int> num_by_peer_
      FATHOM_GUARDED_BY(mutex_);  // empty without a limit for addresses
  // idle: between requests, or done and not closed yet. in_reserve: until the head of the request is there.
  WaitingConnections idle_, in_reserve_;
};

}  // namespace fathom::http
