#pragma once
// Inbox: messages that came from one node, by channel, until somebody takes them.
//
//   inbox.put(channel, std::move(message));                      // the thread that receives
//   auto message = inbox.take(channel, patience);                // whoever waits; throws comm::LinkFailure
//   inbox.fail("node 1 has ended");
//
// Thread-safe. After fail() nothing is put, and what came before may still be taken.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace fathom::nodes {

class Inbox {
 public:
  void put(uint32_t channel, std::vector<std::byte> message);
  // Nothing: none has come by then.
  std::optional<std::vector<std::byte>> take(uint32_t channel, std::chrono::milliseconds patience);
  // Whether this is the first reason.
  bool fail(const std::string& why);
  std::string failure() const;

 private:
  struct Channel {
    std::deque<std::vector<std::byte>> messages;
    CondVar changed;
  };

  mutable Mutex mutex_;
  std::map<uint32_t, Channel> channels_
      FATHOM_GUARDED_BY(mutex_);  // nodes of a map stay where they are
  std::string failure_ FATHOM_GUARDED_BY(mutex_);
};

}  // namespace fathom::nodes
