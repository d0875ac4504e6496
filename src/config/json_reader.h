#pragma once
// JsonReader: typed, range-checked reads of one JSON object that remember the first broken rule, so
// that a reader is a plain list of keys and says one line at the end.
//
//   JsonReader reader(object);
//   int layers = reader.integer("num_hidden_layers", {.min = 1, .max = 1024});
//   if (!reader.ok()) return reader.error();
//   // "num_hidden_layers" is 0, must be an integer in [1, 1024]
//
// After the first failure every read returns its lowest or default value. Not thread-safe; the
// object must outlive the reader.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"

namespace fathom::config {

class JsonReader {
 public:
  struct IntRule {
    int64_t min = 0, max = 0;
    std::optional<int64_t> fallback = std::nullopt;  // for a missing key or null; none = required
  };
  struct NumberRule {
    double min = 0, max = 0;
    std::optional<double> fallback = std::nullopt;
  };

  // `prefix` goes before keys in messages: "rope_scaling.".
  explicit JsonReader(const json::Value& object, std::string prefix = "");

  // The value, or null when the key is missing or its value is null. Marks the key as known.
  const json::Value* find(std::string_view key);

  int integer(std::string_view key, const IntRule& rule);
  int64_t integer64(std::string_view key, const IntRule& rule);
  std::optional<int> optional_integer(std::string_view key, const IntRule& rule);
  double number(std::string_view key, const NumberRule& rule);
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  // Index of the text among the choices; `fallback` is an index, -1 = required.
  int choice(std::string_view key, std::initializer_list<std::string_view> choices, int fallback);

  // Records the error "KEY is VALUE, must be RULE" unless the condition holds (or an error came
  // before).
  void require(bool condition, std::string_view key, std::string_view rule);
  void fail(std::string message);

  // Keys that nobody asked for, in file order.
  std::vector<std::string> unread_keys() const;

  // require() for each of them that is neither null nor an empty list.
  void refuse_unread(std::string_view rule);

  bool ok() const { return !error_.has_value(); }
  const Error& error() const { return *error_; }

 private:
  std::string quoted(std::string_view key) const;

  const json::Value& object_;
  std::string prefix_;
  std::unordered_map<std::string_view, const json::Value*> members_;
  std::set<std::string, std::less<>> known_;
  std::optional<Error> error_;
};

}  // namespace fathom::config
