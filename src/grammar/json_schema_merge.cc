#include <algorithm>
#include <string>
#include <utility>

#include "grammar/json_schema.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

Value as_list(const Value& value) { return value.is_array() ? value : Value::array({value}); }

bool contains(const Value& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Value common_types(const Value& a, const Value& b) {
  Value common = Value::array();
  for (const Value& type : as_list(a)) {
    const bool narrows = type == Value("integer") && contains(as_list(b), Value("number"));
    if (contains(as_list(b), type) || narrows) common.push_back(type);
  }
  if (contains(as_list(a), Value("number")) && contains(as_list(b), Value("integer")) &&
      !contains(common, Value("integer"))) {
    common.push_back("integer");
  }
  return common;
}

// Whether the properties of `other` are all named in `schema`: then what `schema` says about further ones
// does not touch them.
bool names_all(const Value& schema, const Value& other) {
  const auto theirs = other.find("properties");
  if (theirs == other.end() || !theirs->is_object()) return true;
  const auto ours = schema.find("properties");
  for (const auto& [name, value] : theirs->items()) {
    if (ours == schema.end() || !ours->is_object() || !ours->contains(name)) return false;
  }
  return true;
}

bool closes(const Value& schema) {
  const auto found = schema.find("additionalProperties");
  return found != schema.end() && *found != Value(true);
}

bool speaks_of_items(const Value& schema) {
  return schema.contains("items") || schema.contains("prefixItems");
}

// "items" speaks about the items behind the prefix of its own schema, which differ between the two.
bool has_other_prefix(const Value& a, const Value& b) {
  if (!speaks_of_items(a) || !speaks_of_items(b)) return false;
  const auto prefix = [](const Value& schema) {
    if (schema.contains("prefixItems")) return schema["prefixItems"];
    const auto items = schema.find("items");
    return items != schema.end() && items->is_array() ? *items : Value::array();
  };
  return prefix(a) != prefix(b);
}

}  // namespace

void SchemaCompiler::merge(Value& all, const Value& more, const std::string& path) {
  const auto refuse = [&](const std::string& key) {
    fail(path, "\"allOf\" with different \"" + key.substr(0, 64) + "\" cannot be merged");
  };
  if ((closes(all) && !names_all(all, more)) || (closes(more) && !names_all(more, all))) {
    refuse("additionalProperties");
    return;
  }
  if (has_other_prefix(all, more)) {
    refuse("prefixItems");
    return;
  }
  for (const auto& [key, value] : more.items()) {
    if (!budget_.charge(16)) return;
    // Null would have to be allowed by every part: it is not written.
    if (key == "nullable") continue;
    const auto found = all.find(key);
    if (found == all.end()) {
      all[key] = value;
      continue;
    }
    if (*found == value) continue;
    const bool are_numbers = found->is_number() && value.is_number();
    const bool is_least =
        key == "minimum" || key == "exclusiveMinimum" || key == "minLength" || key == "minItems";
    const bool is_most =
        key == "maximum" || key == "exclusiveMaximum" || key == "maxLength" || key == "maxItems";
    if (key == "properties" && found->is_object() && value.is_object()) {
      for (const auto& [name, schema] : value.items()) {
        if (!budget_.charge(static_cast<int64_t>(found->size()) + 16)) return;
        const auto known = found->find(name);
        if (known == found->end()) {
          (*found)[name] = schema;
        } else if (*known != schema) {
          const Value pair = Value::array({*known, schema});
          *known = Value{{"allOf", pair}};
        }
      }
    } else if (key == "required" && found->is_array() && value.is_array()) {
      for (const Value& name : value) {
        if (!budget_.charge(static_cast<int64_t>(found->size()))) return;
        if (!contains(*found, name)) found->push_back(name);
      }
    } else if (key == "type") {
      *found = common_types(*found, value);
      // As the schema `false`: no value has two types.
      if (found->empty()) all["enum"] = Value::array();
    } else if (key == "enum" && found->is_array() && value.is_array()) {
      Value common = Value::array();
      for (const Value& one : *found) {
        if (!budget_.charge(static_cast<int64_t>(value.size()))) return;
        if (contains(value, one)) common.push_back(one);
      }
      *found = std::move(common);
    } else if (are_numbers && (is_least || is_most)) {
      if ((*found < value) == is_least) *found = value;
    } else if (key == "additionalProperties" && value == Value(true)) {
      continue;
    } else if (key == "additionalProperties" && *found == Value(true)) {
      *found = value;
    } else {
      refuse(key);
      return;
    }
  }
}

}  // namespace fathom::grammar
