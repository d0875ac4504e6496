#pragma once
// Conversation -> prompt. The prompt is a list of segments: markup segments hold exactly one special string
// each, all other text is plain. Only markup may become special tokens, so no text from a client can.
//
//   Result<std::vector<Segment>> prompt = render(format_for(format, chat), chat);
//   std::vector<int32_t> ids = encode(*prompt, tokenizer);
//
// Thread-safe (no state). docs/chat-formats.md has the decisions.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_format.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace fathom::text {

struct Segment {
  std::string text;
  bool is_markup = false;
  bool operator==(const Segment&) const = default;
};

// Exactly the text that the published template of the format renders. Linear in the conversation.
// Neighbours are never both plain. Errors: validate(), and what the format has no place for.
Result<std::vector<Segment>> render(ChatFormat format, const Conversation& conversation);

// The ids of the prompt: markup as added tokens, everything else as plain text in which no added token is
// looked for. Where no text looks like a special string, these are the ids of to_text() with
// parse_special. Markup that the tokenizer has no added token for is plain text, as it is for anyone else.
std::vector<int32_t> encode(const std::vector<Segment>& prompt, const Tokenizer& tokenizer);

// Special strings of the format's turns that the tokenizer has no added token for. Not empty: the format is
// not this checkpoint's.
std::vector<std::string> unknown_markup(ChatFormat format, const Tokenizer& tokenizer);

// All segments in one string.
std::string to_text(const std::vector<Segment>& prompt);

// Whether the prompt ends inside an open <think>: the output then begins with reasoning. Text may stand in it, as that
// of a system message behind the user's in V3.2.
bool opens_reasoning(const std::vector<Segment>& prompt);

}  // namespace fathom::text
