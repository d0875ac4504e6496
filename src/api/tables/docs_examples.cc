#include "api/tables/docs_examples.h"

#include <algorithm>
#include <iterator>

#include "base/json.h"

namespace fathom::api {
namespace {

struct ExampleBody {
  std::string_view path;
  std::string_view body;  // <model> stands for the name in JSON
};

constexpr ExampleBody kBodies[] = {
    {"/v1/chat/completions",
     R"({"model": <model>, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 64})"},
    {"/v1/completions",
     R"({"model": <model>, "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0})"},
    {"/v1/responses", R"({"model": <model>, "input": "Hello!", "max_output_tokens": 64})"},
    {"/v1/messages",
     R"({"model": <model>, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 64})"},
    {"/v1/messages/count_tokens",
     R"({"model": <model>, "messages": [{"role": "user", "content": "Hello!"}]})"},
    {"/generate",
     R"({"text": "Once upon a time", "sampling_params": {"max_new_tokens": 16, "temperature": 0}})"},
    {"/tokenize", R"({"prompt": "Once upon a time"})"},
    {"/detokenize", R"({"tokens": [5, 6, 7]})"},
    {"/v1/score",
     R"({"query": "The sky is", "items": [" blue", " green"], "label_token_ids": [5, 6]})"},
    {"/parse_function_call", R"({"text": "No calls are in this text."})"},
    {"/separate_reasoning",
     R"({"text": "One and one.</think>Two.", "reasoning_parser": "deepseek-r1"})"},
    {"/abort_request", R"({"rid": "an-id-of-yours"})"},
    {"/pause_generation", R"({"mode": "in_place"})"},
    {"/continue_generation", "{}"},
};

// Within single quotes; one of the text's own ends them, stands alone and opens them again.
std::string shell_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string with_model(std::string_view body, std::string_view model) {
  constexpr std::string_view kPlace = "<model>";
  std::string text(body);
  if (const size_t at = text.find(kPlace); at != std::string::npos)
    text.replace(at, kPlace.size(), json::dump(json::Value(model)));
  return text;
}

}  // namespace

std::string example_command(const OpenApiOperation& operation, std::string_view model) {
  // What stands in braces is an id of the caller's.
  if (operation.path.find('{') != std::string::npos) return "";
  const std::string target = "$FATHOM" + operation.path;
  if (operation.method == "GET") return "curl " + target;
  const auto* found = std::ranges::find(kBodies, operation.path, &ExampleBody::path);
  if (operation.method != "POST") return "";
  if (found == std::end(kBodies)) return "curl -X POST " + target;
  return "curl " + target + " -H 'Content-Type: application/json' \\\n  -d " +
         shell_quoted(with_model(found->body, model));
}

}  // namespace fathom::api
