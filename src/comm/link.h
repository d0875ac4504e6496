#pragma once
// Link: messages between this process and the process of one other node.
//
//   link.send(Link::kPlans, encode(batch));              // returns at once
//   std::vector<std::byte> result = link.receive(Link::kResults);
//
// A message comes whole, once, and in the order of those sent on its channel; channels do not wait for one another.
// Any thread may send, one thread at a time receives of a channel. A link that has failed (the other process ended, was
// silent for too long, or sent what is no message) stays so: send() drops, and a receiver gets what had come before,
// then LinkFailure.
// Implementations: nodes/ucx_link.h between processes, LinkPair in one.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace fathom::comm {

// what(): which node, and what happened to it, in a sentence.
class LinkFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Link {
 public:
  // Channels of a node's steps; collectives of groups have numbers from kFirstGroup on, one each.
  enum Channel : uint32_t { kPlans, kMasks, kResults, kFirstGroup };

  virtual ~Link() = default;
  virtual void send(uint32_t channel, std::vector<std::byte> message) = 0;
  // The oldest message of the channel that nobody has got yet; blocks for it, but not for longer than patience, after
  // which there is none. Throws LinkFailure at once when the link has failed and nothing is left.
  virtual std::optional<std::vector<std::byte>> receive_for(uint32_t channel,
                                                            std::chrono::milliseconds patience) = 0;
  // Blocks until there is one. Throws LinkFailure.
  std::vector<std::byte> receive(uint32_t channel);
  // Why nothing comes any more; empty = the link lives. Any thread.
  virtual std::string failure() const = 0;
  // Gives the link up: both ends fail, and the other one is told `why`, where it still can be. The first reason counts.
  // Any thread.
  virtual void fail(const std::string& why) = 0;
};

}  // namespace fathom::comm
