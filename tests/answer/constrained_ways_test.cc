// Every chat format in every way in which an answer is held to a form, with the vocabularies that meet it: DeepSeek's
// own of 129,280 ids, the demo model's with words of the formats as ordinary tokens, and the demo model's with Kimi's
// markers. Every output ends, and reads back as calls of the tools with arguments that fit their schemas.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "api/chat_request.h"
#include "api/messages_request.h"
#include "base/json.h"
#include "base/whole_file.h"
#include "tests/answer/constraint_walk.h"
#include "tests/api/demo_served_model.h"
#include "tests/grammar/schema_validator.h"
#include "tests/published_tokenizer.h"
#include "tests/sanitized.h"
#include "text/chat_markup.h"
#include "text/output/json_object_machine.h"
#include "text/tool_call_form.h"

namespace fathom::answer::tests {
namespace {

using api::tests::accepted;
using api::tests::refused;
using text::ChatFormat;

struct Vocabulary {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  int size = 0;
};

// The demo model's tokenizer with other texts in its file, and words behind its last id that are no added tokens.
Vocabulary edited_demo(const std::vector<std::pair<std::string, std::string>>& renamed,
                       const std::vector<std::string>& words) {
  const Result<std::string> file =
      read_whole_file(source_path("models/demo/tokenizer.json"), int64_t{64} << 20);
  json::Value json = json::parse(file.value()).value();
  int size = static_cast<int>(json["model"]["vocab"].size());
  for (const std::string& word : words) json["model"]["vocab"][word] = size++;
  std::string text = json::dump(json);
  for (const auto& [from, to] : renamed) {
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  }
  const Result<std::string> config =
      read_whole_file(source_path("models/demo/tokenizer_config.json"), int64_t{1} << 20);
  Result<text::Tokenizer> tokenizer = text::Tokenizer::parse(text, config.value());
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return {std::make_shared<const text::Tokenizer>(std::move(tokenizer.value())), size};
}

// V3.2's mark may be an added token or not.
Vocabulary demo_with_mark() {
  return edited_demo({{std::string(text::markup::kSep), std::string(text::markup::kDsml)}}, {});
}

Vocabulary demo_with_words() { return edited_demo({}, {"function", "```", "```json", "\n```"}); }

Vocabulary demo_with_kimis_markers() {
  using namespace text::markup;
  std::vector<std::pair<std::string, std::string>> renamed;
  for (const auto& [from, to] : {std::pair{kCallsBegin, kKimiSectionBegin},
                                 {kCallsEnd, kKimiSectionEnd},
                                 {kCallBegin, kKimiCallBegin},
                                 {kCallEnd, kKimiCallEnd},
                                 {kSep, kKimiArgumentBegin}}) {
    renamed.emplace_back(from, to);
  }
  return edited_demo(renamed, {"functions", ":0", "functions."});
}

const json::Value& weather_schema() {
  static const json::Value schema = json::parse(R"({"type": "object", "properties": {
      "city": {"type": "string", "maxLength": 12},
      "days": {"type": "integer", "minimum": 1, "maximum": 9},
      "units": {"enum": ["metric", "imperial", "function"]},
      "parts": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties":
          {"name": {"enum": ["wind", "rain"]}, "wanted": {"type": "boolean"}}, "required": ["name"],
          "additionalProperties": false}}},
    "required": ["city", "days"], "additionalProperties": false})")
                                        .value();
  return schema;
}

const json::Value& tides_schema() {
  static const json::Value schema =
      json::parse(
          R"({"type": "object", "properties": {"port": {"type": "string", "pattern": "^[A-Z]{3}$"}},
              "required": ["port"], "additionalProperties": false})")
          .value();
  return schema;
}

const json::Value& schema_of(const std::string& tool) {
  return tool == "get_weather" ? weather_schema() : tides_schema();
}

