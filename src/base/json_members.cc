#include "base/json_members.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/json_scanner.h"
#include "base/json_surrogates.h"

namespace fathom::json {

Members::Members(std::string_view text, const Limits& limits) : text_(text), limits_(limits) {}
// NOLINTBEGIN(performance-noexcept-move-constructor)
Members::Members(Members&& other) = default;
Members& Members::operator=(Members&& other) = default;
// NOLINTEND(performance-noexcept-move-constructor)
Members::~Members() = default;

Result<Members> Members::scan(std::string_view text, const Limits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return Error{ErrorCode::kTooLong, "JSON of " + std::to_string(text.size()) +
                                          " bytes, the limit is " +
                                          std::to_string(limits.max_bytes)};
  }
  std::unique_ptr<const std::string> mended;
  if (std::optional<std::string> whole = with_whole_pairs(text)) {
    mended = std::make_unique<const std::string>(std::move(*whole));
    text = *mended;
  }
  Members members(text, limits);
  members.mended_ = std::move(mended);
  --members.limits_.max_depth;  // of a member's value
  Scanner scanner(text, limits.max_depth);
  if (!scanner.enter_object()) {
    return scanner.skip_whole() ? invalid_argument("not a JSON object")
                                : syntax_error(text, limits);
  }
  while (const std::optional<Scanner::Member> member = scanner.next_member()) {
    if (Status added = members.add(member->name_token, member->value); !added) return added.error();
  }
  if (!scanner.at_end()) return syntax_error(text, limits);
  if (Status sorted = members.sort(); !sorted) return sorted.error();
  return members;
}

Status Members::add(std::string_view name_token, std::string_view value_text) {
  limits_.max_value_bytes -= static_cast<int64_t>(sizeof(Member)) * 3 / 2;
  if (limits_.max_value_bytes < 0) return too_many_values();
  std::string_view name = name_token.substr(1, name_token.size() - 2);
  if (name.find('\\') != std::string_view::npos) {
    Result<Value> decoded = parse_part(text_, name_token, limits_);
    if (!decoded) return decoded.error();
    name = decoded_names_.emplace_back(std::move(decoded->get_ref<std::string&>()));
  }
  members_.push_back({.name = name, .text = value_text, .value = nullptr});
  return {};
}

Status Members::sort() {
  std::sort(members_.begin(), members_.end(),
            [](const Member& a, const Member& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(members_.begin(), members_.end(),
                         [](const Member& a, const Member& b) { return a.name == b.name; });
  if (twice == members_.end()) return {};
  return invalid_argument("not valid JSON: duplicate key " + shown_text(twice->name));
}

Result<const Value*> Members::find(std::string_view name) {
  const auto found = std::lower_bound(
      members_.begin(), members_.end(), name,
      [](const Member& member, std::string_view key) { return member.name < key; });
  if (found == members_.end() || found->name != name) return nullptr;
  if (found->value == nullptr) {
    Result<Value> value = parse_part(text_, found->text, limits_);
    if (!value) return value.error();
    found->value = std::make_unique<Value>(std::move(*value));
  }
  return found->value.get();
}

}  // namespace fathom::json
