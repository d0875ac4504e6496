#include "api/responses/response_settings.h"

#include <array>
#include <charconv>

#include "base/json.h"

namespace fathom::api {
namespace {

// Of what a response repeats besides instructions, which the context bounds: it is kept as long as the answer is made,
// when the body is long gone.
constexpr size_t kMaxSettingsBytes = 1 << 20;

json::Value value_or_null(const json::Value* value) {
  return value != nullptr ? *value : json::Value(nullptr);
}

// As it was sent: the model's float would read 0.699999988079071 for 0.7. A default is the shortest number that is it.
json::Value sent_number(const FieldReader& reader, std::string_view key, float used) {
  if (const json::Value* sent = reader.find(key)) return *sent;
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), used).ptr;
  double value = used;
  std::from_chars(digits.data(), end, value);
  return value;
}

// With the members that OpenAI's schema requires of functions, in namespaces too.
json::Value repeated_tools(const json::Value* tools) {
  json::Value repeated = tools != nullptr ? *tools : json::Value::array();
  for (json::Value& tool : repeated) {
    if (!tool.is_object() || !tool.contains("type")) continue;
    if (json::is_text(tool["type"], "namespace") && tool.contains("tools")) {
      tool["tools"] = repeated_tools(&tool["tools"]);
    }
    if (!json::is_text(tool["type"], "function")) continue;
    for (const char* key : {"parameters", "strict"}) {
      if (!tool.contains(key)) tool[key] = nullptr;
    }
  }
  return repeated;
}

json::Value repeated_text(const json::Value* config) {
  json::Value text = {{"format", {{"type", "text"}}}};
  if (config == nullptr) return text;
  for (const char* key : {"format", "verbosity"}) {
    if (config->contains(key) && !(*config)[key].is_null()) text[key] = (*config)[key];
  }
  return text;
}

}  // namespace

std::string response_settings(FieldReader& reader, const core::SamplingParams& sampling,
                              const ResponseDraft& draft) {
  json::Value reasoning = {{"effort", nullptr}, {"summary", nullptr}};
  if (const json::Value* config = reader.find("reasoning")) reasoning.update(*config);
  const json::Value* choice = reader.find("tool_choice");
  const json::Value* metadata = reader.find("metadata");
  const json::Value* truncation = reader.find("truncation");
  json::Value all = json::Value::object();
  all["background"] = false;
  for (const char* key : {"max_output_tokens", "max_tool_calls", "previous_response_id", "user",
                          "safety_identifier", "prompt_cache_key"}) {
    all[key] = value_or_null(reader.find(key));
  }
  all["metadata"] = metadata != nullptr ? *metadata : json::Value::object();
  all["parallel_tool_calls"] = reader.boolean("parallel_tool_calls").value_or(true);
  all["reasoning"] = std::move(reasoning);
  all["service_tier"] = "default";
  all["store"] = draft.is_stored;
  all["temperature"] = sent_number(reader, "temperature", sampling.temperature);
  all["top_p"] = sent_number(reader, "top_p", sampling.top_p);
  all["presence_penalty"] = sent_number(reader, "presence_penalty", sampling.presence_penalty);
  all["frequency_penalty"] = sent_number(reader, "frequency_penalty", sampling.frequency_penalty);
  all["text"] = repeated_text(reader.find("text"));
  all["tool_choice"] = choice != nullptr ? *choice : json::Value("auto");
  all["tools"] = repeated_tools(reader.find("tools"));
  all["top_logprobs"] = reader.integer("top_logprobs", {0, core::kMaxTopLogprobs}).value_or(0);
  all["truncation"] = truncation != nullptr ? *truncation : json::Value("disabled");
  const std::string object = json::dump(all);
  if (object.size() > kMaxSettingsBytes) {
    reader.fail_with("tools", "tools and the other settings that the response repeats have " +
                                  std::to_string(object.size()) + " bytes, must have at most " +
                                  std::to_string(kMaxSettingsBytes));
  }
  return R"("instructions":)" + json::dump(value_or_null(reader.find("instructions"))) + ',' +
         object.substr(1, object.size() - 2);
}

}  // namespace fathom::api
