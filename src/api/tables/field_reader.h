#pragma once
// FieldReader: the only way from JSON to a typed value. Every read names the field and its range, so a
// number cannot be narrowed, and what breaks a rule becomes a 400 that names field, value and rule. The
// first one counts; a parser is a plain list of reads and asks once at the end.
//
//   FieldProblem problem(field_policy("/v1/chat/completions", model.unknown_fields, model.field_log));
//   FieldReader reader(body, chat_fields(), problem);
//   const int n = reader.integer("n", {1, 128}).value_or(1);
//   const bool stream = reader.boolean("stream").value_or(false);
//   if (problem) return problem.error();       // 400, param "n": n is 0, must be an integer in [1, 128]
//
// What the object may hold is in its FieldTable: names that it does not have, and refused fields that ask for
// something, are a problem before anything is read, and only names that it honours can be read.
//
// A missing key and null are the same. Numbers that have no fraction are integers (1.0 is 1); "5" is none.
// Not synchronised; the object and the problem outlive the reader.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/tables/api_error.h"
#include "api/tables/field_policy.h"
#include "api/tables/field_table.h"
#include "base/json_fwd.h"
#include "base/json_members.h"

namespace fathom::api {

inline constexpr size_t kMaxNameBytes = 256;  // of functions, speakers and calls

// The first broken rule of a body, whether a name that nobody knows breaks one, and what was skipped.
class FieldProblem {
 public:
  explicit FieldProblem(FieldPolicy policy = {}) : policy_(policy) {}
  void set(ApiError error) {
    if (!error_) error_ = std::move(error);
  }
  explicit operator bool() const { return error_.has_value(); }
  const ApiError& error() const { return *error_; }
  bool refuses_unknown() const { return policy_.unknown == UnknownFields::kRefuse; }

  // A field that its table calls without effect, a name that no table has, a tool that the model is not offered: the
  // log of the policy is told of each, once for a request.
  // `place`: the table's name; "" for the body's own.
  void skip_field(std::string_view place, const FieldRule& rule);
  void skip_unknown(std::string_view name);
  void skip_tool(std::string_view type);
  // An upper bound that the context made lower.
  void skip_excess(std::string_view field);
  http::ClientForm form() const { return policy_.form; }

 private:
  void skip_named(SkippedField::Kind kind, std::string_view name);

  std::optional<ApiError> error_;
  FieldPolicy policy_;
  std::vector<const FieldRule*> skipped_rules_;
  std::vector<std::pair<SkippedField::Kind, std::string>> skipped_names_;
};

struct IntRange {
  int64_t min = 0, max = 0;
  bool contains(int64_t value) const { return value >= min && value <= max; }
};

struct NumberRange {
  double min = 0, max = 0;
  bool is_min_included = true;
};

// The value as an integer in the range; nothing when it is none or outside.
std::optional<int64_t> integer_in(const json::Value& value, IntRange range);
// The value as a finite number in the range.
std::optional<double> number_in(const json::Value& value, const NumberRange& range);

// A value in an error line: short JSON, or "an array of 3", "an object".
std::string shown(const json::Value& value);
// "the body is not valid JSON: ...", or 413 for one that holds too much.
ApiError broken_body(const Error& error);
// "PATH is VALUE, must be RULE"
ApiError broken_rule(const std::string& path, const json::Value& value, std::string_view rule);
std::string rule_of(IntRange range);
// A name from a body, in a path and between quotes: short, and without control characters.
std::string shown_name(std::string_view name);
// "PATH[i]"
std::string element_path(const std::string& path, size_t i);

class FieldReader {
 public:
  // REQUIRES: object.is_object(). `path` is the object's own: "messages[2]", "" for the body.
  FieldReader(const json::Value& object, std::string path, const FieldTable& table,
              FieldProblem& problem);
  // Of an object that is not a request's and may hold whatever its makers like (generation_config.json).
  FieldReader(const json::Value& object, std::string path, FieldProblem& problem);
  // Of the body, whose values are built when they are asked for.
  FieldReader(json::Members& body, const FieldTable& table, FieldProblem& problem);
  // Of a body whose names the caller checks itself (check_names): code that it shares with other endpoints looks for
  // more keys than this endpoint's table honours.
  FieldReader(json::Members& body, FieldProblem& problem);

  // Null for a missing key and for null. REQUIRES of this and the rest: the table honours the key.
  const json::Value* find(std::string_view key) const;
  // "messages[2].content"
  std::string path_of(std::string_view key) const;

  std::optional<int> integer(std::string_view key, IntRange range);
  // A whole 64-bit number, signed or not; -1 is 2^64 - 1.
  std::optional<uint64_t> seed(std::string_view key);
  std::optional<float> number(std::string_view key, const NumberRange& range);
  std::optional<bool> boolean(std::string_view key);
  // At most max_bytes.
  std::optional<std::string> text(std::string_view key, size_t max_bytes);
  // Null unless it is an array of at most max_items, an object.
  const json::Value* array(std::string_view key, size_t max_items);
  const json::Value* object(std::string_view key);

  // "KEY is VALUE, must be RULE". REQUIRES: find(key).
  void fail(std::string_view key, std::string_view rule);
  // "KEY is missing"
  void fail_missing(std::string_view key);
  // The same where there is nothing at the key.
  void require(std::string_view key) {
    if (find(key) == nullptr) fail_missing(key);
  }
  // A rule about more than one field.
  void fail_with(std::string_view key, std::string message);
  FieldProblem& problem() { return problem_; }

 private:
  static constexpr size_t kMaxLinearKeys = 32;
  using Member = std::pair<std::string_view, const json::Value*>;
  static bool has_lower_key(const Member& a, const Member& b) { return a.first < b.first; }
  void sort_members();

  const json::Value* object_ = nullptr;  // null: the body
  json::Members* body_ = nullptr;
  std::string path_;
  const FieldTable* table_ = nullptr;  // null: any names
  FieldProblem& problem_;
  // Sorted by key, for objects with many members only. Sorted and not hashed, because a client chooses the keys.
  std::vector<Member> members_;
  bool is_sorted_ = false;  // members_ stands for the object
};

}  // namespace fathom::api
