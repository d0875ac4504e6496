#pragma once
// PatternReader: what patterns and EBNF rules have in common: escapes, character classes, quantifiers, and
// errors that name the position.
//
//   PatternReader reader("regex", pattern, budget);
//   if (reader.peek() == '[') CharacterClass chars = reader.read_class();
//   if (!budget.ok()) ...                      // "regex at 7: ..."
//
// Used by one thread. The text must outlive it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expressions/budget.h"
#include "grammar/expressions/expression.h"

namespace fathom::grammar {

struct Quantifier {
  int min = 1, max = 1;
};

// kPattern: regular expressions as ECMAScript has them. kRules: EBNF, with C's escapes and spaces in repetitions.
enum class Dialect : uint8_t { kPattern, kRules };

class PatternReader {
 public:
  PatternReader(std::string_view name, std::string_view text, Budget& budget,
                Dialect dialect = Dialect::kPattern)
      : name_(name), text_(text), budget_(budget), dialect_(dialect) {}

  bool at_end() const { return pos_ >= text_.size(); }
  // '\0' at the end.
  char peek(size_t ahead = 0) const {
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }
  bool starts_with(std::string_view prefix) const {
    return text_.substr(pos_).substr(0, prefix.size()) == prefix;
  }
  bool skip(std::string_view prefix);
  void advance(size_t num_bytes) { pos_ += num_bytes; }
  // From here on a letter stands for its other case, too.
  void set_ignores_case(bool ignores_case) { ignores_case_ = ignores_case; }
  bool ignores_case() const { return ignores_case_; }
  size_t position() const { return pos_; }
  void set_position(size_t position) { pos_ = position; }
  // Fails the budget with name, position and the sentence; returns false.
  bool fail(const std::string& what);

  // One character of valid UTF-8.
  char32_t read_character();
  // [...] with ranges, escapes and ^. generous: where dialects differ, what any of them takes.
  std::vector<CodePointRange> read_class(bool generous = false);
  // An escape outside classes, behind the backslash.
  std::vector<CodePointRange> read_escape(bool generous = false);
  // A character that stands for itself, with its other case where that does not matter.
  std::vector<CodePointRange> read_plain(bool generous = false);
  // ? * + {m} {m,} {m,n}; in rules also {m,-1} for {m,}. nullopt: there is none.
  std::optional<Quantifier> read_quantifier();

 private:
  // A class as it is, and as it is when negated: \s has more characters in some dialects than in others, and a newer
  // Unicode has more letters.
  struct Escape {
    std::vector<CodePointRange> narrow, wide;
    bool is_set = false;
  };
  Escape read_any_escape(bool in_class);
  std::optional<Escape> named_set(char letter) const;
  static Escape negated_if(bool is_negated, Escape escape);
  Escape cased(Escape escape) const;
  Escape read_property(bool is_negated);
  Escape read_class_item();
  // Fails where dialects read the class that begins here, behind [ or [^, in different ways.
  void check_class(size_t begin);
  bool ends_nested(size_t begin);
  // The first that stands for itself.
  size_t find_plain(char c, size_t begin) const;
  // What a letter stands for behind a backslash; nullopt: nothing that is known.
  std::optional<char32_t> named_character(char letter, bool in_class);
  char32_t read_hex(int num_digits);
  char32_t read_unicode_escape();
  char32_t checked_character(char32_t value);
  int read_count();
  int read_last_count();
  void skip_blanks();

  std::string_view name_;
  std::string_view text_;
  Budget& budget_;
  Dialect dialect_;
  bool ignores_case_ = false;
  size_t pos_ = 0;
};

}  // namespace fathom::grammar
