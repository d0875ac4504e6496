#include "grammar/schema/schema_references.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/expressions/code_points.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

std::optional<std::string> percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    const std::string_view digits = "0123456789abcdef";
    return digits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
  };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const size_t high = digit(text[i + 1]), low = digit(text[i + 2]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  for (std::string_view rest = decoded; !rest.empty();) {
    if (!take_utf8(rest)) return std::nullopt;
  }
  return decoded;
}

// One name of a JSON pointer: ~1 is a slash, ~0 a tilde.
std::optional<std::string> pointer_name(std::string_view text) {
  std::string name;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '~') {
      name += text[i];
      continue;
    }
    const char code = i + 1 < text.size() ? text[++i] : '\0';
    if (code != '0' && code != '1') return std::nullopt;
    name += code == '0' ? '~' : '/';
  }
  return name;
}

const Value* element(const Value& list, const std::string& index) {
  const bool is_number = !index.empty() && index.size() < 7 && (index[0] != '0' || index == "0") &&
                         index.find_first_not_of("0123456789") == std::string::npos;
  if (!list.is_array() || !is_number) return nullptr;
  const auto idx = static_cast<size_t>(std::stoi(index));
  return idx < list.size() ? &list[idx] : nullptr;
}

Error refused(std::string_view reference, const std::string& why) {
  return invalid_argument("\"$ref\" to " + std::string(reference.substr(0, 64)) + ", " + why);
}

// Null where the pointer leads nowhere, or into a document of its own.
const Value* value_at(const Value& document, std::string_view pointer) {
  const Value* at = &document;
  while (!pointer.empty() && at != nullptr) {
    if (at != &document && has_own_base(*at)) return nullptr;
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::optional<std::string> name = pointer_name(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    if (!name) return nullptr;
    if (at->is_array()) {
      at = element(*at, *name);
      continue;
    }
    const auto found = at->is_object() ? at->find(*name) : at->end();
    at = found == at->end() ? nullptr : &*found;
  }
  return at;
}

// Schemas that have the name. Values that are data, not schemas, are not looked into.
void find_anchors(const Value& value, bool is_root, const std::string& name,
                  std::vector<const Value*>& found) {
  constexpr std::array<std::string_view, 5> kData = {"const", "enum", "default", "examples",
                                                     "example"};
  if (value.is_object() && !is_root && has_own_base(value)) return;
  if (value.is_object()) {
    const auto is = [&](const char* key, const std::string& text) {
      const auto entry = value.find(key);
      return entry != value.end() && *entry == Value(text);
    };
    if (is("$anchor", name) || is("$id", "#" + name)) found.push_back(&value);
  }
  if (!value.is_structured()) return;
  for (const auto& [key, inner] : value.items()) {
    const bool is_data = value.is_object() && std::ranges::find(kData, key) != kData.end();
    if (!is_data) find_anchors(inner, /*is_root=*/false, name, found);
  }
}

// The reference without the document's own name in front.
std::string_view fragment_of(const Value& document, std::string_view reference) {
  auto id = document.is_object() ? document.find("$id") : document.end();
  if (document.is_object() && id == document.end()) id = document.find("id");
  if (reference.empty() || reference[0] == '#' || id == document.end() || !id->is_string()) {
    return reference;
  }
  std::string_view own = id->get_ref<const std::string&>();
  own = own.substr(0, own.find('#'));
  const bool is_own = !own.empty() && reference.substr(0, own.size()) == own &&
                      (reference.size() == own.size() || reference[own.size()] == '#');
  if (!is_own) return reference;
  return reference.size() == own.size() ? "#" : reference.substr(own.size());
}

}  // namespace

bool has_own_base(const Value& schema) {
  const auto id = schema.is_object() ? schema.find("$id") : schema.end();
  if (id == schema.end() || !id->is_string()) return false;
  const auto& text = id->get_ref<const std::string&>();
  return !text.empty() && text[0] != '#';
}

Result<const Value*> find_reference(const Value& document, std::string_view reference) {
  const std::string_view fragment = fragment_of(document, reference);
  if (fragment.empty() || fragment[0] != '#') {
    return refused(reference,
                   "which is not in this document: only # and what follows it is supported");
  }
  const std::optional<std::string> text = percent_decoded(fragment.substr(1));
  if (!text) return refused(reference, "which is not a fragment: % stands before two hex digits");
  if (text->empty() || text->front() == '/') {
    const Value* const target = value_at(document, *text);
    if (target != nullptr) return target;
    return refused(reference,
                   "which does not exist, or lies within a schema with an \"$id\" of its own");
  }
  std::vector<const Value*> found;
  find_anchors(document, /*is_root=*/true, *text, found);
  if (found.size() == 1) return found[0];
  return refused(reference, found.empty() ? "which does not exist: there is no such \"$anchor\""
                                          : "which is the \"$anchor\" of more than one schema");
}

}  // namespace fathom::grammar
