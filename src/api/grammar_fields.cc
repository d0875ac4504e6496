#include "api/grammar_fields.h"

#include <utility>

#include "api/field_groups.h"

namespace fathom::api {
namespace {

using GrammarKind = GrammarSource::Kind;

class GrammarReader {
 public:
  explicit GrammarReader(const ServedModel& model)
      : max_bytes_(static_cast<size_t>(model.limits.max_grammar_bytes)) {}

  void read_pattern(FieldReader& reader, std::string_view key, GrammarKind kind) {
    std::optional<std::string> text = reader.text(key, max_bytes_);
    if (!text) return;
    if (text->empty()) return reader.fail(key, "a string that is not empty");
    set(reader, key, {.kind = kind, .text = std::move(*text)});
  }

  // SGLang takes the schema as text; as an object it is one step less for the client.
  void read_schema_text(FieldReader& reader) {
    const json::Value* value = reader.find("json_schema");
    if (value == nullptr) return;
    if (value->is_object()) return set_schema(reader, "json_schema", *value);
    const std::optional<std::string> text = reader.text("json_schema", max_bytes_);
    if (!text) return;
    const Result<json::Value> schema = json::parse(*text);
    if (!schema) {
      return reader.fail_with("json_schema", reader.path_of("json_schema") +
                                                 " is no schema: " + schema.error().message);
    }
    if (!schema->is_object() && !schema->is_boolean()) {
      return reader.fail("json_schema", "the text of a JSON schema, that is of an object");
    }
    set_schema(reader, "json_schema", *schema);
  }

  void read_response_format(FieldReader& reader) {
    const json::Value* format = reader.object("response_format");
    if (format == nullptr) return;
    FieldReader inner(*format, reader.path_of("response_format"), response_format_fields(),
                      reader.problem());
    const std::optional<std::string> type = inner.text("type", 64);
    if (reader.problem()) return;
    if (!type) return inner.fail_with("type", inner.path_of("type") + " is missing");
    if (type != "json_schema" && inner.find("json_schema") != nullptr) {
      inner.fail_with("json_schema",
                      inner.path_of("json_schema") + " is set, but the type is not json_schema");
    }
    if (type == "json_object") {
      set(reader, "response_format", {.kind = GrammarKind::kJsonObject, .text = ""});
    } else if (type == "json_schema") {
      read_named_schema(reader, inner);
    } else if (type != "text") {
      inner.fail("type", "text, json_object or json_schema");
    }
  }

  GrammarFields take() && { return std::move(fields_); }

 private:
  // {"type": "json_schema", "json_schema": {"name", "schema", "strict"}}
  void read_named_schema(FieldReader& reader, FieldReader& format) {
    const json::Value* named = format.object("json_schema");
    if (reader.problem()) return;
    if (named == nullptr) {
      return format.fail_with("json_schema", format.path_of("json_schema") + " is missing");
    }
    FieldReader inner(*named, format.path_of("json_schema"), named_schema_fields(),
                      reader.problem());
    inner.text("name", 256);
    // Read for its type only: the output always follows the schema.
    inner.boolean("strict");
    const json::Value* schema = inner.object("schema");
    if (reader.problem()) return;
    if (schema == nullptr) {
      return inner.fail_with("schema", inner.path_of("schema") + " is missing");
    }
    set_schema(inner, "schema", *schema);
  }

  void set_schema(FieldReader& reader, std::string_view key, const json::Value& schema) {
    std::string text = json::dump(schema);
    if (text.size() > max_bytes_) {
      return reader.fail_with(key, reader.path_of(key) + " has " + std::to_string(text.size()) +
                                       " bytes, must have at most " + std::to_string(max_bytes_));
    }
    set(reader, key, {.kind = GrammarKind::kJsonSchema, .text = std::move(text)});
  }

  void set(FieldReader& reader, std::string_view key, GrammarSource source) {
    const std::string path = reader.path_of(key);
    if (!fields_.field.empty()) {
      return reader.fail_with(
          key, path + " and " + fields_.field + " are both set, must be at most one of them");
    }
    // OpenAI's errors name the parameter, not the place in it.
    const bool is_format = path.starts_with("response_format");
    source.field = is_format ? "response_format" : path;
    fields_ = {.source = std::move(source), .field = path};
  }

  size_t max_bytes_;
  GrammarFields fields_;
};

}  // namespace

GrammarFields read_grammar(FieldReader& reader, const ServedModel& model,
                           bool has_response_format) {
  GrammarReader grammar(model);
  if (has_response_format) grammar.read_response_format(reader);
  grammar.read_schema_text(reader);
  grammar.read_pattern(reader, "regex", GrammarKind::kRegex);
  grammar.read_pattern(reader, "ebnf", GrammarKind::kEbnf);
  return std::move(grammar).take();
}

}  // namespace fathom::api
