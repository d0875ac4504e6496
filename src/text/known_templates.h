#pragma once
// Whether a checkpoint's chat template is one of those published for its format. Formats are recognised by what only
// their templates contain, and written natively: what somebody else put into a template would be lost without a word.
//
//   if (auto odd = unpublished_part(ChatFormat::kV31, source)) warn(odd->text, odd->line);
//
// Texts are compared tag by tag, by hashes: known_templates.inc, which tools/chat_format/known_templates.py writes.
// White space outside of string literals does not count, so a template that was only indented anew is the same.
// Thread-safe (no state). Linear in the template.

#include <optional>
#include <string>
#include <string_view>

#include "text/chat_format.h"

namespace fathom::text {

// The first tag or text of a template that stands in none of the published ones at that place.
struct UnpublishedPart {
  std::string text;  // of one line, cut; empty: the template ends where the published ones go on
  int line = 0;      // from 1
};

// None: the template is a published one, or there is none of the format to compare with.
std::optional<UnpublishedPart> unpublished_part(ChatFormat format, std::string_view source);
// Formats with templates to compare with.
bool has_published_templates(ChatFormat format);

}  // namespace fathom::text
