#include "base/json.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace fathom::json {
namespace {

constexpr size_t kMaxMessageBytes = 160;

// Two members of one name, or null. n log n whatever the keys are: a hash table of keys that were made to
// collide would be quadratic.
const std::string* duplicate_key(const Value::object_t& members) {
  constexpr size_t kMaxPairwise = 8;
  if (members.size() <= kMaxPairwise) {
    for (auto later = members.begin(); later != members.end(); ++later) {
      for (auto earlier = members.begin(); earlier != later; ++earlier) {
        if (earlier->first == later->first) return &later->first;
      }
    }
    return nullptr;
  }
  struct Entry {
    size_t hash;
    const std::string* key;
  };
  std::vector<Entry> entries;
  entries.reserve(members.size());
  for (const auto& member : members) {
    entries.push_back({std::hash<std::string>()(member.first), &member.first});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.hash != b.hash ? a.hash < b.hash : *a.key < *b.key;
  });
  const auto twice = std::adjacent_find(
      entries.begin(), entries.end(),
      [](const Entry& a, const Entry& b) { return a.hash == b.hash && *a.key == *b.key; });
  return twice == entries.end() ? nullptr : twice->key;
}

// Builds the value and stops at the first broken rule. nlohmann's own DOM builder keeps the last of
// two duplicate keys, has no depth limit, and searches an ordered object for every key that it
// adds, which is quadratic: minutes for the weight map of a large checkpoint.
class LimitedBuilder : public nlohmann::json_sax<Value> {
 public:
  // Without a root nothing is kept: the rules alone are checked.
  LimitedBuilder(Value* root, const Limits& limits)
      : root_(root), max_depth_(limits.max_depth), bytes_left_(limits.max_value_bytes) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(v); }
  bool number_unsigned(number_unsigned_t v) override { return add(v); }
  bool number_float(number_float_t v, const string_t&) override { return add(v); }
  bool string(string_t& v) override {
    return charge(kStringBytes + heap_bytes(v)) && (root_ == nullptr || add(std::move(v)));
  }
  bool binary(binary_t& v) override { return add(std::move(v)); }
  bool start_array(std::size_t) override { return enter(Value::array()); }
  bool end_array() override { return leave(); }
  bool start_object(std::size_t) override { return enter(Value::object()); }
  bool end_object() override { return leave(); }

  bool key(string_t& name) override {
    if (root_ == nullptr) return true;
    if (!charge(kMemberBytes + heap_bytes(name))) return false;
    // The vector under the ordered map: leave() refuses duplicates.
    auto& members = open_.back()->get_ref<Value::object_t&>();
    members.emplace_back(std::move(name), nullptr);
    slot_ = &members.back().second;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position_ = position;
    std::string what = error.what();
    // Drop the library's prefixes "[json.exception.parse_error.101] " and "parse error at line 1,
    // column 2: ".
    const size_t name_end = what.starts_with('[') ? what.find("] ") : std::string::npos;
    if (name_end != std::string::npos) what.erase(0, name_end + 2);
    const size_t column = what.find("column ");
    const size_t colon = column == std::string::npos ? column : what.find(": ", column);
    if (colon != std::string::npos) what.erase(0, colon + 2);
    // The library quotes the token it was reading, which may be as long as the document.
    if (what.size() > kMaxMessageBytes) what = what.substr(0, kMaxMessageBytes) + "...";
    return fail(std::move(what));
  }

  const std::string& message() const { return message_; }
  std::size_t position() const { return position_; }
  int64_t bytes_left() const { return bytes_left_; }

 private:
  // What values take, with what a growing container has to spare on average and what the heap adds.
  static constexpr int64_t kElementBytes = sizeof(Value) * 3 / 2;
  static constexpr int64_t kMemberBytes = sizeof(Value::object_t::value_type) * 3 / 2;
  static constexpr int64_t kContainerBytes = 64, kStringBytes = 48;
  static int64_t heap_bytes(const std::string& text) {
    constexpr size_t kInPlace = 15;
    return text.size() > kInPlace ? static_cast<int64_t>(text.size()) + 16 : 0;
  }

  bool charge(int64_t num_bytes) {
    bytes_left_ -= num_bytes;
    return bytes_left_ >= 0 || fail("");
  }
  // Stores a value where it belongs; slot_ points to it afterwards. Pointers stay valid because
  // only the innermost open container grows.
  bool add(Value value) {
    if (root_ == nullptr) return true;
    if (open_.empty()) {
      slot_ = root_;
    } else if (open_.back()->is_array()) {
      if (!charge(kElementBytes)) return false;
      auto& elements = open_.back()->get_ref<Value::array_t&>();
      elements.emplace_back();
      slot_ = &elements.back();
    }
    *slot_ = std::move(value);
    return true;
  }
  bool enter(Value container) {
    if (!charge(kContainerBytes) || !add(std::move(container))) return false;
    open_.push_back(slot_);
    if (static_cast<int>(open_.size()) > max_depth_) {
      return fail("nesting deeper than " + std::to_string(max_depth_));
    }
    return true;
  }
  bool leave() {
    const Value* const ended_slot = open_.back();
    open_.pop_back();
    if (ended_slot == nullptr || !ended_slot->is_object()) return true;
    const Value& ended = *ended_slot;
    const std::string* key = duplicate_key(ended.get_ref<const Value::object_t&>());
    return key == nullptr || fail("duplicate key " + shown_text(*key));
  }
  bool fail(std::string message) {
    if (message_.empty()) message_ = std::move(message);
    return false;
  }

  Value* root_;
  std::vector<Value*> open_;  // containers that have not ended, outermost first
  Value* slot_ = nullptr;     // where the next value of an object goes
  int max_depth_;
  int64_t bytes_left_;
  std::string message_;
  std::size_t position_ = 0;
};

