#pragma once
// ToolKinds: the model sees every tool as a function. This says what those are to the client that are something else:
// a tool of a namespace, which the model knows as NAMESPACE__NAME, and a custom tool, whose one argument is its input.
//
//   const ToolKind kind = kind_of(kinds.get(), "shell__run");     // {.name = "run", .name_space = "shell"}
//
// Plain data.

#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace fathom::api {

struct ToolKind {
  bool is_custom = false;
  std::string name;        // as the client calls it
  std::string name_space;  // empty: none
  bool operator==(const ToolKind&) const = default;
};

// By the name that the model sees; functions without a namespace are not in it.
using ToolKinds = std::map<std::string, ToolKind, std::less<>>;

// Of a name that the model wrote. `kinds` may be null: every tool is a function.
inline ToolKind kind_of(const ToolKinds* kinds, std::string_view shown_name) {
  if (kinds != nullptr) {
    if (const auto found = kinds->find(shown_name); found != kinds->end()) return found->second;
  }
  return {.is_custom = false, .name = std::string(shown_name), .name_space = ""};
}

// What the model calls a tool of a namespace.
inline std::string shown_name(std::string_view name_space, std::string_view name) {
  if (name_space.empty()) return std::string(name);
  return std::string(name_space) + "__" + std::string(name);
}

}  // namespace fathom::api
