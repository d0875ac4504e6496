#include <algorithm>
#include <utility>

#include "base/check.h"
#include "http/admission_internal.h"

namespace fathom::http {
namespace {

Admission::PeerKey key_of(const boost::asio::ip::address& peer) {
  using boost::asio::ip::make_address_v6;
  if (peer.is_v4()) return make_address_v6(boost::asio::ip::v4_mapped, peer.to_v4()).to_bytes();
  Admission::PeerKey key = peer.to_v6().to_bytes();
  if (!peer.to_v6().is_v4_mapped()) std::fill(key.begin() + 8, key.end(), uint8_t{0});
  return key;
}

}  // namespace

void WaitingConnections::add(const std::shared_ptr<Connection>& connection, Spot* spot) {
  const MutexLock lock(mutex_);
  if (spot->is_listed) {
    entries_.splice(entries_.end(), entries_, spot->at);
  } else {
    spot->at = entries_.insert(entries_.end(), {.connection = connection, .spot = spot});
    spot->is_listed = true;
  }
}

void WaitingConnections::remove(Spot* spot) {
  const MutexLock lock(mutex_);
  if (std::exchange(spot->is_listed, false)) entries_.erase(spot->at);
}

std::shared_ptr<Connection> WaitingConnections::take_oldest() {
  const MutexLock lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    std::shared_ptr<Connection> connection = entry->connection.lock();
    // It is being destroyed and takes itself out of the list.
    if (connection == nullptr) continue;
    entry->spot->is_listed = false;
    entries_.erase(entry);
    return connection;
  }
  return nullptr;
}

std::variant<Admission::Place, TransportError> Admission::enter(
    const boost::asio::ip::address& peer) {
  const MutexLock lock(mutex_);
  Place place;
  if (limits_.max_connections_per_address > 0) {
    place.peer = key_of(peer);
    const auto count = num_by_peer_.find(*place.peer);
    if (count != num_by_peer_.end() && count->second >= limits_.max_connections_per_address)
      return TransportError::kTooManyFromAddress;
  }
  if (num_connections_ >= limits_.max_connections) return TransportError::kTooManyConnections;
  ++num_connections_;
  if (place.peer) ++num_by_peer_[*place.peer];
  return place;
}

std::optional<Admission::Place> Admission::enter_reserve(TransportError refusal) {
  const MutexLock lock(mutex_);
  if (num_in_reserve_ >= limits_.num_probe_connections) return std::nullopt;
  ++num_in_reserve_;
  return Place{.is_reserve = true, .refusal = refusal};
}

void Admission::leave(const Place& place) {
  const MutexLock lock(mutex_);
  int& count = place.is_reserve ? num_in_reserve_ : num_connections_;
  --count;
  FATHOM_CHECK(count >= 0, "connections " << count << " in_reserve " << place.is_reserve);
  if (!place.peer) return;
  const auto of_peer = num_by_peer_.find(*place.peer);
  if (--of_peer->second == 0) num_by_peer_.erase(of_peer);
}

}  // namespace fathom::http
