#include "nodes/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace fathom::nodes {
namespace {

using Message = std::vector<std::byte>;

Message random_message(std::mt19937_64& rng, size_t bytes) {
  Message message(bytes);
  for (std::byte& byte : message) byte = static_cast<std::byte>(rng() & 0xff);
  return message;
}

struct SentFrame {
  FrameHeader header;
  Message payload;
};

std::vector<SentFrame> frames_of(FrameWriter& writer, uint32_t channel, const Message& message) {
  std::vector<SentFrame> frames;
  writer.split(channel, message, [&](const FrameHeader& header, Bytes payload) {
    frames.push_back({header, {payload.begin(), payload.end()}});
  });
  return frames;
}

Bytes header_bytes(const SentFrame& frame) {
  return {reinterpret_cast<const std::byte*>(&frame.header), sizeof(FrameHeader)};
}

// What a reader of node 1's frames got.
struct Reading {
  explicit Reading(const std::string& key = "key of 1 to 0", int source = 1)
      : reader(key, source, [this](uint32_t channel, Message message) {
          got.emplace_back(channel, std::move(message));
        }) {}

  FrameReader::Taken take(const SentFrame& frame) {
    return reader.take(header_bytes(frame), frame.payload);
  }

  std::vector<std::pair<uint32_t, Message>> got;
  FrameReader reader;
};

TEST(Frames, bring_messages_of_any_size_whole) {
  std::mt19937_64 rng(1);
  FrameWriter writer("key of 1 to 0", 1);
  Reading reading;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, kMaxFrameBytes, kMaxFrameBytes + 1,
                             3 * kMaxFrameBytes - 5}) {
    const Message message = random_message(rng, bytes);
    const std::vector<SentFrame> frames = frames_of(writer, 7, message);
    EXPECT_EQ(frames.size(), std::max<size_t>(1, (bytes + kMaxFrameBytes - 1) / kMaxFrameBytes));
    for (const SentFrame& frame : frames)
      EXPECT_EQ(reading.take(frame), FrameReader::Taken::kInOrder);
    ASSERT_FALSE(reading.got.empty());
    EXPECT_EQ(reading.got.back().first, 7u);
    EXPECT_EQ(reading.got.back().second, message);
  }
  EXPECT_EQ(reading.got.size(), 6u);
}

TEST(Frames, are_put_in_order_where_one_overtook_another) {
  FrameWriter writer("key of 1 to 0", 1);
  Reading reading;
  std::vector<SentFrame> frames;
  for (uint32_t channel = 0; channel < 4; ++channel)
    frames.push_back(frames_of(writer, channel, {std::byte{1}, std::byte{2}}).front());
  EXPECT_EQ(reading.take(frames[2]), FrameReader::Taken::kHeld);
  EXPECT_EQ(reading.take(frames[1]), FrameReader::Taken::kHeld);
  EXPECT_TRUE(reading.got.empty());
  EXPECT_EQ(reading.take(frames[0]), FrameReader::Taken::kInOrder);
  EXPECT_EQ(reading.take(frames[3]), FrameReader::Taken::kInOrder);
  ASSERT_EQ(reading.got.size(), 4u);
  for (uint32_t channel = 0; channel < 4; ++channel) EXPECT_EQ(reading.got[channel].first, channel);
}

TEST(Frames, of_two_channels_may_alternate) {
  std::mt19937_64 rng(2);
  FrameWriter writer("key of 1 to 0", 1);
  const Message long_message = random_message(rng, 2 * kMaxFrameBytes), short_message(3);
  Reading reading;
  const FrameHeader first = writer.next(1, long_message, 0, kMaxFrameBytes);
  const FrameHeader between = writer.next(2, short_message, 0, 3);
  const FrameHeader second = writer.next(1, long_message, kMaxFrameBytes, kMaxFrameBytes);
  const auto part = [&](size_t begin) {
    return Message(long_message.begin() + static_cast<std::ptrdiff_t>(begin),
                   long_message.begin() + static_cast<std::ptrdiff_t>(begin + kMaxFrameBytes));
  };
  reading.take({first, part(0)});
  reading.take({between, short_message});
  reading.take({second, part(kMaxFrameBytes)});
  ASSERT_EQ(reading.got.size(), 2u);
  EXPECT_EQ(reading.got[0].second, short_message);
  EXPECT_EQ(reading.got[1].second, long_message);
}

TEST(Frames, are_refused_twice_and_by_whom_they_are_not_for) {
  FrameWriter writer("key of 1 to 0", 1);
  const SentFrame frame = frames_of(writer, 1, Message(5)).front();
  Reading reading;
  EXPECT_EQ(reading.take(frame), FrameReader::Taken::kInOrder);
  EXPECT_EQ(reading.take(frame), FrameReader::Taken::kRefused);
  Reading other_key("key of 2 to 0"), other_source("key of 1 to 0", 2);
  EXPECT_EQ(other_key.take(frame), FrameReader::Taken::kRefused);
  EXPECT_EQ(other_source.take(frame), FrameReader::Taken::kRefused);
  EXPECT_EQ(reading.got.size(), 1u);
}

// Changes one to four bytes, or cuts, or writes anew.
SentFrame changed(std::mt19937_64& rng, SentFrame frame, Message& header) {
  header.resize(sizeof(FrameHeader));
  std::memcpy(header.data(), &frame.header, sizeof(FrameHeader));
  const auto below = [&](size_t bound) { return static_cast<size_t>(rng() % bound); };
  switch (below(5)) {
    case 0:
      header.resize(below(sizeof(FrameHeader)));
      break;
    case 1:
      frame.payload.resize(below(frame.payload.size()));
      break;
    case 2:
      frame.payload.resize(frame.payload.size() + 1 + below(100));
      break;
    case 3:
      header = random_message(rng, sizeof(FrameHeader));
      break;
    default:
      for (size_t i = 0, count = 1 + below(4); i < count; ++i) {
        Message& target = below(2) == 0 ? header : frame.payload;
        target[below(target.size())] ^= static_cast<std::byte>(1 + below(255));
      }
  }
  return frame;
}

TEST(Frames, that_were_changed_have_no_effect) {
  std::mt19937_64 rng(3);
  FrameWriter writer("key of 1 to 0", 1);
  Reading reading;
  Message header;
  for (int round = 0; round < 10'000; ++round) {
    const Message message = random_message(rng, 1 + rng() % 200);
    const SentFrame frame = frames_of(writer, static_cast<uint32_t>(round), message).front();
    const SentFrame bad = changed(rng, frame, header);
    // Two changes of the same byte may give the frame itself.
    if (bad.payload == frame.payload && header.size() == sizeof(FrameHeader) &&
        std::memcmp(header.data(), &frame.header, header.size()) == 0)
      header[0] ^= std::byte{1};
    ASSERT_EQ(reading.reader.take(header, bad.payload), FrameReader::Taken::kRefused) << round;
    ASSERT_EQ(reading.got.size(), static_cast<size_t>(round));
    ASSERT_EQ(reading.take(frame), FrameReader::Taken::kInOrder);
    ASSERT_EQ(reading.got.back().second, message);
  }
}

TEST(Frames, before_which_too_many_are_missing_are_refused) {
  FrameWriter writer("key of 1 to 0", 1);
  Reading reading;
  frames_of(writer, 1, {});
  int num_held = 0;
  for (int i = 0; i < 1000; ++i)
    num_held += reading.take(frames_of(writer, 1, {}).front()) == FrameReader::Taken::kHeld;
  EXPECT_EQ(num_held, 256);
  EXPECT_TRUE(reading.got.empty());
}

}  // namespace
}  // namespace fathom::nodes
