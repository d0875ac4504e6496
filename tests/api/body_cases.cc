// Bodies that no table of values gives: text that is not JSON, depth, sizes at the limits, conversations
// and prompts whose parts do not fit together.

#include <utility>

#include "core/grammar_limits.h"
#include "tests/api/parameter_cases.h"
#include "tests/sanitized.h"

namespace fathom::api::tests {
namespace {

constexpr int kMany = kIsSanitized ? 100'000 : 1'000'000;

struct Answer {
  int status = 200;
  std::string param = {};
};
const Answer kAccepted{};
Answer refused_for(const std::string& param) { return {.status = 400, .param = param}; }

// "x,x,x": `count` times.
std::string repeated(const std::string& text, int count) {
  std::string list;
  list.reserve((text.size() + 1) * static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (i > 0) list += ',';
    list += text;
  }
  return list;
}

std::string array_of(const std::string& text, int count) {
  return "[" + repeated(text, count) + "]";
}

// {"0": 1, "1": 1, ...}
std::string object_of(int count) {
  std::string object = "{";
  for (int i = 0; i < count; ++i) {
    object += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  }
  return object + "}";
}

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

class CaseList {
 public:
  void add(std::string_view path, const std::string& what, std::string body, const Answer& answer) {
    cases_.push_back({.path = std::string(path),
                      .field = "",
                      .value = what,
                      .body = std::move(body),
                      .status = answer.status,
                      .param = answer.param});
  }
  std::vector<ParameterCase> take() && { return std::move(cases_); }

