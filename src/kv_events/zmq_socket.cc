#include "kv_events/zmq_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/startup_error.h"

namespace fathom::kv_events {
namespace {

// Options and flags of zmq.h.
constexpr int kReceiveMore = 13, kLinger = 17, kMaxMessageSize = 22, kSendHwm = 23, kIpv6 = 42;
constexpr int kDontWait = 1, kSendMore = 2;
constexpr short kPollIn = 1;

// How long a closed socket may still send.
constexpr int kLingerMs = 200;

ZmqFunctions open_or_throw() {
  Result<ZmqFunctions> library = open_zmq();
  if (!library)
    throw StartupError("--kv-events-config: " + library.error().message +
                       "; apt-get install libzmq5, or your system's package of it");
  return *library;
}

}  // namespace

ZmqContext::ZmqContext() : library_(open_or_throw()), context_(library_.new_context()) {
  FATHOM_CHECK(context_ != nullptr,
               "zmq_ctx_new: " << library_.error_words(library_.error_number()));
}

ZmqContext::~ZmqContext() { library_.end_context(context_); }

ZmqSocket::ZmqSocket(ZmqContext& context, Kind kind, const Limits& limits)
    : library_(context.library()),
      socket_(library_.new_socket(context.handle(), static_cast<int>(kind))) {
  FATHOM_CHECK(socket_ != nullptr, "zmq_socket: " << library_.error_words(library_.error_number()));
  set(kSendHwm, limits.hwm);
  set(kLinger, kLingerMs);
  // Of what a peer sends, which is a number of eight bytes.
  const int64_t max_bytes = kMaxPartBytes;
  library_.set_option(socket_, kMaxMessageSize, &max_bytes, sizeof max_bytes);
}

ZmqSocket::~ZmqSocket() { library_.close(socket_); }

void ZmqSocket::set(int option, int value) {
  const int status = library_.set_option(socket_, option, &value, sizeof value);
  FATHOM_CHECK(status == 0, "zmq_setsockopt " << option << " to " << value << ": "
                                              << library_.error_words(library_.error_number()));
}

void ZmqSocket::open(const std::string& endpoint, bool bind) {
  if (endpoint.find('[') != endpoint.npos || endpoint.find("::") != endpoint.npos) set(kIpv6, 1);
  const auto open = bind ? library_.bind : library_.connect;
  if (open(socket_, endpoint.c_str()) == 0) return;
  throw StartupError("--kv-events-config: cannot " +
                     std::string(bind ? "listen on " : "connect to ") + endpoint + ": " +
                     library_.error_words(library_.error_number()));
}

bool ZmqSocket::send(std::initializer_list<std::string_view> parts) {
  size_t left = parts.size();
  for (const std::string_view part : parts) {
    const int flags = kDontWait | (--left > 0 ? kSendMore : 0);
    if (library_.send(socket_, part.data(), part.size(), flags) < 0) return false;
  }
  return true;
}

std::vector<std::string> ZmqSocket::receive() {
  std::vector<std::string> parts;
  for (int more = 1; more != 0;) {
    std::array<char, kMaxPartBytes> bytes;
    const int size = library_.receive(socket_, bytes.data(), bytes.size(), kDontWait);
    if (size < 0) return {};
    parts.emplace_back(bytes.data(), std::min(static_cast<size_t>(size), bytes.size()));
    size_t more_bytes = sizeof more;
    if (library_.get_option(socket_, kReceiveMore, &more, &more_bytes) != 0) return {};
  }
  return parts;
}

void wait_for_input(const ZmqContext& context, int fd, std::span<ZmqSocket* const> sockets) {
  std::vector<ZmqPollItem> items{{.socket = nullptr, .fd = fd, .events = kPollIn, .revents = 0}};
  for (ZmqSocket* const socket : sockets)
    items.push_back({.socket = socket->handle(), .fd = 0, .events = kPollIn, .revents = 0});
  const ZmqFunctions& library = context.library();
  const int status = library.poll(items.data(), static_cast<int>(items.size()), -1);
  FATHOM_CHECK(status >= 0 || library.error_number() == EINTR,
               "zmq_poll: " << library.error_words(library.error_number()));
}

}  // namespace fathom::kv_events
