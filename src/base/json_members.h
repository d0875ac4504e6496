#pragma once
// json::Members: the members of an object, each built when it is asked for and not before. What nobody asks for is
// only checked, so a text of 60 MB that holds nothing of interest costs no memory beside itself.
//
//   Result<json::Members> body = json::Members::scan(text);       // well-formed to the last byte, or an error
//   Result<const json::Value*> prompt = body->find("prompt");     // null: there is none
//
// Duplicate names are refused among the members and within what is built. Half a surrogate pair (json_surrogates.h)
// is read as U+FFFD. The text outlives it. Not synchronised.

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"

namespace fathom::json {

class Members {
 public:
  // Error kInvalidArgument also when the text is no object. limits.max_value_bytes is for all that is ever built.
  static Result<Members> scan(std::string_view text, const Limits& limits = {});
  // Moving a deque may allocate, so neither is noexcept.
  Members(Members&& other);             // NOLINT(performance-noexcept-move-constructor)
  Members& operator=(Members&& other);  // NOLINT(performance-noexcept-move-constructor)
  ~Members();

  // Valid as long as this is.
  Result<const Value*> find(std::string_view name);
  size_t size() const { return members_.size(); }
  // Of member i, by name; nothing is built. REQUIRES: i < size().
  std::string_view name(size_t i) const { return members_[i].name; }
  bool is_null(size_t i) const { return members_[i].text == "null"; }

 private:
  struct Member {
    std::string_view name, text;
    std::unique_ptr<Value> value;
  };

  Members(std::string_view text, const Limits& limits);
  Status add(std::string_view name_token, std::string_view value_text);
  Status sort();

  std::unique_ptr<const std::string> mended_;  // text_, where the one given had to be changed
  std::string_view text_;
  Limits limits_;                          // for what is still to be built
  std::vector<Member> members_;            // by name
  std::deque<std::string> decoded_names_;  // of names with escapes
};

}  // namespace fathom::json
