#include "tests/memory/request_kinds.h"

#include <utility>

namespace fathom::tests {
namespace {

using Kinds = std::vector<RequestKind>;

const std::string kChat = "/v1/chat/completions", kCompletions = "/v1/completions";

std::string chat(const std::string& more) {
  return R"({"messages":[{"role":"system","content":"Be short."},{"role":"user","content":"Some apples"}],)"
         R"("max_tokens":6,"temperature":0,"ignore_eos":true)" +
         more + "}";
}

std::string messages(const std::string& more) {
  return R"({"system":"Be short.","messages":[{"role":"user","content":[{"type":"text","text":"Some apples"}]}],)"
         R"("max_tokens":6,"temperature":0)" +
         more + "}";
}

std::string responses(const std::string& more) {
  return R"({"instructions":"Be short.","input":[{"role":"user","content":"Some apples"}],)"
         R"("max_output_tokens":6,"temperature":0)" +
         more + "}";
}

std::string completion(const std::string& more) {
  return R"({"prompt":"Some apples","max_tokens":6,"temperature":0,"ignore_eos":true)" + more + "}";
}

std::string generate(const std::string& sampling, const std::string& more) {
  return R"({"text":"Some apples","sampling_params":{"max_new_tokens":6,"temperature":0)" +
         sampling + "}" + more + "}";
}

void append(Kinds& kinds, Kinds more) {
  for (RequestKind& kind : more) kinds.push_back(std::move(kind));
}

Kinds chat_kinds() {
  const std::string schema =
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)"
      R"({"type":"object","properties":{"p#":{"type":"integer"},"q":{"enum":["a","b"]}},"required":["p#"]}}})";
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"f#","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}])";
  const std::string must_call = R"(,"tool_choice":"required")";
  const std::string tag =
      R"(,"response_format":{"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<a"],)"
      R"("at_least_one":true,"tags":[{"begin":"<a#>","content":{"type":"json_schema",)"
      R"("json_schema":{"type":"integer"}},"end":"</a>"}]}})";
  return {
      {"chat", "POST", kChat, chat("")},
      {"chat_stream", "POST", kChat, chat(R"(,"stream":true,"logprobs":true,"top_logprobs":2)"),
       true},
      {"chat_token_ids", "POST", kChat,
       chat(R"(,"return_token_ids":true,"prompt_logprobs":1,"stop":["zz"])")},
      {"chat_schema", "POST", kChat, chat(schema), false, false},
      {"chat_schema_stream", "POST", kChat, chat(schema + R"(,"stream":true)"), true, false},
      {"chat_tools", "POST", kChat, chat(tools + must_call), false, false},
      {"chat_tools_stream", "POST", kChat, chat(tools + must_call + R"(,"stream":true)"), true,
       false},
      {"chat_tools_or_schema", "POST", kChat, chat(tools + schema), false, false},
      {"chat_tag", "POST", kChat, chat(tag), false, false},
  };
}

Kinds message_kinds() {
  const std::string tools =
      R"(,"tools":[{"name":"f#","input_schema":{"type":"object","properties":{"a":{"type":"string"}}}}],)"
      R"("tool_choice":{"type":"any"},"stream":true)";
  const std::string functions =
      R"(,"tools":[{"type":"function","name":"f#","parameters":{"type":"object",)"
      R"("properties":{"a":{"type":"string"}}}}],"tool_choice":"required","stream":true)";
  return {
      {"messages", "POST", "/v1/messages", messages("")},
      {"messages_stream", "POST", "/v1/messages", messages(R"(,"stream":true)"), true},
      {"messages_tools", "POST", "/v1/messages", messages(tools), true, false},
      {"count_tokens", "POST", "/v1/messages/count_tokens",
       R"({"messages":[{"role":"user","content":"Some apples"}]})"},
      {"responses", "POST", "/v1/responses", responses("")},
      {"responses_stream", "POST", "/v1/responses", responses(R"(,"stream":true)"), true},
      {"responses_tools", "POST", "/v1/responses", responses(functions), true, false},
      {"responses_get", "GET", "/v1/responses/resp_0"},
      {"responses_delete", "DELETE", "/v1/responses/resp_0"},
  };
}

Kinds text_kinds() {
  return {
      {"completion", "POST", kCompletions, completion(R"(,"logprobs":3,"echo":true,"n":2)")},
      {"completion_stream", "POST", kCompletions, completion(R"(,"stream":true,"stop":["zz"])"),
       true},
      {"completion_batch", "POST", kCompletions,
       R"({"prompt":["one","two","three"],"max_tokens":3,"temperature":0})"},
      {"generate", "POST", "/generate", generate("", R"(,"return_logprob":true)")},
      {"generate_stream", "POST", "/generate", generate("", R"(,"stream":true)"), true},
      {"generate_regex", "POST", "/generate", generate(R"(,"regex":"[a-z]{3}(x#)+")", ""), false,
       false},
      {"generate_ebnf", "POST", "/generate",
       generate(R"(,"ebnf":"root ::= \"a#\" | \"b\" root")", ""), false, false},
      {"score", "POST", "/v1/score",
       R"({"query":"The sky is","items":[" red"," green"],"label_token_ids":[5,17]})"},
      {"tokenize", "POST", "/tokenize",
       R"({"prompt":"Some apples and many more words","user":[[],{"a":[1]}]})"},
      {"tokenize_long", "POST", "/tokenize", R"({"prompt":")" + std::string(300'000, 'a') + "\"}"},
      {"tokenize_chat", "POST", "/tokenize",
       R"({"messages":[{"role":"user","content":"Some apples"}]})"},
      {"detokenize", "POST", "/detokenize", R"({"tokens":[[5,6,7],[8]]})"},
      {"parse_calls", "POST", "/parse_function_call",
       R"({"text":"Some apples","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]})"},
      {"separate_reasoning", "POST", "/separate_reasoning",
       R"({"text":"<think>Apples?</think>Some apples"})"},
      {"bad_json", "POST", kCompletions, R"({"prompt":"x","y":[1,}")"},
      {"bad_field", "POST", kCompletions, R"({"prompt":"x","max_tokens":-4})"},
  };
}

Kinds other_kinds() {
  Kinds kinds;
  for (const char* path :
       {"/v1/models", "/v1/models/demo", "/model_info", "/server_info", "/load", "/get_load",
        "/v1/loads", "/version", "/metrics", "/stats", "/livez", "/readyz", "/health_generate",
        "/openapi.json", "/docs", "/", "/page/app.js", "/nothing"}) {
    kinds.push_back({path, "GET", path});
  }
  append(kinds, {{"abort", "POST", "/abort_request", R"({"rid":"nobody"})"},
                 {"flush", "POST", "/flush_cache", ""},
                 {.name = "pause",
                  .method = "POST",
                  .path = "/pause_generation",
                  .body = R"({"mode":"retract"})",
                  .behind = "/continue_generation"},
                 {.name = "continue",
                  .method = "POST",
                  .path = "/continue_generation",
                  .before = "/pause_generation",
                  .behind = "/continue_generation"},
                 {.name = "start_profile",
                  .method = "POST",
                  .path = "/start_profile",
                  .behind = "/stop_profile"},
                 {.name = "stop_profile",
                  .method = "POST",
                  .path = "/stop_profile",
                  .before = "/start_profile",
                  .behind = "/stop_profile"}});
  return kinds;
}

}  // namespace

std::vector<RequestKind> request_kinds() {
  Kinds kinds = chat_kinds();
  append(kinds, message_kinds());
  append(kinds, text_kinds());
  append(kinds, other_kinds());
  return kinds;
}

}  // namespace fathom::tests