std::string place(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n');
  const size_t column =
      line_start == std::string_view::npos ? before.size() : before.size() - line_start - 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": ";
}

Error error_of(std::string_view text, const LimitedBuilder& builder, std::size_t offset) {
  if (builder.bytes_left() < 0) return too_many_values();
  const std::string where = builder.position() > 0 ? place(text, offset + builder.position()) : "";
  return invalid_argument("not valid JSON: " + where + builder.message());
}

// The library takes a NUL for the end of the text and would not look at what follows.
std::optional<Error> nul_problem(std::string_view text) {
  const size_t nul = text.find('\0');
  if (nul == std::string_view::npos) return std::nullopt;
  return invalid_argument("not valid JSON: " + place(text, nul) + "a NUL byte");
}

}  // namespace

Result<Value> parse(std::string_view text, const Limits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return Error{ErrorCode::kTooLong, "JSON of " + std::to_string(text.size()) +
                                          " bytes, the limit is " +
                                          std::to_string(limits.max_bytes)};
  }
  if (std::optional<Error> problem = nul_problem(text)) return *problem;
  Limits left = limits;
  return parse_part(text, text, left);
}

Result<Value> parse_part(std::string_view text, std::string_view part, Limits& limits) {
  Value root;
  LimitedBuilder builder(&root, limits);
  if (!Value::sax_parse(part, &builder))
    return error_of(text, builder, static_cast<size_t>(part.data() - text.data()));
  limits.max_value_bytes = builder.bytes_left();
  return root;
}

Error too_many_values() {
  return {ErrorCode::kTooLong, "JSON with more values than its length allows"};
}

Error syntax_error(std::string_view text, const Limits& limits) {
  if (std::optional<Error> problem = nul_problem(text)) return *problem;
  LimitedBuilder builder(nullptr, limits);
  if (Value::sax_parse(text, &builder)) return invalid_argument("not valid JSON");
  return error_of(text, builder, 0);
}

std::string_view text_at(const Value& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return {};
  return found->get_ref<const std::string&>();
}

std::string dump(const Value& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string shown_text(std::string_view text) {
  if (text.size() <= kMaxShownBytes) return dump(Value(text));
  size_t cut = kMaxShownBytes;
  // Back to the begin of a character, of which at most three bytes lie before the cut.
  while (cut > kMaxShownBytes - 3 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  return dump(Value(text.substr(0, cut))) + "...";
}

std::string shown(const Value& value) {
  constexpr size_t kMaxListed =
      16;  // looked at, so that a list as large as a file is not written out
  if (value.is_string()) return shown_text(value.get_ref<const std::string&>());
  if (value.is_object()) return value.empty() ? "{}" : "an object";
  if (!value.is_array()) return dump(value);
  std::string list;
  const size_t num_listed = std::min(value.size(), kMaxListed);
  for (size_t i = 0; i < num_listed; ++i) list += (i == 0 ? "" : ",") + shown(value[i]);
  if (value.size() <= kMaxListed && list.size() <= kMaxShownBytes) return "[" + list + "]";
  return "a list of " + std::to_string(value.size()) + " values";
}

}  // namespace fathom::json
