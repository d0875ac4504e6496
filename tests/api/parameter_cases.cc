#include "tests/api/parameter_cases.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/grammar_limits.h"
#include "tests/api/parameter_field.h"
#include "tests/source_tree.h"

namespace fathom::api::tests {
namespace {

constexpr long double kTwoTo31 = 2147483648.0L;
constexpr long double kTwoTo63 = 9223372036854775808.0L;

// Fields of one name: "sampling_params." + name inside {"sampling_params": {"name": VALUE}}.
Field inside(const std::string& object, Field field, const std::string& beside = "") {
  field.key = object;
  field.before = "{" + beside + "\"" + field.name + "\": ";
  field.after = "}";
  field.name = object + "." + field.name;
  for (Except& exception : field.exceptions) {
    if (!exception.param.empty()) exception.param = object + "." + exception.param;
  }
  return field;
}

Field stop_field() {
  return {.name = "stop",
          .rule = texts(1, 256),
          .exceptions = {{"[]", 200},
                         {"[\"5\"]", 200},
                         {"[\"a\", \"\"]", 400, "stop[1]"},
                         {"[1]", 400, "stop[0]"},
                         {"[[]]", 400, "stop[0]"},
                         {"[null]", 400, "stop[0]"}},
          .more_values = {other("[\"a\", \"\"]"), other("[null]")}};
}

Field stop_token_ids_field(const CaseModel& model) {
  const std::string last = std::to_string(model.vocab_size - 1);
  const std::string beyond = std::to_string(model.vocab_size);
  return {.name = "stop_token_ids",
          .rule = nothing(),
          .exceptions = {{"[]", 200},
                         {"[1]", 200},
                         {"[" + last + "]", 200},
                         {"[[]]", 400, "stop_token_ids[0]"},
                         {"[\"5\"]", 400, "stop_token_ids[0]"},
                         {"[-1]", 400, "stop_token_ids[0]"},
                         {"[1, 1.5]", 400, "stop_token_ids[1]"},
                         {"[1, true]", 400, "stop_token_ids[1]"},
                         {"[" + beyond + "]", 400, "stop_token_ids[0]"},
                         {"[4294967296]", 400, "stop_token_ids[0]"}},
          .more_values = {other("[" + last + "]"), other("[" + beyond + "]"), other("[-1]"),
                          other("[1, 1.5]"), other("[1, true]"), other("[4294967296]")}};
}

Field logit_bias_field(const CaseModel& model) {
  const std::string last = R"({")" + std::to_string(model.vocab_size - 1) + R"(": -100})";
  const std::string beyond = R"({")" + std::to_string(model.vocab_size) + R"(": 1})";
  Field field{.name = "logit_bias",
              .rule = nothing(),
              .exceptions = {{"{}", 200}, {R"({"7": 100})", 200}, {last, 200}}};
  field.more_values = {other(R"({"7": 100})"), other(last)};
  for (const std::string& text :
       {beyond, std::string(R"({"-1": 1})"), std::string(R"({"7": 100.5})"),
        std::string(R"({"7": "1"})"), std::string(R"({"7": null})"), std::string(R"({"07": 1})"),
        std::string(R"({"7 ": 1})"), std::string(R"({"": 1})"), std::string(R"({"7.0": 1})"),
        std::string(R"({"4294967296": 1})"), std::string(R"({"7": true})")}) {
    field.more_values.push_back(other(text));
  }
  return field;
}

Field json_schema_field() {
  return {.name = "json_schema",
          .rule = nothing(),
          .exceptions = {{"{}", 200},
                         {R"({"a": 1})", 200},
                         {R"({"a": {"b": [1, {"c": null}]}})", 200},
                         {R"("{\"type\": \"object\"}")", 200},
                         {R"("true")", 200}},
          .more_values = {other(R"("{\"type\": \"object\"}")"), other(R"("true")"),
                          other(R"("{\"a\": 1, \"a\": 2}")"), other(R"("{")")}};
}

// Its parts are read when it is compiled.
Field structural_tag_field() {
  return {.name = "structural_tag",
          .rule = nothing(),
          .exceptions = {{"{}", 200},
                         {R"({"a": 1})", 200},
                         {R"({"a": {"b": [1, {"c": null}]}})", 200},
                         {R"("{\"type\": \"object\"}")", 200}},
          .more_values = {other(R"("{\"type\": \"object\"}")"), other(R"("true")"),
                          other(R"("{\"a\": 1, \"a\": 2}")"), other(R"("{")")}};
}

// What every generating endpoint spells alike.
std::vector<Field> sampling_fields(const CaseModel& model) {
  return {
      {.name = "temperature", .rule = numbers(0, 100)},
      {.name = "top_p", .rule = numbers(0, 1)},
      {.name = "min_p", .rule = numbers(0, 1)},
      {.name = "repetition_penalty", .rule = numbers(0, 2, false)},
      {.name = "frequency_penalty", .rule = numbers(-2, 2)},
      {.name = "presence_penalty", .rule = numbers(-2, 2)},
      {.name = "top_k", .rule = integers(-1, kTwoTo31 - 1)},
      {.name = "n", .rule = integers(1, 128)},
      {.name = "sampling_seed", .rule = integers(-kTwoTo63, 2 * kTwoTo63 - 1)},
      {.name = "ignore_eos", .rule = booleans()},
      {.name = "skip_special_tokens", .rule = booleans()},
      {.name = "spaces_between_special_tokens", .rule = booleans()},
      {.name = "no_stop_trim", .rule = booleans()},
      {.name = "regex", .rule = texts(1, core::kMaxGrammarBytes)},
      {.name = "ebnf", .rule = texts(1, core::kMaxGrammarBytes)},
      {.name = "an_unknown_field", .rule = nothing()},
      json_schema_field(),
      structural_tag_field(),
      stop_field(),
      stop_token_ids_field(model),
      logit_bias_field(model),
  };
}

// Of the body itself, on every generating endpoint.
std::vector<Field> placement_fields() {
  std::vector<Field> fields = {
      {.name = "stream", .rule = booleans()},
      {.name = "priority", .rule = integers(-kTwoTo31, kTwoTo31 - 1)},
      {.name = "routed_dp_rank", .rule = integers(0, 0)},
      {.name = "cache_salt", .rule = texts(0, 256)},
      {.name = "extra_key", .rule = texts(0, 256)},
      {.name = "rid",
       .rule = texts(1, 128),
       .exceptions = {{R"("a\u0000b")", 400}, {R"("a\nb")", 400}},
       .more_values = {other(R"("a\u0000b")"), other(R"("a\nb")")}},
      {.name = "another_unknown_field", .rule = nothing()},
      {.name = "metadata", .rule = anything()},
      {.name = "session_id", .rule = anything()},
  };
  append_unsupported(
      fields, {"input_embeds", "image_data", "video_data", "audio_data", "lora_path", "lora_id",
               "custom_logit_processor", "custom_params", "bootstrap_host", "bootstrap_port",
               "bootstrap_room", "session_params", "return_hidden_states", "return_routed_experts",
               "return_prompt_token_ids", "return_cached_tokens_details", "return_meta_info",
               "stop_regex", "background"});
  return fields;
}

// Of the two OpenAI endpoints.
std::vector<Field> openai_fields(const CaseModel& model) {
  std::vector<Field> fields = sampling_fields(model);
  for (Field& field : placement_fields()) fields.push_back(std::move(field));
  fields.push_back(model_field());
  fields.push_back({.name = "seed", .rule = integers(-kTwoTo63, 2 * kTwoTo63 - 1)});
  fields.push_back({.name = "min_tokens", .rule = integers(0, 1)});
  fields.push_back({.name = "return_token_ids", .rule = booleans()});
  fields.push_back({.name = "return_tokens_as_token_ids", .rule = booleans()});
  fields.push_back({.name = "prompt_logprobs", .rule = integers(0, 20)});
  fields.push_back({.name = "user", .rule = anything()});
  fields.push_back({.name = "response_format",
                    .rule = nothing(),
                    .exceptions = {{"{}", 400, "response_format.type"},
                                   {R"({"a": 1})", 400, "response_format.a"},
                                   {R"({"a": {"b": [1, {"c": null}]}})", 400, "response_format.a"},
                                   {R"({"type": "text"})", 200}},
                    .more_values = {other(R"({"type": "text"})")}});
  fields.push_back(
      {.name = "stream_options",
       .rule = nothing(),
       .exceptions = {{"{}", 200},
                      {R"({"a": 1})", 400, "stream_options.a"},
                      {R"({"a": {"b": [1, {"c": null}]}})", 400, "stream_options.a"}}});
  fields.push_back(inside("stream_options", {.name = "include_usage", .rule = booleans()}));
  fields.push_back(
      inside("stream_options", {.name = "continuous_usage_stats", .rule = booleans()}));
  fields.push_back(inside("stream_options", {.name = "include_obfuscation", .rule = anything()}));
  return fields;
}

Field in_message(const std::string& name, Rule rule, std::vector<Except> exceptions = {}) {
  const bool is_content = name == "content", is_role = name == "role";
  std::string before = "[{";
  if (!is_content) before += R"("content": "hi", )";
  if (!is_role) before += R"("role": "user", )";
  Field field{.name = "messages[0]." + name,
              .rule = rule,
              .exceptions = std::move(exceptions),
              .key = "messages",
              .before = before + "\"" + name + "\": ",
              .after = "}]",
              .fixed = R"("max_tokens": 1, )"};
  return field;
}

std::vector<Field> message_fields() {
  return {
      in_message("content", texts(0, 300),
                 {{"null", 400},
                  {"[]", 200},
                  {"[1]", 400, "messages[0].content[0]"},
                  {"[[]]", 400, "messages[0].content[0]"},
                  {"[\"5\"]", 400, "messages[0].content[0]"},
                  {"\"" + std::string(301, 'a') + "\"", 200}}),
      in_message("role", nothing(), {{"null", 400}}),
      in_message("name", texts(0, 256)),
      in_message("tool_call_id", texts(0, 256)),
      in_message("reasoning_content", texts(0, 1'000'000)),
      in_message("function_call", nothing()),
      in_message("an_unknown_field", nothing()),
      in_message("annotations", anything()),
      in_message("tool_calls", nothing(),
                 {{"[]", 200},
                  {"[1]", 400, "messages[0].tool_calls[0]"},
                  {"[[]]", 400, "messages[0].tool_calls[0]"},
                  {"[\"5\"]", 400, "messages[0].tool_calls[0]"}}),
      {.name = "messages",
       .rule = nothing(),
       .exceptions = {{"null", 400},
                      {"[1]", 400, "messages[0]"},
                      {"[[]]", 400, "messages[0]"},
                      {"[\"5\"]", 400, "messages[0]"}},
       .fixed = R"("max_tokens": 1, )"},
  };
}

std::vector<Field> tool_fields() {
  return {
      {.name = "tools",
       .rule = nothing(),
       .exceptions = {{"[]", 200},
                      {"[1]", 400, "tools[0]"},
                      {"[[]]", 400, "tools[0]"},
                      {"[\"5\"]", 400, "tools[0]"}}},
      {.name = "tool_choice",
       .rule = nothing(),
       .exceptions = {{"\"auto\"", 200},
                      {"\"none\"", 200},
                      {"{}", 400, "tool_choice.function"},
                      {R"({"a": 1})", 400, "tool_choice.a"},
                      {R"({"a": {"b": [1, {"c": null}]}})", 400, "tool_choice.a"}},
       .more_values = {other("\"auto\""), other("\"none\""), other("\"required\"")}},
      {.name = "parallel_tool_calls", .rule = booleans()},
  };
}

Endpoint chat_endpoint(const CaseModel& model) {
  const std::string messages = R"("messages": [{"role": "user", "content": "hi"}], )";
  Endpoint chat{.path = kChatPath,
                .fixed = messages + R"("max_tokens": 1, )",
                .fields = openai_fields(model)};
  for (Field& field : message_fields()) chat.fields.push_back(std::move(field));
  for (Field& field : tool_fields()) chat.fields.push_back(std::move(field));
  const long double surely_left = static_cast<long double>(model.max_context_tokens) - 64;
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    // The prompt's length is the template's affair: 64 tokens are enough for it, none are not.
    Field field{.name = name, .rule = integers(-1, surely_left), .fixed = messages};
    field.exceptions = {{std::to_string(model.max_context_tokens - 63), 200}};
    field.more_values = {number(model.max_context_tokens)};
    chat.fields.push_back(std::move(field));
  }
  chat.fields.push_back({.name = "logprobs", .rule = booleans()});
  chat.fields.push_back({.name = "top_logprobs",
                         .rule = integers(0, 20),
                         .fixed = chat.fixed + R"("logprobs": true, )"});
  chat.fields.push_back({.name = "separate_reasoning", .rule = booleans()});
  chat.fields.push_back({.name = "stream_reasoning", .rule = booleans()});
  chat.fields.push_back({.name = "stop_in_reasoning", .rule = booleans()});
  for (const char* name :
       {"thinking_token_budget", "thinking_budget", "reasoning_budget", "max_thinking_tokens"}) {
    chat.fields.push_back({.name = name, .rule = integers(-1, 2147483647)});
  }
  chat.fields.push_back(
      {.name = "continue_final_message", .rule = booleans(), .exceptions = {{"true", 400}}});
  chat.fields.push_back(
      {.name = "chat_template_kwargs",
       .rule = nothing(),
       .exceptions = {{"{}", 200},
                      {R"({"a": 1})", 400, "chat_template_kwargs.a"},
                      {R"({"a": {"b": [1, {"c": null}]}})", 400, "chat_template_kwargs.a"}}});
  for (const char* name : {"thinking", "enable_thinking"}) {
    chat.fields.push_back(inside("chat_template_kwargs", {.name = name, .rule = booleans()}));
  }
  Field effort{.name = "reasoning_effort", .rule = nothing()};
  for (const char* level : {"none", "minimal", "low", "medium", "high", "xhigh", "max"}) {
    const std::string text = "\"" + std::string(level) + "\"";
    effort.exceptions.push_back({text, 200});
    effort.more_values.push_back(other(text));
  }
  chat.fields.push_back(std::move(effort));
  chat.fields.push_back({.name = "modalities",
                         .rule = nothing(),
                         .exceptions = {{"[\"text\"]", 200}},
                         .more_values = {other("[\"text\"]"), other("[\"audio\"]")}});
  chat.fields.push_back({.name = "functions",
                         .rule = nothing(),
                         .exceptions = {{"[]", 200},
                                        {"[1]", 400, "functions[0]"},
                                        {"[[]]", 400, "functions[0]"},
                                        {"[\"5\"]", 400, "functions[0]"}}});
  chat.fields.push_back({.name = "function_call", .rule = nothing()});
  append_unsupported(chat.fields, {"audio", "web_search_options", "task"});
  return chat;
}

Endpoint completions_endpoint(const CaseModel& model) {
  const std::string prompt = R"("prompt": [5, 6, 7], )";
  Endpoint completions{.path = kCompletionsPath,
                       .fixed = prompt + R"("max_tokens": 1, )",
                       .fields = openai_fields(model)};
  std::vector<Field>& fields = completions.fields;
  fields.push_back({.name = "max_tokens",
                    .rule = integers(-1, static_cast<long double>(model.max_context_tokens) - 3),
                    .fixed = prompt});
  fields.push_back({.name = "logprobs", .rule = integers(0, 20)});
  fields.push_back({.name = "best_of", .rule = integers(1, 1)});
  fields.push_back({.name = "echo", .rule = booleans()});
  // The demo model cannot fill gaps.
  fields.push_back({.name = "suffix", .rule = texts(0, 0), .more_values = {other(R"("a")")}});
  fields.push_back({.name = "prompt",
                    .rule = texts(0, 300),
                    .exceptions = {{"null", 400},
                                   {"[1]", 200},
                                   {"[\"5\"]", 200},
                                   {"[[]]", 400, "prompt[0]"},
                                   {"\"" + std::string(301, 'a') + "\"", 200}},
                    .fixed = R"("max_tokens": 1, )"});
  return completions;
}

Endpoint generate_endpoint(const CaseModel& model) {
  const std::string ids = R"("input_ids": [5, 6, 7], )";
  Endpoint generate{.path = kGeneratePath,
                    .fixed = ids + R"("sampling_params": {"max_new_tokens": 1}, )",
                    .fields = placement_fields()};
  std::vector<Field>& fields = generate.fields;
  const auto add_setting = [&](Field field, const std::string& beside) {
    field = inside("sampling_params", std::move(field), beside);
    field.fixed = ids;
    fields.push_back(std::move(field));
  };
  for (Field& field : sampling_fields(model)) {
    add_setting(std::move(field), R"("max_new_tokens": 1, )");
  }
  add_setting({.name = "min_new_tokens", .rule = integers(0, 1)}, R"("max_new_tokens": 1, )");
  add_setting({.name = "stream_interval", .rule = integers(1, kTwoTo31 - 1)},
              R"("max_new_tokens": 1, )");
  add_setting({.name = "max_new_tokens",
               .rule = integers(-1, static_cast<long double>(model.max_context_tokens) - 3)},
              "");
  add_setting({.name = "stop_regex", .rule = unset()}, R"("max_new_tokens": 1, )");
  add_setting({.name = "custom_params", .rule = unset()}, R"("max_new_tokens": 1, )");
  fields.push_back({.name = "sampling_params",
                    .rule = nothing(),
                    .exceptions = {{"{}", 200},
                                   {R"({"a": 1})", 400, "sampling_params.a"},
                                   {R"({"a": {"b": [1, {"c": null}]}})", 400, "sampling_params.a"}},
                    .fixed = ids});
  fields.push_back(model_field());
  fields.push_back({.name = "return_logprob", .rule = booleans()});
  fields.push_back({.name = "return_text_in_logprobs", .rule = booleans()});
  fields.push_back({.name = "logprob_start_len", .rule = integers(-1, 2)});
  fields.push_back({.name = "top_logprobs_num", .rule = integers(0, 20)});
  append_unsupported(fields, {"token_ids_logprob"});
  // It is always in the answer.
  std::ranges::find(fields, "return_meta_info", &Field::name)->exceptions = {{"true", 200}};
  std::ranges::find(fields, "return_prompt_token_ids", &Field::name)->rule = booleans();
  const std::string one_token = R"("sampling_params": {"max_new_tokens": 1}, )";
  fields.push_back(
      {.name = "text",
       .rule = texts(0, 300),
       .exceptions = {{"null", 400}, {"[\"5\"]", 200}, {"\"" + std::string(301, 'a') + "\"", 200}},
       .fixed = one_token});
  fields.push_back(
      {.name = "input_ids",
       .rule = nothing(),
       .exceptions = {{"null", 400, "text"}, {"[1]", 200}, {"[[]]", 400, "input_ids[0]"}},
       .fixed = one_token});
  return generate;
}

Endpoint tokenize_endpoint() {
  return {.path = kTokenizePath,
          .fixed = R"("prompt": "hi", )",
          .fields = {{.name = "prompt",
                      .rule = texts(0, 300),
                      .exceptions = {{"null", 400},
                                     {"[]", 200},
                                     {"[\"5\"]", 200},
                                     {"[1]", 400, "prompt[0]"},
                                     {"[[]]", 400, "prompt[0]"},
                                     {"\"" + std::string(301, 'a') + "\"", 200}},
                      .fixed = " "},
                     {.name = "add_special_tokens", .rule = booleans()},
                     {.name = "return_token_strs", .rule = booleans()},
                     {.name = "an_unknown_field", .rule = nothing()},
                     {.name = "user", .rule = anything()},
                     model_field()}};
}

Endpoint detokenize_endpoint(const CaseModel& model) {
  const std::string beyond = "[1, " + std::to_string(model.vocab_size) + "]";
  return {.path = kDetokenizePath,
          .fixed = R"("tokens": [5], )",
          .fields = {{.name = "tokens",
                      .rule = nothing(),
                      .exceptions = {{"null", 400},
                                     {"[]", 200},
                                     {"[1]", 200},
                                     {"[[]]", 200},
                                     {"[\"5\"]", 400, "tokens[0]"},
                                     {"[[1], 1]", 400, "tokens[1]"},
                                     {"[[1], [-1]]", 400, "tokens[1][0]"},
                                     {beyond, 400, "tokens[1]"}},
                      .more_values = {other("[[1], 1]"), other("[[1], [-1]]"), other(beyond)},
                      .fixed = " "},
                     {.name = "skip_special_tokens", .rule = booleans()},
                     model_field()}};
}

Endpoint score_endpoint(const CaseModel& model) {
  const std::string query = R"("query": "is it", )", items = R"("items": ["hot", "cold"], )",
                    labels = R"("label_token_ids": [5, 6], )";
  const std::string long_text = "\"" + std::string(301, 'a') + "\"";
  const std::string beyond = "[1, " + std::to_string(model.vocab_size) + "]";
  return {.path = kScorePath,
          .fixed = query + items + labels,
          .fields = {{.name = "query",
                      .rule = texts(0, 300),
                      .exceptions = {{"null", 400},
                                     {long_text, 200},
                                     {"[]", 400, "items[0]"},
                                     {"[1]", 400, "items[0]"},
                                     {"[[]]", 400, "query[0]"},
                                     {"[\"5\"]", 400, "query[0]"}},
                      .fixed = items + labels},
                     {.name = "items",
                      .rule = texts(0, 300),
                      .exceptions = {{"null", 400},
                                     {long_text, 200},
                                     {"[]", 200},
                                     {"[\"5\"]", 200},
                                     {"[1]", 400, "items[0]"},
                                     {"[[]]", 400, "items[0]"}},
                      .fixed = query + labels},
                     {.name = "label_token_ids",
                      .rule = nothing(),
                      .exceptions = {{"null", 400},
                                     {"[1]", 200},
                                     {"[[]]", 400, "label_token_ids[0]"},
                                     {"[\"5\"]", 400, "label_token_ids[0]"},
                                     {beyond, 400, "label_token_ids[1]"}},
                      .more_values = {other(beyond)},
                      .fixed = query + items},
                     {.name = "apply_softmax", .rule = booleans()},
                     {.name = "item_first", .rule = booleans()},
                     {.name = "text_1", .rule = unset()},
                     {.name = "an_unknown_field", .rule = nothing()},
                     {.name = "user", .rule = anything()},
                     model_field()}};
}

// The demo model's format is v3.1.
Endpoint call_text_endpoint() {
  const std::string long_text = "\"" + std::string(301, 'a') + "\"";
  return {.path = kCallTextPath,
          .fixed = R"("text": "hi", )",
          .fields = {{.name = "text",
                      .rule = texts(0, 300),
                      .exceptions = {{"null", 400}, {long_text, 200}},
                      .fixed = " "},
                     {.name = "tool_call_parser",
                      .rule = nothing(),
                      .exceptions = {{R"("deepseekv31")", 200}},
                      .more_values = {other(R"("deepseekv31")"), other(R"("deepseekv3")")}},
                     {.name = "tools",
                      .rule = nothing(),
                      .exceptions = {{"[]", 200},
                                     {"[1]", 400, "tools[0]"},
                                     {"[[]]", 400, "tools[0]"},
                                     {"[\"5\"]", 400, "tools[0]"}}},
                     {.name = "an_unknown_field", .rule = nothing()}}};
}

Endpoint reasoning_text_endpoint() {
  const std::string parser = R"("reasoning_parser": "deepseek-r1", )";
  const std::string long_text = "\"" + std::string(301, 'a') + "\"";
  return {.path = kReasoningTextPath,
          .fixed = R"("text": "hi", )" + parser,
          .fields = {
              {.name = "text",
               .rule = texts(0, 300),
               .exceptions = {{"null", 400}, {long_text, 200}},
               .fixed = parser},
              {.name = "reasoning_parser",
               .rule = nothing(),
               .exceptions = {{"null", 400}, {R"("deepseek-r1")", 200}, {R"("deepseek-v3")", 200}},
               .more_values = {other(R"("deepseek-r1")"), other(R"("deepseek-v3")"),
                               other(R"("qwen3")")},
               .fixed = R"("text": "hi", )"},
              {.name = "return_blocks", .rule = unset()},
              {.name = "an_unknown_field", .rule = nothing()}}};
}

}  // namespace

std::vector<ParameterCase> field_cases(const CaseModel& model) {
  std::vector<ParameterCase> cases;
  for (const Endpoint& endpoint :
       {chat_endpoint(model), completions_endpoint(model), generate_endpoint(model),
        messages_endpoint(model), responses_endpoint(model), tokenize_endpoint(),
        detokenize_endpoint(model), score_endpoint(model), call_text_endpoint(),
        reasoning_text_endpoint()}) {
    for (const Field& field : endpoint.fields) {
      for (const Value& value : values_of(field)) cases.push_back(case_of(endpoint, field, value));
    }
  }
  return cases;
}

std::vector<ParameterCase> parameter_cases(const CaseModel& model) {
  std::vector<ParameterCase> cases = field_cases(model);
  for (ParameterCase& c : body_cases(model)) cases.push_back(std::move(c));
  return cases;
}

bool leaks_internals(std::string_view body) {
  static const std::string root = source_path("");
  for (const std::string_view part : std::initializer_list<std::string_view>{
           root, "/home", "/usr", "/tmp", "/root", "/proc", "/opt", "src/",
           ".cc:", ".h:", "json.exception", "std::"}) {
    if (body.find(part) != std::string_view::npos) return true;
  }
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = body.find("0x"); at != std::string_view::npos; at = body.find("0x", at + 1)) {
    const std::string_view digits = body.substr(at + 2, 6);
    if (digits.size() == 6 && std::ranges::all_of(digits, is_hex)) return true;
  }
  return false;
}

}  // namespace fathom::api::tests
