#include "nodes/ucx_link.h"

#include <utility>

#include "base/log.h"
#include "nodes/hmac.h"

namespace fathom::nodes {

UcxLink::UcxLink(std::string peer_name, std::function<void()> wake)
    : peer_name_(std::move(peer_name)), wake_(std::move(wake)) {}

void UcxLink::send(uint32_t channel, std::vector<std::byte> message) {
  if (inbox_.failure().empty()) put_outgoing(channel, std::move(message));
}

void UcxLink::put_outgoing(uint32_t channel, std::vector<std::byte> message) {
  {
    const MutexLock lock(mutex_);
    outgoing_.emplace_back(channel,
                           std::make_shared<const std::vector<std::byte>>(std::move(message)));
  }
  wake_();
}

void UcxLink::fail(const std::string& why) {
  if (lose(why)) say_farewell(why);
}

void UcxLink::say_farewell(const std::string& why) {
  if (has_said_farewell_.exchange(true)) return;
  const Bytes text = bytes_of(why);
  put_outgoing(kFarewellChannel, {text.begin(), text.end()});
}

bool UcxLink::lose(const std::string& why) {
  if (!inbox_.fail(why)) return false;
  FATHOM_LOG(kWarning, "nodes", "link lost", {{"peer", peer_name_}, {"why", why}});
  return true;
}

void UcxLink::deliver(uint32_t channel, std::vector<std::byte> message) {
  if (channel == kHeartbeatChannel) return;
  if (channel != kFarewellChannel) return inbox_.put(channel, std::move(message));
  const std::string why(reinterpret_cast<const char*>(message.data()), message.size());
  lose(has_said_farewell_ ? "this node has left" : peer_name_ + ": " + why);
  has_heard_farewell_ = true;
  say_farewell("");  // the answer that the other end waits for
}

UcxLink::Outgoing UcxLink::take_outgoing() {
  const MutexLock lock(mutex_);
  return std::exchange(outgoing_, {});
}

}  // namespace fathom::nodes
