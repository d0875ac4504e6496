#pragma once
// UcxLink: the messages between this node and one other. Made by Cluster, whose thread moves them.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "comm/link.h"
#include "nodes/inbox.h"

namespace fathom::nodes {

// Numbers of channels that are nobody's: that a node lives, and why it gives the link up.
inline constexpr uint32_t kHeartbeatChannel = 0xffffffff, kFarewellChannel = 0xfffffffe;

class UcxLink : public comm::Link {
 public:
  using Message = std::shared_ptr<const std::vector<std::byte>>;
  using Outgoing = std::vector<std::pair<uint32_t, Message>>;  // channel, message

  // `wake` is called by any thread when there is something to send.
  UcxLink(std::string peer_name, std::function<void()> wake);

  void send(uint32_t channel, std::vector<std::byte> message) override;
  std::optional<std::vector<std::byte>> receive_for(uint32_t channel,
                                                    std::chrono::milliseconds patience) override {
    return inbox_.take(channel, patience);
  }
  std::string failure() const override { return inbox_.failure(); }
  void fail(const std::string& why) override;
  // As fail(), where there is nobody to tell.
  bool lose(const std::string& why);
  // At this node's own end.
  void end() { inbox_.fail("this node has ended"); }
  // Tells the other end that this one leaves, once, behind what was sent before.
  void say_farewell(const std::string& why);
  bool has_heard_farewell() const { return has_heard_farewell_; }

  const std::string& peer_name() const { return peer_name_; }  // "node 1 at 10.0.0.2:40512"
  void deliver(uint32_t channel, std::vector<std::byte> message);
  // What was sent since, in order.
  Outgoing take_outgoing();

 private:
  void put_outgoing(uint32_t channel, std::vector<std::byte> message);

  const std::string peer_name_;
  const std::function<void()> wake_;
  Inbox inbox_;
  Mutex mutex_;
  Outgoing outgoing_ FATHOM_GUARDED_BY(mutex_);
  std::atomic<bool> has_said_farewell_ = false, has_heard_farewell_ = false;
};

}  // namespace fathom::nodes
