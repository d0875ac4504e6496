#include "nodes/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace fathom::nodes {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kFrameMagic = 0x4d485446;  // "FTHM"
constexpr size_t kTagOffset = sizeof(FrameHeader) - sizeof(FrameHeader::tag);
// Frames that came before one that is missing. More are refused, and the sender is silent then.
constexpr size_t kMaxHeldFrames = 256;

void put_tag(const Hmac::Digest& digest, FrameHeader& header) {
  std::memcpy(header.tag.data(), digest.data(), header.tag.size());
}

bool is_consistent(const FrameHeader& header, size_t payload_bytes) {
  return header.payload_bytes == payload_bytes && payload_bytes <= kMaxFrameBytes &&
         header.message_bytes <= kMaxMessageBytes && header.offset <= header.message_bytes &&
         payload_bytes <= header.message_bytes - header.offset;
}

}  // namespace

int claimed_source(Bytes bytes) {
  FrameHeader header;
  if (bytes.size() != sizeof(header)) return -1;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header.magic == kFrameMagic && header.version == kFrameVersion ? header.source : -1;
}

FrameWriter::FrameWriter(std::string_view key, int source)
    : hmac_(key), source_(static_cast<uint16_t>(source)) {}

FrameHeader FrameWriter::next(uint32_t channel, Bytes message, size_t offset,
                              size_t payload_bytes) {
  FrameHeader header{.magic = kFrameMagic,
                     .version = kFrameVersion,
                     .source = source_,
                     .channel = channel,
                     .payload_bytes = static_cast<uint32_t>(payload_bytes),
                     .sequence = sequence_++,
                     .message_bytes = message.size(),
                     .offset = offset};
  const Bytes head(reinterpret_cast<const std::byte*>(&header), kTagOffset);
  put_tag(hmac_.of({head, message.subspan(offset, payload_bytes)}), header);
  return header;
}

void FrameWriter::split(uint32_t channel, Bytes message,
                        const std::function<void(const FrameHeader&, Bytes)>& send) {
  FATHOM_CHECK(message.size() <= kMaxMessageBytes, message.size());
  size_t offset = 0;
  do {
    const size_t bytes = std::min(message.size() - offset, kMaxFrameBytes);
    send(next(channel, message, offset, bytes), message.subspan(offset, bytes));
    offset += bytes;
  } while (offset < message.size());
}

FrameReader::FrameReader(std::string_view key, int source, Deliver deliver)
    : hmac_(key), source_(static_cast<uint16_t>(source)), deliver_(std::move(deliver)) {}

bool FrameReader::is_ours(const FrameHeader& header, Bytes header_bytes, Bytes payload) {
  if (header.source != source_ || !is_consistent(header, payload.size())) return false;
  const Hmac::Digest digest = hmac_.of({header_bytes.first(kTagOffset), payload});
  return same(Bytes(digest).first(header.tag.size()), header.tag);
}

FrameReader::Taken FrameReader::take(Bytes header_bytes, Bytes payload) {
  if (claimed_source(header_bytes) != source_) return Taken::kRefused;
  FrameHeader header;
  std::memcpy(&header, header_bytes.data(), sizeof(header));
  if (!is_ours(header, header_bytes, payload) || header.sequence < next_) return Taken::kRefused;
  if (header.sequence != next_) {
    if (held_.size() >= kMaxHeldFrames) return Taken::kRefused;
    const bool is_new =
        held_.try_emplace(header.sequence, Held{header, {payload.begin(), payload.end()}}).second;
    return is_new ? Taken::kHeld : Taken::kRefused;
  }
  append(header, payload);
  for (auto it = held_.begin(); it != held_.end() && it->first == next_; it = held_.erase(it))
    append(it->second.header, it->second.payload);
  return Taken::kInOrder;
}

// Whoever holds the key writes offsets in order (FrameWriter::split).
void FrameReader::append(const FrameHeader& header, Bytes payload) {
  ++next_;
  std::vector<std::byte>& message = partial_[header.channel];
  if (message.empty()) message.reserve(header.message_bytes);
  message.insert(message.end(), payload.begin(), payload.end());
  if (message.size() < header.message_bytes) return;
  std::vector<std::byte> whole = std::move(message);
  partial_.erase(header.channel);
  deliver_(header.channel, std::move(whole));
}

}  // namespace fathom::nodes
