#pragma once
// Parts of a conversation that a text model cannot read: pictures, documents, sounds, blocks of other servers. One
// rule for all three chat APIs: in the history, and in what tools gave back, such a part becomes its name in brackets,
// because a conversation must be able to go on whatever it has met; in the person's newest question it is refused,
// because the answer would be one to another question.
//
//   const size_t question = newest_question(messages.size(), [&](size_t i) { return speaker_of(messages[i]); });
//   if (i == question) return refuse_unread(part);
//   joined.add_block(bracketed("image_url"));              // "[image]"
//
// Pure, thread-safe.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "api/tables/field_reader.h"

namespace fathom::api {

enum class Speaker { kPerson, kModel, kTool, kOther };

// The place of the message with the newest question: the last of a person's, if the model has not answered it and no
// tool's result stands beside it (what a client sends along with results is not what somebody asked). npos: none.
size_t newest_question(size_t num_messages, const std::function<Speaker(size_t)>& speaker_of);

// "[image]", "[document]", "[audio]", ..., "[TYPE]" for what nobody knows; with a name "[TYPE: NAME]".
std::string bracketed(std::string_view type, std::string_view name = {});

// "messages[0].content[1].type is "image_url", must be text: ..."
void refuse_unread(FieldReader& part);

}  // namespace fathom::api
