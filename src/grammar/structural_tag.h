#pragma once
// Structural tags: outputs of free text and tags, as xgrammar and SGLang describe them. A trigger in
// the free text leads to the tags that begin with it; what a tag holds follows its format.
//
//   Expression output = structural_tag(*json::parse(R"({"type": "structural_tag", "format": {"type": "tag",
//       "begin": "<a>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "</a>"}})"), names);
//
// Both forms are read: a tree of formats below "format", and the older "structures" with "triggers".
// What cannot be kept is refused by name: the expression is then a mistake(). docs/grammars.md says what
// is taken. Pure, thread-safe.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "grammar/expressions/expression.h"

namespace fathom::grammar {

// What structural tags ask of the tokenizer. A special token is never text: it stands where its text is written.
struct TokenNames {
  // The text's special tokens, in order, and what is between them as markers without a token.
  std::function<std::vector<Marker>(std::string_view text)> split;
  // The special token with this id; nullopt: it is none.
  std::function<std::optional<Marker>(int64_t id)> special;
  // What <name> and <[id]> of rules are.
  TokenLookup find = {};
};

Expression structural_tag(const json::Value& tag, const TokenNames& names);

}  // namespace fathom::grammar
