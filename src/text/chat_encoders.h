#pragma once
// One function per family of templates; render() checks the conversation and chooses. Internal to text.
//
//   case ChatFormat::kV31: return encode_v31(conversation);
//
// REQUIRES: validate(conversation) succeeded. Thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_encoder.h"

namespace fathom::text {

std::vector<Segment> encode_v2(const Conversation& conversation);
Result<std::vector<Segment>> encode_v3(const Conversation& conversation);
std::vector<Segment> encode_r1(const Conversation& conversation);
// kV3_0324, kV3Tools, kR1_0528, kR1Tools: a user's turn ends with <｜Assistant｜>.
std::vector<Segment> encode_closed_turns(ChatFormat format, const Conversation& conversation);
std::vector<Segment> encode_v31(const Conversation& conversation);
Result<std::vector<Segment>> encode_v32(const Conversation& conversation);
// kKimiK2, kMoonlight.
std::vector<Segment> encode_kimi(ChatFormat format, const Conversation& conversation);

bool is_system(const Message& message);
// The content, or nothing where there is none.
std::string_view content_of(const Message& message);
// All system messages, joined by an empty line, as DeepSeek's templates put them after BOS.
std::string joined_system(const Conversation& conversation);
// What follows the last </think>; past reasoning is not sent back.
std::string_view after_last_think(std::string_view content);

}  // namespace fathom::text
