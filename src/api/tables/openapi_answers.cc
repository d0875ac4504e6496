#include "api/tables/openapi_answers.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace fathom::api {
namespace {

struct Answer {
  std::string_view path_end;
  std::string_view schema;  // of its JSON
};

constexpr Answer kAnswers[] = {
    {"/chat/completions",
     R"({"type":"object","required":["id","object","created","model","choices","usage"],"properties":{
      "id":{"type":"string"},"object":{"const":"chat.completion"},"created":{"type":"integer"},"model":{"type":"string"},
      "choices":{"type":"array","items":{"type":"object","required":["index","message","logprobs","finish_reason"],
        "properties":{"message":{"type":"object","required":["role","content","refusal"],
          "properties":{"role":{"const":"assistant"},"content":{"type":["string","null"]},"refusal":{"type":"null"},
            "tool_calls":{"type":"array","items":{"type":"object","required":["id","type"]}}}},
          "finish_reason":{"type":"string"}}}},
      "usage":{"type":"object","required":["prompt_tokens","completion_tokens","total_tokens"]}}})"},
    {"/completions",
     R"({"type":"object","required":["id","object","created","model","choices","usage"],"properties":{
      "id":{"type":"string"},"object":{"const":"text_completion"},"created":{"type":"integer"},"model":{"type":"string"},
      "choices":{"type":"array","items":{"type":"object","required":["index","text","logprobs","finish_reason"]}},
      "usage":{"type":"object","required":["prompt_tokens","completion_tokens","total_tokens"]}}})"},
    {"/responses",
     R"({"type":"object","required":["id","object","created_at","status","error","incomplete_details","instructions",
        "model","output","tools","tool_choice","parallel_tool_calls","temperature","top_p","metadata"],"properties":{
      "id":{"type":"string"},"object":{"const":"response"},
      "status":{"enum":["in_progress","completed","incomplete","failed"]},
      "output":{"type":"array","items":{"type":"object","required":["id","type","status"]}},
      "usage":{"type":["object","null"],"required":["input_tokens","output_tokens","total_tokens"]}}})"},
    {"/messages",
     R"({"type":"object","required":["id","type","role","content","model","stop_reason","stop_sequence","usage"],
      "properties":{"type":{"const":"message"},"role":{"const":"assistant"},
      "content":{"type":"array","items":{"type":"object","required":["type"]}},
      "usage":{"type":"object","required":["input_tokens","output_tokens"]}}})"},
    {"/messages/count_tokens",
     R"({"type":"object","required":["input_tokens"],"properties":{"input_tokens":{"type":"integer"}}})"},
    {"/models",
     R"({"type":"object","required":["data"],"properties":{"data":{"type":"array","items":{"type":"object",
      "required":["id"]}}}})"},
    {"/tokenize", R"({"type":"object","required":["tokens","count"]})"},
    {"/detokenize", R"({"type":"object","required":["text"]})"},
};

// What is no JSON.
constexpr std::pair<std::string_view, std::string_view> kTexts[] = {
    {"/metrics", "text/plain"}, {"/docs", "text/html"}, {"/", "text/html"}};

}  // namespace

json::Value answer_content(std::string_view path, bool streams) {
  for (const auto& [text_path, type] : kTexts) {
    if (path == text_path) return {{std::string(type), {{"schema", {{"type", "string"}}}}}};
  }
  json::Value schema = json::Value::object();
  // The longest end is the endpoint's: /chat/completions is no /completions.
  size_t longest = 0;
  for (const Answer& answer : kAnswers) {
    if (!path.ends_with(answer.path_end) || answer.path_end.size() < longest) continue;
    longest = answer.path_end.size();
    Result<json::Value> parsed = json::parse(answer.schema);
    FATHOM_CHECK(parsed, answer.path_end << ": its schema is not JSON");
    schema = std::move(*parsed);
  }
  json::Value content = {{"application/json", {{"schema", std::move(schema)}}}};
  if (streams) content["text/event-stream"] = {{"schema", {{"type", "string"}}}};
  return content;
}

}  // namespace fathom::api
