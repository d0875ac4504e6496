#include "api/grammar_fields.h"

#include <algorithm>
#include <utility>

#include "api/tables/field_groups.h"
#include "api/tables/responses_fields.h"
#include "base/json.h"

namespace fathom::api {
namespace {

using GrammarKind = GrammarSource::Kind;

constexpr size_t kMaxChoices = 1024;
constexpr size_t kMaxSpacePatternBytes = 1024;

bool is_json(GrammarKind kind) {
  return kind == GrammarKind::kJsonSchema || kind == GrammarKind::kJsonObject;
}

// A text between quotes, as rules have it.
void append_literal(const std::string& text, std::string& rules) {
  static constexpr char kHex[] = "0123456789abcdef";
  rules += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      rules += '\\';
      rules += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      rules += "\\x";
      rules += kHex[byte / 16];
      rules += kHex[byte % 16];
    } else {
      rules += c;
    }
  }
  rules += '"';
}

class GrammarReader {
 public:
  explicit GrammarReader(const ServedModel& model)
      : max_bytes_(static_cast<size_t>(model.limits.max_grammar_bytes)),
        is_dense_(model.json_without_white_space) {}

  void read_pattern(FieldReader& reader, std::string_view key, GrammarKind kind) {
    std::optional<std::string> text = reader.text(key, max_bytes_);
    if (!text) return;
    if (text->empty()) return reader.fail(key, "a string that is not empty");
    set(reader, key, {.kind = kind, .text = std::move(*text)});
  }

  // SGLang takes the schema as text; as an object it is one step less for the client.
  void read_schema_text(FieldReader& reader, std::string_view key) {
    const json::Value* value = reader.find(key);
    if (value == nullptr) return;
    if (value->is_object()) return set_schema(reader, key, *value);
    const std::optional<std::string> text = reader.text(key, max_bytes_);
    if (!text) return;
    const Result<json::Value> schema = json::parse(*text);
    if (!schema) {
      return reader.fail_with(key,
                              reader.path_of(key) + " is no schema: " + schema.error().message);
    }
    if (!schema->is_object() && !schema->is_boolean()) {
      return reader.fail(key, "the text of a JSON schema, that is of an object");
    }
    set_schema(reader, key, *schema);
  }

  // SGLang and vLLM take it as text, too.
  void read_structural_tag(FieldReader& reader, std::string_view key) {
    const json::Value* value = reader.find(key);
    if (value == nullptr) return;
    if (value->is_object()) return set_json(reader, key, GrammarKind::kStructuralTag, *value);
    const std::optional<std::string> text = reader.text(key, max_bytes_);
    if (!text) return;
    const Result<json::Value> tag = json::parse(*text);
    if (!tag)
      return reader.fail_with(key, reader.path_of(key) + " is no JSON: " + tag.error().message);
    if (!tag->is_object())
      return reader.fail(key, "the text of a structural tag, that is of an object");
    set_json(reader, key, GrammarKind::kStructuralTag, *tag);
  }

  // One of several texts, as rules.
  void read_choice(FieldReader& reader, std::string_view key) {
    const json::Value* texts = reader.array(key, kMaxChoices);
    if (texts == nullptr) return;
    if (texts->empty()) return reader.fail(key, "not empty");
    std::string rules = "root ::= ";
    for (size_t i = 0; i < texts->size(); ++i) {
      const json::Value& text = (*texts)[i];
      if (!text.is_string()) {
        return reader.problem().set(
            broken_rule(element_path(reader.path_of(key), i), text, "a string"));
      }
      if (i > 0) rules += " | ";
      append_literal(text.get_ref<const std::string&>(), rules);
    }
    if (rules.size() > max_bytes_) {
      return reader.fail_with(key, reader.path_of(key) + " is longer than " +
                                       std::to_string(max_bytes_) + " bytes, written as rules");
    }
    set(reader, key, {.kind = GrammarKind::kEbnf, .text = std::move(rules)});
  }

  // vLLM's, where one of these is set.
  void read_structured_outputs(FieldReader& reader) {
    const json::Value* form = reader.object("structured_outputs");
    if (form == nullptr) return;
    FieldReader inner(*form, reader.path_of("structured_outputs"), structured_outputs_fields(),
                      reader.problem());
    read_schema_text(inner, "json");
    read_choice(inner, "choice");
    read_pattern(inner, "regex", GrammarKind::kRegex);
    read_pattern(inner, "grammar", GrammarKind::kEbnf);
    read_structural_tag(inner, "structural_tag");
    if (inner.boolean("json_object").value_or(false)) {
      set(inner, "json_object", {.kind = GrammarKind::kJsonObject, .text = ""});
    }
    read_space_pattern(inner, "whitespace_pattern");
    if (inner.boolean("disable_any_whitespace").value_or(false))
      set_space(inner, "disable_any_whitespace", "");
    if (inner.boolean("disable_additional_properties").value_or(false))
      options_.closed_by = inner.path_of("disable_additional_properties");
  }

