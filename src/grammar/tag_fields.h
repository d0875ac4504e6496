#pragma once
// TagFields: the members of one object of a structural tag. The first thing wrong is kept, with the place.
//
//   const TagFields fields(value, "format.elements[1]", problem);
//   fields.allow({"type", "value"});
//   const std::string text = fields.text("value");
//   if (!problem.empty()) ...                     // "structural_tag at format.elements[1]: \"value\" is missing"
//
// Used by one thread. Value and problem must outlive it.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace fathom::grammar {

class TagFields {
 public:
  // Anything but an object is a problem.
  TagFields(const json::Value& value, std::string path, std::string& problem);

  const std::string& path() const { return path_; }
  bool ok() const { return problem_.empty(); }
  void fail(const std::string& what) const;
  // Other names are a problem.
  void allow(std::initializer_list<std::string_view> names) const;
  // A setting that is known and cannot be kept: a problem unless it is absent, null, false or empty.
  void refuse(std::string_view name, std::string_view why) const;

  // Null: absent or null. needed(): that is a problem.
  const json::Value* find(std::string_view name) const;
  const json::Value* needed(std::string_view name) const;
  std::string text(std::string_view name) const;
  bool flag(std::string_view name, bool otherwise) const;
  // From -1 to 100,000.
  int count(std::string_view name) const;
  const json::Value* list(std::string_view name) const;
  // Not empty, each of them not empty. A list that is absent is empty.
  std::vector<std::string> texts(std::string_view name) const;

 private:
  const json::Value& value_;
  const std::string path_;
  std::string& problem_;
};

}  // namespace fathom::grammar
