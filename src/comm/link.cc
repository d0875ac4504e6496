#include "comm/link.h"

namespace fathom::comm {

std::vector<std::byte> Link::receive(uint32_t channel) {
  constexpr auto kLong = std::chrono::hours(1);
  while (true)
    if (std::optional<std::vector<std::byte>> message = receive_for(channel, kLong))
      return std::move(*message);
}

}  // namespace fathom::comm
