#pragma once
// Text that a client may give whole or in parts, as contents of messages and results of tools are given: "ab", or
// [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}].
//
//   const std::string text = read_text_parts(message, "content", "parts", [&](const json::Value& part,
//                                                            const std::string& path, JoinedText& joined) {
//     joined.add(read_typed_part(part, path, kTypes, item_part_fields(), problem));
//   });
//
// Pure, thread-safe.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "api/tables/field_reader.h"

namespace fathom::api {

// Of one list.
inline constexpr size_t kMaxTextParts = 16'384;

// Text of several parts: texts run on, as clients cut them anywhere, and what stands for something else has lines of
// its own. Not synchronised.
class JoinedText {
 public:
  void add(std::string_view text);
  void add_block(std::string_view text);
  std::string take() { return std::move(text_); }
  bool empty() const { return text_.empty(); }

 private:
  std::string text_;
  bool ends_block_ = false;
};

// Adds the text of an object at a path; what is wrong with it becomes the reader's problem.
using PartReader =
    std::function<void(const json::Value& part, const std::string& path, JoinedText& joined)>;

// The parts joined; "" where there is nothing. `name` is what errors call them.
std::string read_text_parts(FieldReader& reader, std::string_view key, std::string_view name,
                            const PartReader& read_part);

// A part whose type is one of `types`, with its text.
std::string read_typed_part(const json::Value& part, const std::string& path,
                            std::span<const std::string_view> types, const FieldTable& fields,
                            FieldProblem& problem);
// The same behind the type.
std::string read_part_text(FieldReader& part, const json::Value& value, const std::string& path,
                           const FieldTable& fields);

}  // namespace fathom::api
