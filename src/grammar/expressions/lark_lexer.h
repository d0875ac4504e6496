#pragma once
// Words of Lark grammars.
//
//   const std::vector<LarkWord> words = lark_words(text, budget);       // a mistake fails the budget
//   if (words[0].kind == LarkWord::Kind::kName && is_terminal(words[0].text)) ...
//
// Pure functions, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expressions/budget.h"

namespace fathom::grammar {

struct LarkWord {
  enum class Kind : uint8_t {
    kName,     // text, with its ! and ? in front left out
    kString,   // text without quotes and escapes; flags
    kRegexp,   // text between the slashes; flags
    kNumber,   // text
    kCommand,  // %ignore and so on; text with the %
    kToken,    // <...>, a special token; text with the brackets
    kJson,     // the object behind %json; text
    kMark,     // : | ( ) [ ] { } , . ~ * + ? ->
    kLineEnd,  // one or more line breaks
    kEnd,      // behind all others
  };
  Kind kind = Kind::kEnd;
  std::string text = {};
  std::string flags = {};
  int line = 1;
};

std::vector<LarkWord> lark_words(std::string_view text, Budget& budget);

// Names of terminals are in capitals.
bool is_terminal(std::string_view name);

// Whether the grammar is Lark's and not EBNF: by the mark behind the name of its first rule, or a % before that.
bool is_lark(std::string_view text);

void fail_lark(int line, const std::string& what, Budget& budget);

}  // namespace fathom::grammar