 private:
  std::vector<ParameterCase> cases_;
};

// The fields of a good body, without braces.
struct GoodBody {
  std::string_view path;
  std::string fields;
};

std::vector<GoodBody> good_bodies() {
  return {{kChatPath, R"("messages": [{"role": "user", "content": "hi"}], "max_tokens": 1)"},
          {kCompletionsPath, R"("prompt": [5, 6, 7], "max_tokens": 1)"},
          {kGeneratePath, R"("input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 1})"},
          {kTokenizePath, R"("prompt": "hi")"},
          {kDetokenizePath, R"("tokens": [5])"}};
}

void add_broken_json(const GoodBody& good, CaseList& cases) {
  const auto bad = [&](const std::string& what, const std::string& body) {
    cases.add(good.path, what, body, refused_for(""));
  };
  const std::string whole = "{" + good.fields + "}";
  for (const char* body : {"",
                           " ",
                           "{",
                           "}",
                           "[]",
                           "[{}]",
                           "null",
                           "true",
                           "5",
                           "\"5\"",
                           "{]",
                           "{,}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\": 1,}",
                           "{'a': 1}",
                           "{a: 1}",
                           "{\"a\": 1}}",
                           "{\"a\": 1} {}",
                           "{\"a\": 1}x",
                           "// c\n{}",
                           "{\"a\": tru}",
                           "{\"a\": 1e}",
                           "{\"a\": .5}",
                           "{\"a\": 5.}",
                           "{\"a\": -}",
                           "{\"a\": \"\n\"}",
                           "{\"a\": \"\\x\"}",
                           "{\"a\": \"\\u12\"}",
                           "<a/>",
                           "a=b"}) {
    bad(body, body);
  }
  bad("cut off", whole.substr(0, whole.size() - 1));
  bad("NUL inside", "{" + good.fields + std::string(1, '\0') + "}");
  bad("NUL behind", whole + std::string(1, '\0'));
  bad("a key twice", "{" + good.fields + R"(, "z": 1, "z": 2})");
  bad("a known key twice", "{" + good.fields + ", " + good.fields + "}");
  bad("invalid UTF-8", "{" + good.fields + ", \"z\": \"\xff\"}");
  bad("overlong UTF-8", "{" + good.fields + ", \"z\": \"\xc0\xaf\"}");
  bad("UTF-8 surrogate", "{" + good.fields + ", \"z\": \"\xed\xa0\x80\"}");
  bad("cut UTF-8", "{" + good.fields + ", \"z\": \"\xe2\x82\"}");
  bad("UTF-16", std::string("\xff\xfe{\0}\0", 6));
  for (const int depth : {64, 65, 1000, 250'000}) {
    // The body itself is the first level.
    bad("depth " + std::to_string(depth + 1),
        "{" + good.fields + ", \"z\": " + nested(depth) + "}");
  }
  bad("depth without an end", std::string(250'000, '['));
  bad("objects without an end", "{\"a\":" + repeated("{\"a\":", 1000));
}

void add_odd_but_good(const GoodBody& good, CaseList& cases) {
  const auto fine = [&](const std::string& what, const std::string& body) {
    cases.add(good.path, what, body, kAccepted);
  };
  fine("as it is", "{" + good.fields + "}");
  fine("a byte order mark", "\xef\xbb\xbf{" + good.fields + "}");
  fine("white space", " \t\r\n{" + good.fields + "} \t\r\n");
  // A field without effect is checked and not built, whatever it holds.
  fine("depth 64", "{" + good.fields + ", \"user\": " + nested(63) + "}");
  fine("paired surrogates", "{" + good.fields + R"(, "user": "\ud83d\ude42"})");
  fine("a lone high surrogate", "{" + good.fields + R"(, "user": "\ud800"})");
  fine("a lone low surrogate", "{" + good.fields + R"(, "user": "\udc00"})");
  fine("reversed surrogates", "{" + good.fields + R"(, "user": "\udc00\ud800"})");
  fine("very many numbers that nobody reads",
       "{" + good.fields + ", \"user\": " + array_of("0", kMany) + "}");
  fine("100,000 keys that nobody reads",
       "{" + good.fields + ", \"user\": " + object_of(100'000) + "}");
  fine("a very long text that nobody reads",
       "{" + good.fields + ", \"user\": \"" + std::string(kMany, 'z') + "\"}");
  fine("an unknown null", "{" + good.fields + ", \"z\": null}");
}

// Names that nobody knows, with values that must not be built for the refusal.
void add_unknown_names(const GoodBody& good, CaseList& cases) {
  const auto unknown = [&](const std::string& what, const std::string& fields,
                           const std::string& param) {
    cases.add(good.path, what, "{" + good.fields + ", " + fields + "}", refused_for(param));
  };
  unknown("an unknown field of very many numbers", "\"z\": " + array_of("0", kMany), "z");
  unknown("an unknown field of 100,000 keys", "\"z\": " + object_of(100'000), "z");
  std::string many_fields = "\"z\": 1";
  for (int i = 0; i < 100'000; ++i) many_fields += ",\"z" + std::to_string(i) + "\":1";
  unknown("100,000 unknown fields", many_fields, "z");
  unknown("a very long name", "\"" + std::string(kMany, 'z') + "\": 1",
          std::string(64, 'z') + "...");
  unknown("a name with control characters", R"("z\u0000\n\"": 1)", R"(z\u0000\n\")");
  unknown("an empty name", R"("": 1)", "");
}

// Settings at their limits, one beyond, and far beyond.
void add_limits(std::string_view path, const std::string& before, const std::string& after,
                const std::string& prefix, CaseList& cases) {
  const auto add = [&](const std::string& name, const std::string& value, const Answer& answer) {
    cases.add(path, name + " of " + std::to_string(value.size()) + " bytes",
              before + "\"" + name + "\": " + value + after, answer);
  };
  for (const int count : {16, 17, 16'000, 100'000, kMany}) {
    add("stop", array_of("\"a\"", count), count <= 16 ? kAccepted : refused_for(prefix + "stop"));
  }
  for (const size_t size : {size_t{256}, size_t{257}, size_t{kMany}}) {
    const std::string text = "\"" + std::string(size, 'a') + "\"";
    add("stop", text, size <= 256 ? kAccepted : refused_for(prefix + "stop"));
    add("stop", "[" + text + "]", size <= 256 ? kAccepted : refused_for(prefix + "stop[0]"));
  }
  for (const int count : {128, 129, 128'000, kMany}) {
    add("stop_token_ids", array_of("7", count),
        count <= 128 ? kAccepted : refused_for(prefix + "stop_token_ids"));
  }
  for (const int count : {1024, 1025, kMany}) {
    add("logit_bias", object_of(count),
        count <= 1024 ? kAccepted : refused_for(prefix + "logit_bias"));
  }
  constexpr auto kMaxGrammar = static_cast<size_t>(core::kMaxGrammarBytes);
  for (const size_t size : {kMaxGrammar, kMaxGrammar + 1, 4 * kMaxGrammar}) {
    const std::string text = "\"" + std::string(size, 'a') + "\"";
    const bool fits = size <= kMaxGrammar;
    add("regex", text, fits ? kAccepted : refused_for(prefix + "regex"));
    add("ebnf", text, fits ? kAccepted : refused_for(prefix + "ebnf"));
  }
  add("json_schema", "{\"enum\": " + array_of("1000", kMany) + "}",
      refused_for(prefix + "json_schema"));
}

void add_grammar_conflicts(const GoodBody& good, CaseList& cases) {
  const auto add = [&](const std::string& more, const Answer& answer) {
    cases.add(good.path, more, "{" + good.fields + ", " + more + "}", answer);
  };
  const std::string schema =
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}})";
  add(schema, kAccepted);
  add(R"("response_format": {"type": "json_object"})", kAccepted);
  add(R"("response_format": {"type": "xml"})", refused_for("response_format.type"));
  add(R"("response_format": {"type": 1})", refused_for("response_format.type"));
  add(R"("response_format": {"type": "structural_tag", "format": {}})", kAccepted);
  add(R"("response_format": {"type": "structural_tag", "structures": [], "triggers": []})",
      kAccepted);
  add(R"("response_format": {"type": "structural_tag", "schema": {}})",
      refused_for("response_format.schema"));
  add(R"("response_format": {"type": "text", "format": {}})",
      refused_for("response_format.format"));
  add(R"("response_format": {"type": "json_object", "triggers": []})",
      refused_for("response_format.triggers"));
  add(R"("response_format": {"type": "json_schema"})", refused_for("response_format.json_schema"));
  add(R"("response_format": {"type": "json_schema", "json_schema": []})",
      refused_for("response_format.json_schema"));
  for (const char* const taken : {"{}", R"({"schema": true})", R"({"schema": "{}"})"}) {
    add(std::string(R"("response_format": {"type": "json_schema", "json_schema": )") + taken + "}",
        kAccepted);
  }
  add(R"("response_format": {"type": "json_schema", "json_schema": {"schema": "{"}})",
      refused_for("response_format.json_schema.schema"));
  add(R"("response_format": {"type": "json_schema", "json_schema": {"schema": 1}})",
      refused_for("response_format.json_schema.schema"));
  add(R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}})",
      refused_for("response_format.json_schema.strict"));
  add(R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}, "name": 1}})",
      refused_for("response_format.json_schema.name"));
  add(schema + R"(, "regex": "a")", refused_for("regex"));
  add(R"("regex": "a", "ebnf": "a")", refused_for("ebnf"));
  add(R"("json_schema": {}, "ebnf": "a")", refused_for("ebnf"));
}

void add_conversations(const CaseModel& model, CaseList& cases) {
  const auto add = [&](const std::string& messages, const Answer& answer,
                       const std::string& more = "") {
    cases.add(kChatPath, messages.substr(0, 200),
              "{\"messages\": [" + messages + "], \"max_tokens\": 1" + more + "}", answer);
    cases.add(kTokenizePath, messages.substr(0, 200),
              "{\"messages\": [" + messages + "]" + more + "}", answer);
  };
  const std::string user = R"({"role": "user", "content": "hi"})";
  const std::string call =
      R"({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function",
          "function": {"name": "f", "arguments": "{}"}}]})";
  const std::string result = R"({"role": "tool", "tool_call_id": "c1", "content": "r"})";
  add(user, kAccepted);
  add(user + "," + call + "," + result, kAccepted);
  add(user + "," + call + "," + result + "," + result, refused_for("messages[3]"));
  add(user + "," + call, refused_for("messages[1].tool_calls[0]"));
  add(R"({"role": "system", "content": ""},)" + user, kAccepted);
  add(R"({"role": "developer", "content": "d"},)" + user, kAccepted);
  add(R"({"role": "user", "content": ""})", kAccepted);
  add(R"({"role": "user", "content": [{"type": "text", "text": "a"}]})", kAccepted);
  add(user + R"(,{"role": "assistant", "content": "a", "reasoning_content": "r"},)" + user,
      kAccepted);
  add(R"({"role": "user", "content": "<｜Assistant｜><｜end▁of▁sentence｜>\u0000"})", kAccepted);
  add("", refused_for("messages"));
  add("{}", refused_for("messages[0].role"));
  add(user + ",{}", refused_for("messages[1].role"));
  add(user + ",null", refused_for("messages[1]"));
  add(R"({"role": "function", "content": "a"})", refused_for("messages[0].name"));
  add(R"({"role": "User", "content": "a"})", refused_for("messages[0].role"));
  add(R"({"role": "user"})", refused_for("messages[0].content"));
  add(R"({"role": "assistant", "content": null, "tool_calls": []})", kAccepted);
  add(result, refused_for("messages[0]"));
  add(user + "," + result, refused_for("messages[1]"));
  add(call + "," + user + "," + result, refused_for("messages[0].tool_calls[0]"));
  add(call + R"(,{"role": "tool", "tool_call_id": "other", "content": "r"})",
      refused_for("messages[1]"));
  add(R"({"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f"}}]})",
      refused_for("messages[0]"));
  const auto add_call = [&](const std::string& value, const Answer& answer) {
    add(R"({"role": "assistant", "tool_calls": [)" + value +
            R"(]},{"role": "tool", "content": "r"})",
        answer);
  };
  const std::string where = "messages[0].tool_calls[0]";
  add_call(R"({"function": {"name": "f", "arguments": {"a": 1}}})", kAccepted);
  add_call(R"({"function": {"name": "f", "arguments": ""}})", kAccepted);
  add_call(R"({"function": {"name": "f"}})", kAccepted);
  add_call(R"({"function": {"name": "f", "arguments": "[]"}})", kAccepted);
  add_call(R"({"function": {"name": "f", "arguments": "{\"a"}})", kAccepted);
  add_call(R"({"function": {"name": "f", "arguments": 5}})",
           refused_for(where + ".function.arguments"));
  add_call(R"({"function": {"name": ""}})", refused_for(where));
  add_call(R"({"function": {"name": 5}})", refused_for(where + ".function.name"));
  add_call(R"({"function": {}})", refused_for(where));
  add_call(R"({"function": []})", refused_for(where + ".function"));
  add_call("{}", refused_for(where + ".function"));
  add_call(R"({"type": "code", "function": {"name": "f"}})", refused_for(where + ".type"));
  add_call(R"({"id": 5, "function": {"name": "f"}})", refused_for(where + ".id"));
  const auto add_part = [&](const std::string& value, const std::string& param) {
    add(R"({"role": "user", "content": [)" + value + "]}",
        refused_for("messages[0].content[0]" + param));
  };
  add_part("{}", ".type");
  add_part(R"({"type": "text"})", ".text");
  add_part(R"({"type": "text", "text": 5})", ".text");
  add_part(R"({"type": "text", "text": null})", ".text");
  add_part(R"({"type": "image_url", "image_url": {"url": "data:"}})", ".type");
  add_part(R"({"type": "input_audio", "input_audio": {}})", ".type");
  add_part(R"({"text": "a"})", ".type");
  add(repeated(user, 16'385), refused_for("messages"));
  add(repeated(user, 100'000), refused_for("messages"));
  add(repeated(user, 16'384), refused_for("messages"));  // that many tokens do not fit the context
  const std::string long_text(static_cast<size_t>(model.max_context_tokens) * 100, '7');
  add(R"({"role": "user", "content": ")" + long_text + "\"}", refused_for("messages"));
}

void add_tools(CaseList& cases) {
  const auto add = [&](const std::string& more, const Answer& answer) {
    cases.add(kChatPath, more.substr(0, 200),
              R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, )" + more + "}",
              answer);
  };
  const std::string tool = R"({"type": "function", "function": {"name": "f"}})";
  add("\"tools\": [" + tool + "]", kAccepted);
  add("\"tools\": [" + tool + R"(], "tool_choice": "none")", kAccepted);
  add(R"("tools": [{"name": "f", "parameters": {}}])", kAccepted);
  add("\"tools\": " + array_of("1", 129), refused_for("tools[0]"));
  add("\"tools\": " + array_of(tool, 16385), refused_for("tools"));
  add(R"("tools": [{"type": "web_search"}])", refused_for("tools[0].type"));
  add(R"("tools": [{"type": ")" + std::string(kMany, 'a') + "\"}]", refused_for("tools[0].type"));
  add(R"("tools": [{"type": "function", "function": 5}])", refused_for("tools[0].function"));
  add(R"("tools": [{"type": "function", "function": {}}])", refused_for("tools[0].function.name"));
  add(R"("tools": [{"type": "function", "function": {"name": 5}}])",
      refused_for("tools[0].function.name"));
  add(R"("tools": [{"type": "function", "function": {"name": "f", "parameters": []}}])",
      refused_for("tools[0].function.parameters"));
  add(R"("tools": [{"type": "function", "function": {"name": "f", "description": 1}}])",
      refused_for("tools[0].function.description"));
  add("\"tools\": [" + tool +
          R"(], "tool_choice": {"type": "function", "function": {"name": "g"}})",
      refused_for("tool_choice"));
  add("\"tools\": [" + tool + R"(], "tool_choice": {"type": "allowed_tools"})",
      refused_for("tool_choice.allowed_tools"));
  const std::string allowed =
      "\"tools\": [" + tool + R"(], "tool_choice": {"type": "allowed_tools", "allowed_tools": )";
  add(allowed + "{}}", refused_for("tool_choice.allowed_tools.mode"));
  add(allowed + R"({"mode": 5, "tools": []}})", refused_for("tool_choice.allowed_tools.mode"));
  add(allowed + R"({"mode": "auto"}})", refused_for("tool_choice.allowed_tools.tools"));
  add(allowed + R"({"mode": "auto", "tools": )" + array_of(tool, 16385) + "}}",
      refused_for("tool_choice.allowed_tools.tools"));
  add(allowed + R"({"mode": "auto", "tools": [null]}})",
      refused_for("tool_choice.allowed_tools.tools[0]"));
  add(allowed + R"({"mode": "auto", "tools": [{}]}})",
      refused_for("tool_choice.allowed_tools.tools[0].function"));
  add(allowed + R"({"mode": "required", "tools": )" + array_of(tool, 128) + "}}", kAccepted);
  add(R"("tool_choice": {"type": "web_search"})", refused_for("tool_choice.type"));
  add("\"tools\": [" + tool + R"(], "tool_choice": {"type": "function", "function": {}})",
      refused_for("tool_choice.function.name"));
  add(R"("tool_choice": {"type": "function", "function": {"name": "f"}})",
      refused_for("tool_choice"));
  add("\"tools\": [" + tool + R"(], "response_format": {"type": "json_object"})", kAccepted);
  add("\"tools\": [" + tool +
          R"(], "response_format": {"type": "json_object"}, "tool_choice": "none")",
      kAccepted);
  add(R"("top_logprobs": 1)", refused_for("top_logprobs"));
  add(R"("max_completion_tokens": 2)", refused_for("max_tokens"));
  add(R"("max_completion_tokens": 1)", kAccepted);
  add(R"("chat_template_kwargs": {"thinking": true, "enable_thinking": false})",
      refused_for("chat_template_kwargs.enable_thinking"));
  add(R"("chat_template_kwargs": {"thinking": true, "tokenize": true})",
      refused_for("chat_template_kwargs.tokenize"));
  add(R"("chat_template_kwargs": )" + object_of(kMany), refused_for("chat_template_kwargs.0"));
}

// Prompts of token ids around the length of the context, and lists of prompts.
void add_prompts(const CaseModel& model, CaseList& cases) {
  const auto add = [&](const std::string& prompt, const std::string& max_tokens,
                       const Answer& answer) {
    const std::string what = prompt.substr(0, 60) + "..., " + max_tokens;
    const std::string limit = max_tokens == "null" ? "" : max_tokens;
    cases.add(kCompletionsPath, what,
              "{\"prompt\": " + prompt + (limit.empty() ? "" : ", \"max_tokens\": " + limit) + "}",
              answer);
    Answer native = answer;
    if (native.param.starts_with("prompt")) native.param.replace(0, 6, "input_ids");
    if (native.param == "max_tokens") native.param = "sampling_params.max_new_tokens";
    cases.add(
        kGeneratePath, what,
        "{\"input_ids\": " + prompt +
            (limit.empty() ? "" : ", \"sampling_params\": {\"max_new_tokens\": " + limit + "}") +
            "}",
        native);
  };
  const int context = model.max_context_tokens;
  add(array_of("7", context - 1), "0", kAccepted);
  add(array_of("7", context - 1), "1", kAccepted);
  add(array_of("7", context - 1), "2", refused_for("max_tokens"));
  add(array_of("7", context - 1), "null", kAccepted);  // what is left, one
  add(array_of("7", context), "0", kAccepted);
  add(array_of("7", context), "1", refused_for("prompt"));
  add(array_of("7", context), "null", refused_for("prompt"));
  add(array_of("7", context + 1), "0", refused_for("prompt"));
  add(array_of("7", context + 1), "1", refused_for("prompt"));
  add(array_of("7", kMany), "1", refused_for("prompt"));
  add("[" + array_of("7", context + 1) + "]", "1", refused_for("prompt[0]"));
  add("[" + std::to_string(model.vocab_size - 1) + "]", "1", kAccepted);
  for (const std::string& id :
       {std::to_string(model.vocab_size), std::string("-1"), std::string("2147483648"),
        std::string("4294967296"), std::string("1e308"), std::string("1.5"), std::string("true"),
        std::string("null"), std::string("{}"), std::string("\"7\"")}) {
    add("[7, " + id + "]", "1", refused_for("prompt[1]"));
    add("[[7, " + id + "]]", "1", refused_for("prompt[0][1]"));
  }
  add("[[7], 7]", "1", refused_for("prompt[1]"));
  add("[[7], \"a\"]", "1", refused_for("prompt[1]"));
  add("[[7], []]", "1", refused_for("prompt[1]"));
  add("[[[7]]]", "1", refused_for("prompt[0][0]"));
  add(array_of("[7]", 1024), "1", kAccepted);
  add(array_of("[7]", 1025), "1", refused_for("prompt"));
  add(array_of("[]", kMany), "1", refused_for("prompt"));
}

void add_batches(CaseList& cases) {
  const auto add = [&](const std::string& body, const Answer& answer) {
    cases.add(kGeneratePath, body.substr(0, 200), body, answer);
  };
  const std::string two = R"({"input_ids": [[5], [6]], )";
  add(two + R"("sampling_params": [{"max_new_tokens": 1}, {"max_new_tokens": 0}]})", kAccepted);
  add(two + R"("sampling_params": [{"max_new_tokens": 1}, null]})", kAccepted);
  add(two + R"("sampling_params": [{"max_new_tokens": 1}]})", refused_for("sampling_params"));
  add(two + R"("sampling_params": []})", refused_for("sampling_params"));
  add(two + R"("sampling_params": [{}, 5]})", refused_for("sampling_params[1]"));
  add(two + R"("sampling_params": [{}, {"n": 0}]})", refused_for("sampling_params[1].n"));
  add(two + R"("sampling_params": [{}, {"stop": [1]}]})",
      refused_for("sampling_params[1].stop[0]"));
  add(two + R"("sampling_params": {"max_new_tokens": 1}, "return_logprob": [true, false]})",
      kAccepted);
  add(two + R"("return_logprob": [true]})", refused_for("return_logprob"));
  add(two + R"("return_logprob": [true, 1]})", refused_for("return_logprob[1]"));
  add(two + R"("top_logprobs_num": [0, 21]})", refused_for("top_logprobs_num[1]"));
  add(two + R"("logprob_start_len": [0, 1]})", refused_for("logprob_start_len[1]"));
  add(two + R"("sampling_params": {"max_new_tokens": 1}, "rid": ["a", "b"]})", kAccepted);
  add(two + R"("rid": "a"})", refused_for("rid"));
  add(two + R"("rid": ["a", "a"]})", refused_for("rid[1]"));
  add(two + R"("rid": ["a", 1]})", refused_for("rid[1]"));
  add(two + R"("text": "a"})", refused_for("input_ids"));
  add(two + R"("return_logprob": )" + array_of("true", kMany) + "}", refused_for("return_logprob"));
  add(two + R"("sampling_params": )" + array_of("{}", kMany) + "}", refused_for("sampling_params"));
  add("{}", refused_for("text"));
  add(R"({"text": ["a", 1]})", refused_for("text[1]"));
  add(R"({"input_ids": )" + array_of("[5]", 513) +
          R"(, "sampling_params": {"n": 2, "max_new_tokens": 1}})",
      refused_for("input_ids"));
}

void add_token_lists(CaseList& cases) {
  cases.add(kDetokenizePath, "very many ids", "{\"tokens\": " + array_of("7", kMany) + "}",
            kAccepted);
  cases.add(kDetokenizePath, "more than 2^20 ids",
            "{\"tokens\": " + array_of("7", (1 << 20) + 1) + "}", refused_for("tokens"));
  cases.add(kDetokenizePath, "more than 2^20 empty lists",
            "{\"tokens\": " + array_of("[]", (1 << 20) + 1) + "}", refused_for("tokens"));
  cases.add(kTokenizePath, "1025 prompts", "{\"prompt\": " + array_of("\"a\"", 1025) + "}",
            refused_for("prompt"));
  cases.add(kTokenizePath, "9 MiB of text",
            "{\"prompt\": \"" + std::string(size_t{9} << 20, 'a') + "\"}", refused_for("prompt"));
  cases.add(kTokenizePath, "nothing", "{}", refused_for("prompt"));
  cases.add(kTokenizePath, "both",
            R"({"prompt": "a", "messages": [{"role": "user", "content": "a"}]})",
            refused_for("prompt"));
}

}  // namespace

std::vector<ParameterCase> body_cases(const CaseModel& model) {
  CaseList cases;
  // Here unknown names are refused: odd but good is for the others.
  add_broken_json(
      {kMessagesPath, R"("messages": [{"role": "user", "content": "hi"}], "max_tokens": 1)"},
      cases);
  add_broken_json({kResponsesPath, R"("input": "hi", "max_output_tokens": 1)"}, cases);
  for (const GoodBody& good : good_bodies()) {
    add_broken_json(good, cases);
    add_odd_but_good(good, cases);
    add_unknown_names(good, cases);
    if (good.path == kChatPath || good.path == kCompletionsPath) {
      add_limits(good.path, "{" + good.fields + ", ", "}", "", cases);
      add_grammar_conflicts(good, cases);
    }
  }
  add_limits(kGeneratePath, R"({"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 1, )",
             "}}", "sampling_params.", cases);
  add_conversations(model, cases);
  add_tools(cases);
  add_prompts(model, cases);
  add_batches(cases);
  add_token_lists(cases);
  return std::move(cases).take();
}

}  // namespace fathom::api::tests
