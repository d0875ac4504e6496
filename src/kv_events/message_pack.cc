#include "kv_events/message_pack.h"

#include <bit>

namespace fathom::kv_events {

void MessagePack::head(uint8_t code, uint64_t value, int num_bytes) {
  bytes_ += static_cast<char>(code);
  for (int byte = num_bytes - 1; byte >= 0; --byte)
    bytes_ += static_cast<char>(value >> (8 * byte));
}

void MessagePack::array(size_t size) {
  if (size < 16) return head(static_cast<uint8_t>(0x90 | size), 0, 0);
  if (size <= UINT16_MAX) return head(0xdc, size, 2);
  head(0xdd, size, 4);
}

void MessagePack::unsigned_integer(uint64_t value) {
  if (value < 128) return head(static_cast<uint8_t>(value), 0, 0);
  if (value <= UINT8_MAX) return head(0xcc, value, 1);
  if (value <= UINT16_MAX) return head(0xcd, value, 2);
  if (value <= UINT32_MAX) return head(0xce, value, 4);
  head(0xcf, value, 8);
}

void MessagePack::real(double value) { head(0xcb, std::bit_cast<uint64_t>(value), 8); }

void MessagePack::text(std::string_view value) {
  if (value.size() < 32) {
    head(static_cast<uint8_t>(0xa0 | value.size()), 0, 0);
  } else if (value.size() <= UINT8_MAX) {
    head(0xd9, value.size(), 1);
  } else {
    head(0xda, value.size(), 2);
  }
  bytes_ += value;
}

}  // namespace fathom::kv_events
