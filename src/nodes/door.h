#pragma once
// Door: the connection on which a node and node 0 prove to one another that they have the cluster's key, and tell one
// another facts and addresses. It stays open while they live, so that the end of a process is known at once.
//
//   Door door = Door::enter(std::move(connection), key, node_rank, deadline);     // node 1, 2, ...
//   Door door = Door::admit(std::move(connection), key, deadline);                // node 0
//   door.tell(json, deadline);
//   json::Value heard = door.hear(deadline);
//
// The proof: each sends 32 random bytes, each answers with an HMAC over both and its role. What follows carries an HMAC
// under a key of this connection and this direction, and a number. Nothing is kept secret: facts and addresses may be
// read by whoever reads the network. One thread at a time. Throws SocketError: what the other side did, as the end of a
// sentence whose subject is its name.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "nodes/hmac.h"
#include "nodes/socket.h"

namespace fathom::nodes {

class Door {
 public:
  static Door enter(Socket socket, std::string_view key, int node_rank, Deadline deadline);
  static Door admit(Socket socket, std::string_view key, Deadline deadline);

  void tell(const json::Value& words, Deadline deadline);
  json::Value hear(Deadline deadline);

  // Of the node that entered; as it says, which the proof covers.
  int node_rank() const { return node_rank_; }
  const Socket& socket() const { return socket_; }

 private:
  Door(Socket socket, int node_rank, std::string_view mine, std::string_view theirs);

  Socket socket_;
  int node_rank_;
  Hmac mine_, theirs_;  // of what this side tells, and hears
  uint64_t num_told_ = 0, num_heard_ = 0;
};

}  // namespace fathom::nodes