  void read_space_pattern(FieldReader& reader, std::string_view key) {
    std::optional<std::string> pattern = reader.text(key, kMaxSpacePatternBytes);
    if (pattern) set_space(reader, key, std::move(*pattern));
  }

  // "xgrammar:no-fallback,disable-any-whitespace": which engine it is has no effect, its options do.
  void read_backend(FieldReader& reader, std::string_view key) {
    const std::optional<std::string> backend = reader.text(key, 256);
    const size_t colon = backend ? backend->find(':') : std::string::npos;
    if (colon == std::string::npos) return;
    for (size_t begin = colon + 1; begin < backend->size();) {
      const size_t end = std::min(backend->find(',', begin), backend->size());
      const std::string option = backend->substr(begin, end - begin);
      begin = end + 1;
      if (option == "disable-any-whitespace") {
        set_space(reader, key, "");
      } else if (option == "disable-additional-properties" ||
                 option == "no-additional-properties") {
        options_.closed_by = reader.path_of(key);
      } else if (option != "no-fallback") {
        reader.fail_with(key, reader.path_of(key) + " has the option " + shown_name(option) +
                                  ", must have disable-any-whitespace, "
                                  "disable-additional-properties or no-fallback");
      }
    }
  }

  // What was said about JSON, whichever field has the form. REQUIRES: all fields are read.
  void add_options(FieldProblem& problem) {
    for (const std::string& path : {options_.spaced_by, options_.closed_by}) {
      if (path.empty() || is_json(source_.kind)) continue;
      problem.set(invalid_parameter(path, path + " is set, but the answer is not held to JSON"));
    }
    source_.is_closed = !options_.closed_by.empty();
    if (!options_.spaced_by.empty()) source_.white_space = options_.space;
  }

  void read_response_format(FieldReader& reader) {
    const json::Value* format = reader.object("response_format");
    if (format == nullptr) return;
    FieldReader inner(*format, reader.path_of("response_format"), response_format_fields(),
                      reader.problem());
    const std::optional<std::string> type = inner.text("type", 64);
    if (reader.problem()) return;
    if (!type) return inner.fail_missing("type");
    if (type != "json_schema" && inner.find("json_schema") != nullptr) {
      inner.fail_with("json_schema",
                      inner.path_of("json_schema") + " is set, but the type is not json_schema");
    }
    if (type != "json_object" && inner.find("schema") != nullptr) {
      inner.fail_with("schema",
                      inner.path_of("schema") + " is set, but the type is not json_object");
    }
    for (const std::string_view key : {"format", "structures", "triggers"}) {
      if (type == "structural_tag" || inner.find(key) == nullptr) continue;
      inner.fail_with(key, inner.path_of(key) + " is set, but the type is not structural_tag");
    }
    if (type == "structural_tag") {
      set_json(reader, "response_format", GrammarKind::kStructuralTag, *format);
    } else if (type == "json_object" && inner.object("schema") != nullptr) {
      set_schema(inner, "schema", *inner.object("schema"));
    } else if (type == "json_object") {
      set(reader, "response_format", {.kind = GrammarKind::kJsonObject, .text = ""});
    } else if (type == "json_schema") {
      read_named_schema(reader, inner);
    } else if (type != "text") {
      inner.fail("type", "text, json_object, json_schema or structural_tag");
    }
  }

  void read_flat_format(FieldReader& reader, std::string_view key) {
    const json::Value* format = reader.object(key);
    if (format == nullptr) return;
    FieldReader inner(*format, reader.path_of(key), flat_format_fields(), reader.problem());
    const std::optional<std::string> type = inner.text("type", 64);
    if (!type) inner.fail_missing("type");
    if (reader.problem()) return;
    if (type == "json_object") {
      set(reader, key, {.kind = GrammarKind::kJsonObject, .text = ""});
    } else if (type == "json_schema") {
      read_schema_of(reader, inner, /*may_lack_schema=*/false);
    } else if (type != "text") {
      inner.fail("type", "text, json_object or json_schema");
    }
  }

  GrammarFields take() && {
    if (field_.empty()) return {};
    if (is_dense_ && is_json(source_.kind) && !source_.white_space) source_.white_space = "";
    return {.source = std::make_shared<const GrammarSource>(std::move(source_)), .field = field_};
  }

