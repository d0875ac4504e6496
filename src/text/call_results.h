#pragma once
// Which result answers which call. Most chat formats show no ids: the model takes the first result for that of the
// first call. So results are brought into the order of their calls before a conversation is rendered.
//
//   Conversation chat = ...;                     // calls a, b; results of b, a
//   std::vector<size_t> order;
//   if (Status bound = bind_results(chat.messages, {}, order); !bound) return bound.error();
//   // chat.messages: calls a, b; results of a, b. order: {0, 1, 3, 2}
//
// Thread-safe (no state). Linear in the conversation, but for the logarithm of the calls of a turn.

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "text/conversation.h"

namespace fathom::text {

// Where the results of calls may stand. System messages between them do not count.
enum class ResultPlace {
  kRightBehind,     // as OpenAI's chat: in the messages right behind that of the calls
  kBehindTurn,      // as Anthropic: the same, and messages of the assistant in a row are one
  kAnywhereBehind,  // as OpenAI's responses: anywhere behind the calls
};

struct ResultRules {
  ResultPlace place = ResultPlace::kRightBehind;
  bool keeps_order =
      false;  // the format shows ids: results of a turn stay in the order that they came in
  bool may_end_in_calls =
      false;  // the conversation may end with calls that nobody has answered yet
};

// Binds each result to the call of the same id in its own turn, the nearest before it; clients use ids again in later
// turns. A result without an id takes the first call that has none. Moves results right behind their calls, in the
// order of the calls. order[i] is where message i stood before.
// Errors name the message by the index that it came with, and the id: a result that is missing, doubled or of no call.
Status bind_results(std::vector<Message>& messages, const ResultRules& rules,
                    std::vector<size_t>& order);

}  // namespace fathom::text
