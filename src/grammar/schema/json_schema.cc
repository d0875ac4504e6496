#include "grammar/schema/json_schema.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "grammar/schema/front_ends.h"
#include "grammar/schema/json_space.h"
#include "grammar/schema/json_values.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

constexpr int kJsonDepth = 128;  // of the document

}  // namespace

std::string SchemaCompiler::place() const {
  return "json schema at " + (path_.size() <= 120 ? path_ : path_.substr(0, 120) + "...") + ": ";
}

Expression SchemaCompiler::fail(const std::string& what) {
  budget_.fail(invalid_argument(place() + what));
  return choice({});
}

Expression SchemaCompiler::compile() {
  Expression root = value_of({{&document_, false}}, "#");
  build_pending();
  return root;
}

void SchemaCompiler::build_pending() {
  while (!pending_.empty() && budget_.ok()) {
    const Pending next = std::move(pending_.front());
    pending_.pop_front();
    path_ = next.path;
    rules_.define(next.rule, build(next.schemas));
    // What a pattern is refused for says where in the pattern, not which of the schema's.
    if (!budget_.ok()) budget_.name_place(place());
  }
}

int SchemaCompiler::identity(const Value* schema) {
  const auto [known, is_new] = identities_.try_emplace(schema, 0);
  if (!is_new) return known->second;
  std::string text = json::dump(*schema);
  budget_.charge(64 + 4 * static_cast<int64_t>(text.size()));
  budget_.charge_memory(static_cast<int64_t>(text.size()) + 128);
  const auto next = static_cast<int>(identity_of_text_.size());
  known->second = identity_of_text_.try_emplace(std::move(text), next).first->second;
  return known->second;
}

Expression SchemaCompiler::value_of(Conjunction schemas, const std::string& path) {
  std::vector<std::pair<int, bool>> key;
  std::erase_if(schemas,
                [](const SignedSchema& one) { return *one.schema == Value(!one.negated); });
  for (SignedSchema& one : schemas) {
    one = reader_.target_of(one);
    key.emplace_back(identity(one.schema), one.negated);
  }
  if (!reader_.ok() && budget_.ok()) {
    path_ = path;
    return fail(reader_.problem());
  }
  if (!budget_.ok()) return choice({});
  if (schemas.empty()) return json_any_value(rules_);
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto [known, is_new] = rule_of_.try_emplace(std::move(key), 0);
  if (is_new) {
    known->second = rules_.reserve();
    pending_.push_back({known->second, std::move(schemas), path});
  }
  return rule(known->second);
}

Expression SchemaCompiler::build(const Conjunction& schemas) {
  const Alternatives alternatives = reader_.read(schemas);
  std::vector<Expression> ways;
  for (const Facts& facts : alternatives.all) {
    if (!reader_.ok() || !budget_.ok()) break;
    ways.push_back(build_facts(facts));
  }
  if (!reader_.ok() && budget_.ok()) return fail(reader_.problem());
  if (ways.empty() && !alternatives.is_exact) return fail(reader_.left_out());
  return choice(std::move(ways));
}

// Without a type, the keywords say which values are meant.
unsigned SchemaCompiler::types_of(const Facts& facts) {
  const bool is_meant = !facts.names_types && facts.mentioned != 0;
  return is_meant ? facts.types & facts.mentioned : facts.types;
}

// Nothing is asked.
bool SchemaCompiler::takes_any_value(const Facts& facts) {
  return !facts.values && facts.types == kAnyType && facts.mentioned == 0 &&
         facts.excluded.empty() && !facts.names_types;
}

Expression SchemaCompiler::build_facts(const Facts& facts) {
  if (facts.values) return build_values(facts);
  if (takes_any_value(facts)) return json_any_value(rules_);
  const unsigned types = types_of(facts);
  std::vector<Expression> ways;
  if ((types & kNumber) != 0) ways.push_back(build_number(facts, types & kNumber));
  for (const unsigned type : {kObject, kArray, kString, kBoolean, kNull}) {
    if ((types & type) != 0 && budget_.ok() && reader_.ok())
      ways.push_back(build_type(type, facts));
  }
  return choice(std::move(ways));
}

Expression SchemaCompiler::build_type(unsigned type, const Facts& facts) {
  const auto excludes = [&](const Value& value) {
    return std::any_of(facts.excluded.begin(), facts.excluded.end(),
                       [&](const Value* one) { return are_equal(*one, value); });
  };
  if (type == kNull) return excludes(nullptr) ? choice({}) : literal("null");
  if (type == kBoolean) {
    std::vector<Expression> ways;
    if (!excludes(true)) ways.push_back(literal("true"));
    if (!excludes(false)) ways.push_back(literal("false"));
    return choice(std::move(ways));
  }
  if (type == kString) {
    const bool has_words = std::any_of(facts.excluded.begin(), facts.excluded.end(),
                                       [](const Value* one) { return one->is_string(); });
    return is_free(facts.string) && !has_words ? json_string(rules_) : build_string(facts);
  }
  ArrayFacts array = facts.array;
  ObjectFacts object = facts.object;
  for (const Value* const value : facts.excluded) {
    if (type_of(*value) != type) continue;
    if (!value->empty())
      return fail("excluding an array or object that is not empty is not supported");
    array.min = std::max<int64_t>(array.min, 1);
    object.min = std::max<int64_t>(object.min, 1);
  }
  return type == kArray ? build_array(array) : build_object(object);
}

Expression SchemaCompiler::build_values(const Facts& facts) {
  std::vector<Expression> ways;
  for (const Value* const value : *facts.values) {
    if (!budget_.charge(16)) break;
    if (reader_.satisfies(*value, facts, SchemaReader::Sure::kSurely))
      ways.push_back(value_text(*value));
  }
  return choice(std::move(ways));
}

// In compact form, with white space where lists of values may have it.
Expression SchemaCompiler::value_text(const Value& value) {
  if (!value.is_structured() || value.empty()) return literal(json::dump(value));
  std::vector<Expression> parts = {literal(value.is_array() ? "[" : "{")};
  bool is_first = true;
  for (const auto& [name, inner] : value.items()) {
    if (!budget_.charge(32)) break;
    if (!is_first) parts.push_back(json_comma(rules_));
    is_first = false;
    parts.push_back(json_space(rules_));
    if (value.is_object()) {
      parts.push_back(literal(json_quoted(name)));
      parts.push_back(json_colon(rules_));
    }
    parts.push_back(value_text(inner));
  }
  parts.push_back(json_space(rules_));
  parts.push_back(literal(value.is_array() ? "]" : "}"));
  return sequence(std::move(parts));
}

Expression lower_json_schema(std::string_view schema, const JsonStyle& style, RuleSet& rules) {
  Budget& budget = rules.budget();
  rules.set_json_space(style.space);
  if (!budget.charge_source(static_cast<int64_t>(schema.size()))) return choice({});
  const Result<Value> document = json::parse(schema, {.max_depth = kJsonDepth});
  if (!document) {
    budget.fail(invalid_argument("json schema: " + document.error().message));
    return choice({});
  }
  return SchemaCompiler(*document, style.unlisted, rules).compile();
}

}  // namespace fathom::grammar