json::Value chat_tools(bool strict) {
  json::Value tools = json::Value::array();
  for (const char* const name : {"get_weather", "get_tides"}) {
    json::Value function = {{"name", name}, {"parameters", schema_of(name)}};
    if (strict) function["strict"] = true;
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

json::Value anthropic_tools() {
  json::Value tools = json::Value::array();
  for (const char* const name : {"get_weather", "get_tides"}) {
    tools.push_back({{"name", name}, {"input_schema", schema_of(name)}});
  }
  return tools;
}

json::Value chat_body(json::Value more) {
  more["messages"] = {{{"role", "user"}, {"content", "The weather in Oslo?"}}};
  return more;
}

json::Value named_tool() { return {{"type", "function"}, {"function", {{"name", "get_tides"}}}}; }

json::Value schema_format() {
  return {{"type", "json_schema"},
          {"json_schema", {{"name", "tides"}, {"schema", tides_schema()}}}};
}

// Tags that begin and end with words that large vocabularies have as tokens.
constexpr const char* kTagBegin = "function```json\n";
constexpr const char* kTagEnd = "\n```";
json::Value tags_format() {
  const json::Value tag = {
      {"type", "tag"},
      {"begin", kTagBegin},
      {"content", {{"type", "json_schema"}, {"json_schema", weather_schema()}}},
      {"end", kTagEnd}};
  return {{"type", "structural_tag"},
          {"format",
           {{"type", "triggered_tags"},
            {"triggers", {"function"}},
            {"tags", {tag}},
            {"at_least_one", true},
            {"stop_after_first", true}}}};
}

struct Way {
  const char* name;
  json::Value body;
  bool is_messages = false;
  bool leads_in = false;  // the calls are only allowed: the output is led to their section
  bool is_one_call = false;
  bool is_free = false;        // the arguments are any JSON object
  const char* only_tool = "";  // is called
};

std::vector<Way> tool_ways() {
  const json::Value tools = chat_tools(false);
  json::Value any = chat_body({{"tools", anthropic_tools()}, {"tool_choice", {{"type", "any"}}}});
  any["max_tokens"] = 1000;
  json::Value any_one = any;
  any_one["tool_choice"]["disable_parallel_tool_use"] = true;
  return {{.name = "required", .body = chat_body({{"tools", tools}, {"tool_choice", "required"}})},
          {.name = "named",
           .body = chat_body({{"tools", tools}, {"tool_choice", named_tool()}}),
           .is_one_call = true,
           .only_tool = "get_tides"},
          {.name = "strict", .body = chat_body({{"tools", chat_tools(true)}}), .leads_in = true},
          {.name = "not parallel",
           .body = chat_body({{"tools", tools}, {"parallel_tool_calls", false}}),
           .leads_in = true,
           .is_one_call = true},
          {.name = "beside a form",
           .body = chat_body({{"tools", tools}, {"response_format", schema_format()}}),
           .leads_in = true,
           .is_free = true},
          {.name = "any", .body = any, .is_messages = true},
          {.name = "any, one", .body = any_one, .is_messages = true, .is_one_call = true}};
}

std::vector<uint64_t> seeds() {
  if (kIsSanitized) return {1};
  return {1, 2, 3};
}

class Ways {
 public:
  Ways(const Vocabulary& vocabulary, ChatFormat format)
      : model_(walk_model(vocabulary.tokenizer, format, vocabulary.size)) {}

  api::Parsed<api::GenerationRequest> parsed(const Way& way) const {
    const std::string body = json::dump(way.body);
    return way.is_messages ? api::parse_messages_request(body, model_.served)
                           : api::parse_chat_request(body, model_.served);
  }

  // What stands before the form: a reasoning that the prompt has opened, or that the model may write.
  static std::string reasoning_before(const api::GenerationRequest& request, uint64_t seed) {
    if (request.chat.starts_in_reasoning) return "Hm, function ```.</think>\n\n";
    const bool writes_it =
        request.chat.format == ChatFormat::kR1_0528 || request.chat.format == ChatFormat::kR1Tools;
    return writes_it && seed % 2 == 0 ? "<think>Hm.</think>\n" : "";
  }

  static std::string section_begin(ChatFormat format) {
    if (!text::writes_dsml(format)) return std::string(text::tool_call_form(format)->section_begin);
    return "<" + std::string(text::markup::kDsml) + "function_calls>\n";
  }

  void check_calls(const Way& way) const {
    const api::GenerationRequest request = accepted(parsed(way));
    for (const uint64_t seed : seeds()) {
      SCOPED_TRACE(std::string(way.name) + ", seed " + std::to_string(seed));
      std::string prefix = reasoning_before(request, seed);
      if (way.leads_in) prefix += section_begin(request.chat.format);
      const Walked walked = walk(model_, request, {.seed = seed, .prefix = prefix});
      ASSERT_EQ(walked.problem, "");
      ASSERT_FALSE(walked.calls.empty()) << walked.text;
      if (way.is_one_call) {
        EXPECT_EQ(walked.calls.size(), 1U) << walked.text;
      }
      EXPECT_EQ(walked.content, "") << walked.text;
      for (const WalkedCall& call : walked.calls) check_call(way, call);
    }
  }

  void check_tags() const {
    const Way way = {.name = "tags", .body = chat_body({{"response_format", tags_format()}})};
    const api::GenerationRequest request = accepted(parsed(way));
    for (const uint64_t seed : seeds()) {
      const Walked walked =
          walk(model_, request, {.seed = seed, .prefix = reasoning_before(request, seed)});
      ASSERT_EQ(walked.problem, "");
      const std::string begin = kTagBegin, end = kTagEnd;
      ASSERT_TRUE(walked.content.starts_with(begin) && walked.content.ends_with(end))
          << walked.text;
      expect_fits(
          weather_schema(),
          walked.content.substr(begin.size(), walked.content.size() - begin.size() - end.size()));
    }
  }

  void check_form(bool has_tools) const {
    Way way = {.name = "form", .body = chat_body({{"response_format", schema_format()}})};
    if (has_tools) way.body["tools"] = chat_tools(false);
    const api::GenerationRequest request = accepted(parsed(way));
    for (const uint64_t seed : seeds()) {
      const std::string prefix = reasoning_before(request, seed) + "{\"";
      const Walked walked = walk(model_, request, {.seed = seed, .prefix = prefix});
      ASSERT_EQ(walked.problem, "");
      EXPECT_TRUE(walked.calls.empty()) << walked.text;
      expect_fits(tides_schema(), walked.content);
    }
  }

 private:
  static void expect_fits(const json::Value& schema, const std::string& text) {
    const Result<json::Value> value = json::parse(text);
    ASSERT_TRUE(value) << text;
    EXPECT_EQ(grammar::tests::violation(schema, schema, *value), "") << text;
  }

  static void check_call(const Way& way, const WalkedCall& call) {
    EXPECT_TRUE(call.is_complete) << call.arguments;
    EXPECT_TRUE(call.name == "get_weather" || call.name == "get_tides") << call.name;
    if (*way.only_tool != '\0') {
      EXPECT_EQ(call.name, way.only_tool);
    }
    // Names may come twice in what no schema describes, which our own reader refuses.
    if (way.is_free) {
      EXPECT_TRUE(text::is_json_object(call.arguments)) << call.arguments;
    } else {
      expect_fits(schema_of(call.name), call.arguments);
    }
  }

  const WalkModel model_;
};

void check_all_ways(const Vocabulary& vocabulary, ChatFormat format) {
  const Ways ways(vocabulary, format);
  const bool takes_tools = text::traits(format).takes_tools;
  for (const Way& way : tool_ways()) {
    if (takes_tools) {
      ways.check_calls(way);
    } else {
      EXPECT_EQ(refused(ways.parsed(way)).status, 400) << way.name;
    }
  }
  ways.check_tags();
  ways.check_form(takes_tools);
  ways.check_form(/*has_tools=*/false);
}

class DeepSeekWays : public testing::TestWithParam<ChatFormat> {};
class MoonshotWays : public testing::TestWithParam<ChatFormat> {};

TEST_P(DeepSeekWays, read_back_with_the_published_vocabulary) {
  const PublishedTokenizer& published = published_tokenizer();
  if (!published.tokenizer) GTEST_SKIP() << published.missing;
  for (const char* const word : {"function", "```"}) {
    ASSERT_TRUE(published.tokenizer->token_id(word)) << "is no trap any more: " << word;
    ASSERT_FALSE(published.tokenizer->added_token_id(word)) << word;
  }
  check_all_ways({published.tokenizer, kPublishedVocabSize}, GetParam());
}

TEST_P(DeepSeekWays, read_back_with_words_of_the_formats_as_tokens) {
  check_all_ways(demo_with_words(), GetParam());
}

TEST(DsmlWays, read_back_with_the_mark_as_a_token) {
  const Vocabulary vocabulary = demo_with_mark();
  ASSERT_TRUE(vocabulary.tokenizer->added_token_id(text::markup::kDsml));
  check_all_ways(vocabulary, ChatFormat::kV32);
}

TEST_P(MoonshotWays, read_back_with_their_markers) {
  check_all_ways(demo_with_kimis_markers(), GetParam());
}

bool is_moonshots(ChatFormat format) {
  return format == ChatFormat::kKimiK2 || format == ChatFormat::kMoonlight;
}

std::vector<ChatFormat> formats(bool of_moonshot) {
  std::vector<ChatFormat> formats;
  for (const text::ChatFormatTraits& traits : text::chat_formats()) {
    if (is_moonshots(traits.format) == of_moonshot) formats.push_back(traits.format);
  }
  return formats;
}

std::string format_label(const testing::TestParamInfo<ChatFormat>& info) {
  std::string name(text::chat_format_name(info.param));
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(formats, DeepSeekWays, testing::ValuesIn(formats(false)), format_label);
INSTANTIATE_TEST_SUITE_P(formats, MoonshotWays, testing::ValuesIn(formats(true)), format_label);

// A call in DSML is one within the reasoning too, so an answer that is held to calls cannot begin one there.
TEST(DsmlWays, bar_calls_within_the_reasoning) {
  for (const Vocabulary& vocabulary : {demo_with_mark(), demo_with_words()}) {
    const WalkModel model = walk_model(vocabulary.tokenizer, ChatFormat::kV32, vocabulary.size);
    const api::GenerationRequest request = accepted(api::parse_chat_request(
        json::dump(chat_body({{"tools", chat_tools(true)},
                              {"tool_choice", "required"},
                              {"chat_template_kwargs", {{"thinking", true}}}})),
        model.served));
    ASSERT_TRUE(request.chat.starts_in_reasoning);
    EXPECT_EQ(walk(model, request, {.seed = 1, .prefix = "A <b> and a <"}).problem, "");
    const std::string call = "Hm. <" + std::string(text::markup::kDsml) + "invoke";
    EXPECT_NE(walk(model, request, {.seed = 1, .prefix = call}).problem, "");
  }
}

}  // namespace
}  // namespace fathom::answer::tests
