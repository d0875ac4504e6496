#pragma once
// json::Scanner: walks over a JSON text and says where the members of its outermost object lie, and whether all of
// it is well-formed: RFC 8259, valid UTF-8, no deeper than allowed. It builds nothing and calls nothing recursively;
// its memory is a character for each level. What it takes json::parse() takes too, but for names that come twice.
//
//   Scanner scanner(text, 64);
//   if (!scanner.enter_object()) ...                           // no object
//   while (auto member = scanner.next_member()) use(member->name_token, member->value);
//   if (!scanner.at_end()) ...                                 // broken, or something follows
//
// The text outlives what it gave out. Not synchronised.

#include <optional>
#include <string>
#include <string_view>

namespace fathom::json {

class Scanner {
 public:
  struct Member {
    std::string_view name_token;  // with its quotes and escapes
    std::string_view value;
  };

  Scanner(std::string_view text, int max_depth);

  // False: the text does not begin with '{'; nothing was read.
  bool enter_object();
  // None: the object has ended, or something is broken.
  std::optional<Member> next_member();
  // Whether the whole text was read and well-formed.
  bool at_end();
  // Reads a text of any kind: whether it is well-formed. In place of the above.
  bool skip_whole();

 private:
  enum class State { kBegin, kFirstMember, kMembers, kEnded, kBroken };

  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  void skip_space();
  bool skip_value();
  bool open(char bracket);
  bool after_value(bool& has_next);
  bool skip_name();
  bool skip_scalar();
  bool skip_string();
  bool skip_escape();
  bool skip_utf8();
  bool skip_digits();
  bool skip_number();
  bool skip_word(std::string_view word);

  std::string_view text_;
  size_t position_ = 0;
  size_t max_depth_;
  size_t depth_before_ = 0;  // of what skip_value() is called in
  std::string open_;  // brackets that are open within the value being skipped, innermost last
  State state_ = State::kBegin;
};

}  // namespace fathom::json
