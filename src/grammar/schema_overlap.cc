#include "grammar/schema_overlap.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace fathom::grammar {
namespace {

using Value = json::Value;

constexpr int kMaxDepth = 4;       // of properties in properties
constexpr size_t kMaxParts = 128;  // schemas behind references and in lists of allOf

// Types as bits. A number that is whole is an integer for a schema, however it is written.
constexpr unsigned kObject = 1, kArray = 2, kString = 4, kWhole = 8, kFraction = 16, kBoolean = 32,
                   kNull = 64, kAnyType = 127;

unsigned type_bits(const Value& name) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 7> kTypes = {
      {{"object", kObject},
       {"array", kArray},
       {"string", kString},
       {"integer", kWhole},
       {"number", kWhole | kFraction},
       {"boolean", kBoolean},
       {"null", kNull}}};
  for (const auto& [type, bits] : kTypes) {
    if (name == Value(type)) return bits;
  }
  return kAnyType;  // refused elsewhere
}

unsigned type_of(const Value& value) {
  if (value.is_object()) return kObject;
  if (value.is_array()) return kArray;
  if (value.is_string()) return kString;
  if (value.is_boolean()) return kBoolean;
  if (value.is_null()) return kNull;
  const bool is_whole =
      value.is_number_integer() || value.get<double>() == std::floor(value.get<double>());
  return is_whole ? kWhole : kFraction;
}

// The type that a keyword speaks about, as json_schema.cc has it; 0: it names none.
unsigned keyword_bits(std::string_view key) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 15> kKeywords = {
      {{"properties", kObject},
       {"required", kObject},
       {"additionalProperties", kObject},
       {"items", kArray},
       {"prefixItems", kArray},
       {"minItems", kArray},
       {"maxItems", kArray},
       {"minLength", kString},
       {"maxLength", kString},
       {"pattern", kString},
       {"format", kString},
       {"minimum", kWhole | kFraction},
       {"maximum", kWhole | kFraction},
       {"exclusiveMinimum", kWhole | kFraction},
       {"exclusiveMaximum", kWhole | kFraction}}};
  for (const auto& [name, bits] : kKeywords) {
    if (name == key) return bits;
  }
  return 0;
}

bool contains(const std::vector<Value>& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

// What several schemas say together; what is not looked at only makes fewer values fit.
struct SchemaOverlap::View {
  unsigned types = kAnyType;                 // of the values that satisfy it
  unsigned keyword_types = 0;                // that its keywords speak about
  bool names_type = false;                   // by type, const or enum
  bool is_complete = true;                   // nothing was left out
  std::optional<std::vector<Value>> values;  // const and enum
  std::set<std::string> required;
  std::map<std::string, Schemas> properties;
  Schemas closed;  // schemas that allow no members but those they list

  unsigned written_types(bool infers) const {
    const bool may_infer = infers && is_complete && !names_type && keyword_types != 0;
    return may_infer ? types & keyword_types : types;
  }
  void keep_values(std::vector<Value> allowed) {
    names_type = true;
    if (values) {
      std::erase_if(allowed, [&](const Value& value) { return !contains(*values, value); });
    }
    values = std::move(allowed);
  }
};

SchemaOverlap::View SchemaOverlap::view_of(const Schemas& schemas, int depth) {
  View view;
  Schemas pending = schemas;
  size_t num_parts = 0;
  while (!pending.empty()) {
    const Value& part = *pending.back();
    pending.pop_back();
    if (++num_parts > kMaxParts || !budget_.charge(128 + 16 * static_cast<int64_t>(part.size()))) {
      view.is_complete = false;
      break;
    }
    if (part == Value(false)) view.types = 0;
    if (!part.is_object()) continue;
    add_keywords(part, view, depth);
    if (part.contains("$ref")) {
      const Value* const target = resolve_(part);
      if (target != nullptr) pending.push_back(target);
    }
    const auto all_of = part.find("allOf");
    if (all_of == part.end() || !all_of->is_array()) continue;
    for (const Value& one : *all_of) pending.push_back(&one);
  }
  if (view.values) {
    std::erase_if(*view.values,
                  [&](const Value& value) { return (type_of(value) & view.types) == 0; });
    view.types = 0;
    for (const Value& value : *view.values) view.types |= type_of(value);
  }
  return view;
}

void SchemaOverlap::add_keywords(const Value& schema, View& view, int depth) {
  const auto nullable = schema.find("nullable");
  const bool adds_null = nullable != schema.end() && *nullable == Value(true);
  for (const auto& [key, value] : schema.items()) {
    view.keyword_types |= keyword_bits(key);
    if (key == "type") {
      unsigned bits = adds_null ? kNull : 0;
      if (!value.is_array()) bits |= type_bits(value);
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) bits |= type_bits(value[i]);
      view.types &= bits;
      view.names_type = true;
    } else if ((key == "enum" && value.is_array()) || key == "const") {
      std::vector<Value> allowed;
      if (key == "const") allowed.push_back(value);
      if (key == "enum") allowed.assign(value.begin(), value.end());
      if (adds_null) allowed.push_back(nullptr);
      budget_.charge(static_cast<int64_t>(allowed.size()) * 64);
      view.keep_values(std::move(allowed));
    } else if ((key == "anyOf" || key == "oneOf") && value.is_array()) {
      view.is_complete = false;
      unsigned bits = depth >= kMaxDepth ? kAnyType : adds_null ? kNull : 0;
      for (size_t i = 0; bits != kAnyType && i < value.size(); ++i) {
        bits |= view_of({&value[i]}, depth + 1).types;
      }
      view.types &= bits;
    } else if (key == "required" && value.is_array()) {
      for (const Value& name : value) {
        if (name.is_string()) view.required.insert(name.get<std::string>());
      }
    } else if (key == "properties" && value.is_object()) {
      for (const auto& [name, property] : value.items()) view.properties[name].push_back(&property);
    } else if (key == "additionalProperties" && value == Value(false)) {
      view.closed.push_back(&schema);
    }
  }
}

bool SchemaOverlap::never_satisfies(const Written& written, const Schemas& other) {
  const View ours = view_of(written.schemas, written.depth);
  const View theirs = view_of(other, written.depth);
  if (!budget_.ok()) return false;
  const unsigned common = ours.written_types(written.infers) & theirs.types;
  if (common == 0) return true;
  if (ours.values && theirs.values) {
    const auto size = static_cast<int64_t>(ours.values->size() * theirs.values->size());
    if (!budget_.charge(size * 8)) return false;
    if (std::none_of(ours.values->begin(), ours.values->end(),
                     [&](const Value& value) { return contains(*theirs.values, value); })) {
      return true;
    }
  }
  return common == kObject && property_differs(ours, theirs, written.depth);
}

bool SchemaOverlap::property_differs(const View& written, const View& other, int depth) {
  if (depth >= kMaxDepth) return false;
  std::set<std::string> present = written.required;
  present.insert(other.required.begin(), other.required.end());
  const auto forbids = [](const View& view, const std::string& name) {
    return std::any_of(view.closed.begin(), view.closed.end(), [&](const Value* schema) {
      const auto listed = schema->find("properties");
      return listed == schema->end() || !listed->is_object() || !listed->contains(name);
    });
  };
  return std::any_of(present.begin(), present.end(), [&](const std::string& name) {
    if (forbids(written, name) || forbids(other, name)) return true;
    const auto ours = written.properties.find(name), theirs = other.properties.find(name);
    return ours != written.properties.end() && theirs != other.properties.end() &&
           never_satisfies({ours->second, written.is_complete, depth + 1}, theirs->second);
  });
}

}  // namespace fathom::grammar
