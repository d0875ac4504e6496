#pragma once
// Frames: what travels of messages between nodes. A message goes as one or several frames of at most kMaxFrameBytes;
// the frames of a direction (from one node to one other) are numbered from 0 and carry an HMAC whose key only that
// direction has, so a frame that was changed, repeated, left out or sent to somebody else is noticed.
//
//   FrameWriter writer(key, 0);
//   writer.split(channel, message, [&](const FrameHeader& header, Bytes payload) { ... });
//   FrameReader reader(key, 0, [&](uint32_t channel, std::vector<std::byte> message) { ... });
//   reader.take(header_bytes, payload);
//
// On the wire: the header as it lies in memory (little-endian), then the payload. Not synchronised.

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "nodes/hmac.h"

namespace fathom::nodes {

inline constexpr uint16_t kFrameVersion = 1;
inline constexpr size_t kMaxFrameBytes = size_t{1} << 20;
inline constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 31;

struct FrameHeader {
  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t source = 0;  // node_rank of the sender
  uint32_t channel = 0;
  uint32_t payload_bytes = 0;
  uint64_t sequence = 0;
  uint64_t message_bytes = 0;  // of the whole message
  uint64_t offset = 0;         // of this frame's payload in it
  std::array<std::byte, 16> tag = {};
};
static_assert(sizeof(FrameHeader) == 56);

// The sender named in what may be a header; -1 for what cannot be one. Proves nothing.
int claimed_source(Bytes header);

class FrameWriter {
 public:
  FrameWriter(std::string_view key, int source);
  // The header of the next frame.
  FrameHeader next(uint32_t channel, Bytes message, size_t offset, size_t payload_bytes);
  // Calls send(header, payload) for each frame of the message, which has one even where it is empty.
  void split(uint32_t channel, Bytes message,
             const std::function<void(const FrameHeader& header, Bytes payload)>& send);

 private:
  Hmac hmac_;
  uint16_t source_;
  uint64_t sequence_ = 0;
};

class FrameReader {
 public:
  using Deliver = std::function<void(uint32_t channel, std::vector<std::byte> message)>;
  enum class Taken {
    kRefused,  // not of this direction, changed, or repeated: as if it had not come
    kHeld,     // a frame before it is missing
    kInOrder,
  };

  FrameReader(std::string_view key, int source, Deliver deliver);
  Taken take(Bytes header, Bytes payload);

 private:
  struct Held {
    FrameHeader header;
    std::vector<std::byte> payload;
  };

  bool is_ours(const FrameHeader& header, Bytes header_bytes, Bytes payload);
  void append(const FrameHeader& header, Bytes payload);

  Hmac hmac_;
  uint16_t source_;
  Deliver deliver_;
  uint64_t next_ = 0;
  std::map<uint64_t, Held> held_;                       // by sequence
  std::map<uint32_t, std::vector<std::byte>> partial_;  // by channel
};

}  // namespace fathom::nodes