 private:
  // Where they come from; empty: nothing was said.
  struct JsonOptions {
    std::string spaced_by, closed_by;
    std::string space;
  };

  void set_space(FieldReader& reader, std::string_view key, std::string pattern) {
    const std::string path = reader.path_of(key);
    if (!options_.spaced_by.empty() && options_.space != pattern) {
      return reader.fail_with(
          key, path + " and " + options_.spaced_by + " are both set, must be at most one of them");
    }
    options_.spaced_by = path;
    options_.space = std::move(pattern);
  }

  // {"type": "json_schema", "json_schema": {"name", "schema", "strict"}}
  void read_named_schema(FieldReader& reader, FieldReader& format) {
    const json::Value* named = format.object("json_schema");
    if (reader.problem()) return;
    if (named == nullptr) {
      return format.fail_missing("json_schema");
    }
    FieldReader inner(*named, format.path_of("json_schema"), named_schema_fields(),
                      reader.problem());
    read_schema_of(reader, inner, /*may_lack_schema=*/true);
  }

  // What has a schema and says things about it. In chat's form OpenAI's API leaves the schema optional.
  void read_schema_of(FieldReader& reader, FieldReader& inner, bool may_lack_schema) {
    inner.text("name", 256);
    // The output always follows the schema; being strict says how its silence is meant.
    const bool is_strict = inner.boolean("strict").value_or(false);
    const json::Value* schema = inner.find("schema");
    if (reader.problem()) return;
    if (schema == nullptr) {
      if (!may_lack_schema) return inner.fail_missing("schema");
      set(inner, "schema", {.kind = GrammarKind::kJsonObject, .text = ""});
    } else if (schema->is_boolean()) {
      set_schema(inner, "schema", *schema);
    } else {
      read_schema_text(inner, "schema");
    }
    source_.is_strict = is_strict;
  }

  void set_schema(FieldReader& reader, std::string_view key, const json::Value& schema) {
    set_json(reader, key, GrammarKind::kJsonSchema, schema);
  }

  void set_json(FieldReader& reader, std::string_view key, GrammarKind kind,
                const json::Value& value) {
    std::string text = json::dump(value);
    if (text.size() > max_bytes_) {
      return reader.fail_with(key, reader.path_of(key) + " has " + std::to_string(text.size()) +
                                       " bytes, must have at most " + std::to_string(max_bytes_));
    }
    set(reader, key, {.kind = kind, .text = std::move(text)});
  }

  void set(FieldReader& reader, std::string_view key, GrammarSource source) {
    const std::string path = reader.path_of(key);
    if (!field_.empty()) {
      return reader.fail_with(
          key, path + " and " + field_ + " are both set, must be at most one of them");
    }
    // OpenAI's errors name the parameter, not the place in it.
    const bool is_format = path.starts_with("response_format");
    source.field = is_format ? "response_format" : path;
    source_ = std::move(source);
    field_ = path;
  }

  size_t max_bytes_;
  bool is_dense_;  // JSON has no white space where the request does not say which
  GrammarSource source_;
  std::string field_;  // the one that set it; empty = none
  JsonOptions options_;
};

}  // namespace

GrammarFields read_flat_format(FieldReader& reader, std::string_view key,
                               const ServedModel& model) {
  GrammarReader grammar(model);
  grammar.read_flat_format(reader, key);
  return std::move(grammar).take();
}

GrammarFields read_grammar(FieldReader& reader, const ServedModel& model, GrammarNames names) {
  GrammarReader grammar(model);
  if (names == GrammarNames::kAll) {
    grammar.read_response_format(reader);
    grammar.read_structured_outputs(reader);
    grammar.read_schema_text(reader, "guided_json");
    grammar.read_choice(reader, "guided_choice");
    grammar.read_pattern(reader, "guided_regex", GrammarKind::kRegex);
    grammar.read_pattern(reader, "guided_grammar", GrammarKind::kEbnf);
    grammar.read_pattern(reader, "grammar", GrammarKind::kEbnf);
    grammar.read_space_pattern(reader, "guided_whitespace_pattern");
    grammar.read_backend(reader, "guided_decoding_backend");
  }
  grammar.read_schema_text(reader, "json_schema");
  grammar.read_pattern(reader, "regex", GrammarKind::kRegex);
  grammar.read_pattern(reader, "ebnf", GrammarKind::kEbnf);
  grammar.read_structural_tag(reader, "structural_tag");
  grammar.add_options(reader.problem());
  return std::move(grammar).take();
}

}  // namespace fathom::api
