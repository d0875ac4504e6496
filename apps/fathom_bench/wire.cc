#include "apps/fathom_bench/wire.h"

#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace fathom::apps {
namespace {

constexpr size_t kShownBodyBytes = 200;

json::Value native_body(const WireOptions& options, const BenchPrompt& prompt) {
  return {{"input_ids", prompt.ids},
          {"sampling_params",
           {{"temperature", options.temperature},
            {"max_new_tokens", prompt.output_len},
            {"ignore_eos", options.ignore_eos}}},
          {"stream", true},
          {"lora_path", nullptr},
          {"return_logprob", false},
          {"return_routed_experts", false},
          {"logprob_start_len", -1}};
}

// An integer field of an event without parsing the event, which in the native API repeats all text so far.
// Inside a JSON string every quote has a backslash before it, so the key cannot be found in the text.
int field_value(std::string_view data, std::string_view quoted_key) {
  const size_t at = data.rfind(quoted_key);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = data.substr(at + quoted_key.size());
  const size_t begin = rest.find_first_not_of(": ");
  if (begin == std::string_view::npos) return 0;
  int value = 0;
  std::from_chars(rest.data() + begin, rest.data() + rest.size(), value);
  return value;
}

std::string string_field(const json::Value& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return {};
  return object[key].get<std::string>();
}

// What a chunk adds to the answer.
std::string chunk_text(BenchApi api, const json::Value& choice) {
  if (api == BenchApi::kCompletions) return string_field(choice, "text");
  if (!choice.is_object() || !choice.contains("delta")) return {};
  return string_field(choice["delta"], "reasoning_content") +
         string_field(choice["delta"], "content");
}

}  // namespace

std::string_view api_path(BenchApi api) {
  switch (api) {
    case BenchApi::kNative:
      return "/generate";
    case BenchApi::kCompletions:
      return "/v1/completions";
    case BenchApi::kChat:
      return "/v1/chat/completions";
  }
  FATHOM_CHECK(false, "no such API: " << static_cast<int>(api));
}

json::Value request_body(const WireOptions& options, const BenchPrompt& prompt) {
  if (options.api == BenchApi::kNative) return native_body(options, prompt);
  json::Value body = {{"model", options.model}};
  if (options.api == BenchApi::kCompletions) {
    body["prompt"] = prompt.text;
    body["best_of"] = 1;
    body["max_tokens"] = prompt.output_len;
  } else {
    body["messages"] = json::Value::array({{{"role", "user"}, {"content", prompt.text}}});
    body["max_completion_tokens"] = prompt.output_len;
  }
  body["temperature"] = options.temperature;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  body["ignore_eos"] = options.ignore_eos;
  return body;
}

std::string error_message(std::string_view body) {
  const Result<json::Value> value = json::parse(body);
  if (value && value->is_object()) {
    std::string nested = value->contains("error") ? string_field((*value)["error"], "message") : "";
    if (!nested.empty()) return nested;
    std::string flat = string_field(*value, "message");
    if (!flat.empty()) return flat;
  }
  return std::string(body.substr(0, kShownBodyBytes));
}

StreamReader::StreamReader(BenchApi api)
    : api_(api), parser_([this](std::string_view data) { take_event(data); }) {}

void StreamReader::feed(std::string_view bytes, double seconds) {
  now_ = seconds;
  parser_.feed(bytes);
}

void StreamReader::take_event(std::string_view data) {
  if (data == "[DONE]") {
    done_ = true;
    record_.latency = now_;
  } else if (data.starts_with("{\"error\"") || data.starts_with("{\"object\":\"error\"")) {
    record_.error = error_message(data);
  } else if (api_ == BenchApi::kNative) {
    take_native(data);
  } else {
    take_chunk(data);
  }
}

void StreamReader::take_native(std::string_view data) {
  last_event_.assign(data);
  const int tokens = field_value(data, "\"completion_tokens\"");
  if (tokens <= record_.output_tokens) return;
  tokens_arrived(tokens - record_.output_tokens);
  record_.output_tokens = tokens;
}

void StreamReader::take_chunk(std::string_view data) {
  const Result<json::Value> chunk = json::parse(data);
  if (!chunk || !chunk->is_object()) {
    record_.error = "an event is not a JSON object";
    return;
  }
  if (chunk->contains("usage") && (*chunk)["usage"].is_object()) {
    record_.output_tokens = (*chunk)["usage"].value("completion_tokens", 0);
  }
  if (!chunk->contains("choices") || (*chunk)["choices"].empty()) return;
  const std::string text = chunk_text(api_, (*chunk)["choices"][0]);
  if (text.empty()) return;
  record_.text += text;
  tokens_arrived(1);
}

void StreamReader::tokens_arrived(int count) {
  if (last_arrival_ < 0) {
    record_.ttft = now_;
  } else {
    record_.gaps.insert(record_.gaps.end(), static_cast<size_t>(count),
                        (now_ - last_arrival_) / count);
  }
  last_arrival_ = now_;
}

RequestRecord StreamReader::finish(int requested_tokens) {
  if (record_.error.empty() && !done_) record_.error = "the stream ended early";
  if (api_ == BenchApi::kNative && !last_event_.empty()) {
    const Result<json::Value> last = json::parse(last_event_);
    if (last) record_.text = string_field(*last, "text");
  }
  if (record_.ok() && record_.output_tokens == 0) record_.output_tokens = requested_tokens;
  if (record_.ok() && last_arrival_ < 0) record_.ttft = record_.latency;
  return std::move(record_);
}

}  // namespace fathom::apps
