#include "api/request_fields.h"

#include <algorithm>
#include <limits>

#include "api/tables/field_check.h"
#include "api/tables/field_groups.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
Parsed<json::Members> parse_body(std::string_view body) {
  const auto num_bytes = static_cast<int64_t>(body.size());
  Result<json::Members> members = json::Members::scan(
      body, {.max_value_bytes = kMaxValueBytes + kMaxValueBytesPerByte * num_bytes});
  if (!members) return broken_body(members.error());
  return std::move(*members);
}

void read_model(FieldReader& reader, const ServedModel& model, GenerationRequest& request) {
  request.form.model = model.name();
  const std::optional<std::string> asked =
      reader.text("model", std::numeric_limits<uint16_t>::max());
  if (asked && !model.answers_to(*asked)) reader.problem().set(model_not_found(*asked));
}

void read_stop_form(FieldReader& reader, GenerationItem& item) {
  const std::optional<bool> shown = reader.boolean("include_stop_str_in_output");
  const std::optional<bool> untrimmed = reader.boolean("no_stop_trim");
  if (shown && untrimmed && *shown != *untrimmed) {
    reader.fail_with("include_stop_str_in_output",
                     "include_stop_str_in_output and no_stop_trim contradict each other");
  }
  item.no_stop_trim = shown.value_or(untrimmed.value_or(item.no_stop_trim));
}

void read_stream(FieldReader& reader, GenerationRequest& request) {
  request.form.stream = reader.boolean("stream").value_or(false);
  if (const json::Value* options = reader.object("stream_options")) {
    FieldReader inner(*options, "stream_options", stream_options_fields(), reader.problem());
    request.form.include_usage = inner.boolean("include_usage").value_or(false);
    request.form.continuous_usage_stats = inner.boolean("continuous_usage_stats").value_or(false);
  }
  if (const json::Value* usage = reader.object("usage")) {
    FieldReader inner(*usage, "usage", usage_wish_fields(), reader.problem());
    request.form.include_usage =
        inner.boolean("include").value_or(false) || request.form.include_usage;
  }
  // Nothing is read there: the table says what would be asked for.
  if (const json::Value* options = reader.object("options"))
    check_names(*options, "options", ollama_options_fields(), reader.problem());
}

void read_placement(FieldReader& reader, const ServedModel& model, GenerationRequest& request) {
  request.priority = reader
                         .integer("priority", {std::numeric_limits<int32_t>::min(),
                                               std::numeric_limits<int32_t>::max()})
                         .value_or(0);
  const auto max_bytes = static_cast<size_t>(model.limits.max_salt_bytes);
  request.cache_salt = reader.text("cache_salt", max_bytes).value_or("");
  const std::string extra = reader.text("extra_key", max_bytes).value_or("");
  // With its length in front, no two different pairs give the same salt.
  if (!extra.empty()) {
    request.cache_salt =
        std::to_string(request.cache_salt.size()) + ":" + request.cache_salt + ":" + extra;
  }
  // One data-parallel rank: the first is the only one.
  if (const json::Value* rank = reader.find("routed_dp_rank")) {
    if (!integer_in(*rank, {0, 0})) reader.fail("routed_dp_rank", "0, the only rank");
  }
}

std::optional<std::string> read_request_id(const json::Value& value, const std::string& path,
                                           const ServedModel& model, FieldProblem& problem) {
  const int max_bytes = model.limits.max_name_bytes;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const bool is_short = !text.empty() && text.size() <= static_cast<size_t>(max_bytes);
    if (is_short && std::ranges::none_of(text, is_control)) return text;
  }
  problem.set(broken_rule(
      path, value,
      "a string of 1 to " + std::to_string(max_bytes) + " bytes without control characters"));
  return std::nullopt;
}

void read_rid(FieldReader& reader, const ServedModel& model, GenerationRequest& request) {
  for (const char* key : {"rid", "request_id"}) {
    const json::Value* value = reader.find(key);
    if (value == nullptr) continue;
    std::string id =
        read_request_id(*value, reader.path_of(key), model, reader.problem()).value_or("");
    if (!request.form.id.empty() && request.form.id != id) {
      reader.fail_with(key, reader.path_of(key) + " and rid are both set, must be the same");
    }
    request.form.id = std::move(id);
  }
}

}  // namespace fathom::api
