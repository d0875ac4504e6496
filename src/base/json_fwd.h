#pragma once
// The names of base/json.h for headers that need no more: reading the library costs a compiler a second.
//
//   json::Value operators_json(const BackendOperators& listing);     // the .cc includes base/json.h
//
//   struct Conversation {
//     json::Box tools;      // a member that holds a value
//   };
//   for (const json::Value& tool : *conversation.tools) ...
//
// Plain declarations; a Box is not synchronised.

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <utility>

namespace fathom::json {

using Value = nlohmann::ordered_json;

struct Limits {
  int max_depth = 64;
  int64_t max_bytes = int64_t{256} << 20;
  // Of memory that the values take, about: what is small as text may be large as values ("[],[],..." is 20 times its
  // text). More is an error kTooLong.
  int64_t max_value_bytes = std::numeric_limits<int64_t>::max();
};

// A value of its own, on the heap: copied and assigned as the value is. Whoever makes one from a value or looks at what
// it holds includes base/json.h. REQUIRES of *, ->, and of copies: nothing was moved from it.
class Box {
 public:
  Box();  // null
  // A value and not a list in braces, which might mean the value or what is in it.
  template <std::same_as<Value> T>
  Box(T value) : value_(std::make_unique<T>(std::move(value))) {}
  static Box object();  // {}
  Box(const Box& other);
  Box(Box&& other) noexcept;
  Box& operator=(const Box& other);
  Box& operator=(Box&& other) noexcept;
  ~Box();

  const Value& operator*() const { return *value_; }
  Value& operator*() { return *value_; }
  const Value* operator->() const { return value_.get(); }
  Value* operator->() { return value_.get(); }

 private:
  std::unique_ptr<Value> value_;
};

}  // namespace fathom::json
