// Objects of schemas as DSML's parameters: what SchemaCompiler writes of the outermost object in place of JSON.

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "grammar/schema/dsml_form.h"
#include "grammar/schema/json_schema.h"
#include "grammar/schema/json_values.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

constexpr int kParameterSchemaDepth = 128;  // of the document

const Value& string_schema() {
  static const Value schema = {{"type", "string"}};
  return schema;
}

// One parameter or more, a line each.
Expression lines_of(const Expression& one) {
  return graph({{0, 1, one}, {1, 0, literal("\n")}}, {1}, 2);
}

Expression any_parameters(const Marker& mark, DsmlTexts& texts, RuleSet& rules) {
  const Expression name = texts.any_name();
  return optional(
      lines_of(choice({dsml_parameter(mark, name, DsmlKind::kText, texts.any_text()),
                       dsml_parameter(mark, name, DsmlKind::kJson, json_any_value(rules))})));
}

// But a string, which is written as a text.
Expression any_other_value(RuleSet& rules) {
  return choice({json_any_object(rules), json_any_array(rules), json_number(rules), literal("true"),
                 literal("false"), literal("null")});
}

}  // namespace

Expression SchemaCompiler::compile_parameters(const Marker& mark, DsmlTexts& texts) {
  parameters_.emplace(ParameterForm{mark, texts});
  const Alternatives alternatives = reader_.read({reader_.target_of({&document_, false})});
  std::vector<Expression> ways;
  for (const Facts& facts : alternatives.all) {
    if (!reader_.ok() || !budget_.ok()) break;
    if (facts.values) {
      for (const Value* const value : *facts.values) {
        if (value->is_object() && reader_.satisfies(*value, facts, SchemaReader::Sure::kSurely))
          ways.push_back(parameters_text(*value));
      }
    } else if ((types_of(facts) & kObject) != 0) {
      ways.push_back(build_type(kObject, facts));
    }
  }
  parameters_.reset();
  if (!reader_.ok() && budget_.ok()) return fail(reader_.problem());
  if (ways.empty() && !alternatives.is_exact) return fail(reader_.left_out());
  build_pending();
  return choice(std::move(ways));
}

// A value that the schema lists.
Expression SchemaCompiler::parameters_text(const Value& object) {
  std::vector<Expression> parts;
  for (const auto& [name, value] : object.items()) {
    if (!parts.empty()) parts.push_back(literal("\n"));
    const bool is_writable =
        is_dsml_name(name) && (!value.is_string() || is_dsml_text(value.get<std::string>()));
    if (!is_writable || !budget_.charge(32)) return choice({});
    parts.push_back(
        value.is_string()
            ? dsml_parameter(parameters_->mark, literal(name), DsmlKind::kText,
                             literal(value.get<std::string>()))
            : dsml_parameter(parameters_->mark, literal(name), DsmlKind::kJson, value_text(value)));
  }
  return sequence(std::move(parts));
}

Expression SchemaCompiler::any_parameters_of_object() {
  return any_parameters(parameters_->mark, parameters_->texts, rules_);
}

// Strings are written as texts, other values as JSON: both ways, where the schema takes both.
Expression SchemaCompiler::parameter(const Expression& name, Conjunction schemas,
                                     const std::string& path) {
  for (SignedSchema& one : schemas) one = reader_.target_of(one);
  const std::string outer = std::exchange(path_, path);
  const Alternatives alternatives = reader_.read(schemas);
  std::vector<Expression> texts;
  bool has_others = false, has_all = false;
  for (const Facts& facts : alternatives.all) {
    if (!reader_.ok() || !budget_.ok()) break;
    has_all = has_all || takes_any_value(facts);
    const unsigned types = types_of(facts);
    if (facts.values) {
      for (const Value* const value : *facts.values) {
        has_others = has_others || !value->is_string();
        if (value->is_string() && is_dsml_text(value->get<std::string>()) &&
            reader_.satisfies(*value, facts, SchemaReader::Sure::kSurely))
          texts.push_back(literal(value->get<std::string>()));
      }
      continue;
    }
    if ((types & kString) != 0) texts.push_back(parameter_text(facts));
    has_others = has_others || (types & ~kString) != 0;
  }
  if (!reader_.ok() && budget_.ok()) fail(reader_.problem());
  if (alternatives.all.empty() && !alternatives.is_exact) fail(reader_.left_out());
  path_ = outer;
  std::vector<Expression> ways;
  if (!texts.empty()) {
    ways.push_back(dsml_parameter(parameters_->mark, name, DsmlKind::kText, choice(texts)));
    schemas.push_back({&string_schema(), /*negated=*/true});
  }
  if (has_others) {
    ways.push_back(
        dsml_parameter(parameters_->mark, name, DsmlKind::kJson,
                       has_all ? any_other_value(rules_) : value_of(std::move(schemas), path)));
  }
  return choice(std::move(ways));
}

Expression SchemaCompiler::parameter_text(const Facts& facts) {
  std::vector<std::string> words;
  for (const Value* const value : facts.excluded) {
    if (value->is_string()) words.push_back(value->get<std::string>());
  }
  if (is_free(facts.string) && words.empty()) return parameters_->texts.any_text();
  const std::optional<TextSet> set = reader_.texts().set_of(facts.string, words, TextSets::kAtMost);
  if (!budget_.ok()) return choice({});
  const std::optional<Expression> text =
      set ? parameters_->texts.text_of(*set) : std::optional<Expression>();
  if (text || !budget_.ok()) return text.value_or(choice({}));
  return fail(
      "\"pattern\", \"format\", lengths and excluded values are too large to be kept together");
}

Expression SchemaCompiler::listed_parameter(const std::string& name, Conjunction schemas) {
  if (!is_dsml_name(name)) {
    return fail("the name " + json::shown_text(name) +
                " cannot be written in a tag of the chat format");
  }
  return parameter(literal(name), std::move(schemas), path_ + "/properties/" + name);
}

Expression lower_dsml_parameters(std::string_view schema, const Marker& mark,
                                 const JsonStyle& style, RuleSet& rules) {
  Budget& budget = rules.budget();
  DsmlTexts texts(rules);
  rules.set_json_space(style.space);
  if (schema.empty()) return any_parameters(mark, texts, rules);
  if (!budget.charge_source(static_cast<int64_t>(schema.size()))) return choice({});
  const Result<Value> document = json::parse(schema, {.max_depth = kParameterSchemaDepth});
  if (!document) {
    budget.fail(invalid_argument("json schema: " + document.error().message));
    return choice({});
  }
  return SchemaCompiler(*document, style.unlisted, rules).compile_parameters(mark, texts);
}

}  // namespace fathom::grammar
