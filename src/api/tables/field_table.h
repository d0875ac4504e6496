#pragma once
// FieldTable: which names an object of a body may hold and what becomes of each: honoured, refused with the reason, or
// without effect on the answer. It is the one source: FieldReader refuses by it and reads nothing that it does not
// honour, docs/reference is checked against it, GET /openapi.json is rendered from it.
//
//   const FieldTable table("stream_options", {kStreamOptions});
//   const FieldRule* rule = table.find("include_usage");      // null: a name that nobody knows
//   table.nearest("include_usge");                            // "include_usage"
//
// Read-only, thread-safe.

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace fathom::api {

class FieldTable;

enum class FieldUse { kHonoured, kRefused, kWithoutEffect };

// What becomes of a name that no table has: a 400, or nothing (--unknown-fields).
enum class UnknownFields { kRefuse, kIgnore };

struct FieldRule {
  std::string_view name;
  FieldUse use = FieldUse::kHonoured;
  // Honoured: what it is. Refused: why, as a clause ("there is no beam search"). Without effect: what it is elsewhere.
  std::string_view about;
  // Honoured: the JSON schema of its values. Refused: an array of values that ask for nothing, besides null, false,
  // "", [] and {}; empty = none.
  std::string_view json = {};
  // Of an object that the server reads, or of the objects in an array.
  const FieldTable& (*inner)() = nullptr;
  bool is_required = false;
};

constexpr FieldRule honoured(std::string_view name, std::string_view schema, std::string_view about,
                             const FieldTable& (*inner)() = nullptr) {
  return {.name = name, .about = about, .json = schema, .inner = inner};
}
constexpr FieldRule required(std::string_view name, std::string_view schema, std::string_view about,
                             const FieldTable& (*inner)() = nullptr) {
  return {.name = name, .about = about, .json = schema, .inner = inner, .is_required = true};
}
constexpr FieldRule refused(std::string_view name, std::string_view why,
                            std::string_view neutral = {}) {
  return {.name = name, .use = FieldUse::kRefused, .about = why, .json = neutral};
}
constexpr FieldRule without_effect(std::string_view name, std::string_view about) {
  return {.name = name, .use = FieldUse::kWithoutEffect, .about = about};
}

class FieldTable {
 public:
  // `name` is for people: "chat", "messages[]". The groups' rules are copied; what they view lives as long as the
  // program. REQUIRES: no name comes twice.
  FieldTable(std::string_view name, std::initializer_list<std::span<const FieldRule>> groups);

  std::string_view name() const { return name_; }
  const FieldRule* find(std::string_view name) const;
  // By name.
  std::span<const FieldRule> rules() const { return rules_; }

  // The known name that `name` most likely was meant to be, honoured ones first; empty: none is near.
  std::string_view nearest(std::string_view name) const;
  // The honoured field whose objects have a field of this name; null: there is none.
  const FieldRule* place_of(std::string_view name) const;

 private:
  std::string_view name_;
  std::vector<FieldRule> rules_;
};

}  // namespace fathom::api
