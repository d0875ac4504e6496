#include "grammar/structural_tag.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/cpu_time.h"
#include "tests/grammar/random_walk.h"
#include "tests/sanitized.h"

namespace fathom::grammar::tests {
namespace {

// Single bytes, pieces that hold ends and begins of tags, and two special tokens.
class StructuralTag : public testing::Test {
 protected:
  TestVocabulary vocabulary = [] {
    std::vector<std::string> texts = byte_tokens();
    for (const char* text : {"<f", "=a>", "<f=", "a>12", "</", "f>", "</f>x", "x<f=b", ">{}</f",
                             "f><f=a>", "ab", "b>[", "]</f>"}) {
      texts.emplace_back(text);
    }
    return make_vocabulary(std::move(texts), {"<call>", "</call>"});
  }();
  TokenNames names = {.split = [this](std::string_view text) { return split(text); },
                      .special = [this](int64_t id) { return special(id); }};

  std::optional<Marker> special(int64_t id) const {
    if (id < 0 || id >= vocabulary.eos || !vocabulary.special[static_cast<size_t>(id)])
      return std::nullopt;
    return Marker{vocabulary.texts[static_cast<size_t>(id)], static_cast<int32_t>(id)};
  }
  // <...> that is a special token or the end is one, everything else is bytes.
  std::vector<Marker> split(std::string_view text) const {
    std::vector<Marker> pieces;
    for (size_t at = 0; at < text.size();) {
      Marker marker{std::string(1, text[at]), -1};
      for (size_t id = 256; id < vocabulary.texts.size(); ++id) {
        const bool is_here =
            vocabulary.special[id] && text.substr(at).starts_with(vocabulary.texts[id]);
        if (is_here) marker = {vocabulary.texts[id], static_cast<int32_t>(id)};
      }
      at += marker.text.size();
      if (marker.token < 0 && !pieces.empty() && pieces.back().token < 0) {
        pieces.back().text += marker.text;
      } else {
        pieces.push_back(marker);
      }
    }
    return pieces;
  }

  Expression tag_of(const std::string& text) const {
    return structural_tag(json::parse(text).value(), names);
  }
  Expression format_of(const std::string& format) const {
    return tag_of(R"({"type": "structural_tag", "format": )" + format + "}");
  }
  std::shared_ptr<const CompiledGrammar> compiled_format(const std::string& format) const {
    return compiled(format_of(format));
  }
  bool fits(const CompiledGrammar& grammar, const std::string& text) const {
    const auto constraint = grammar.new_constraint(vocabulary.vocabulary);
    for (const Marker& piece : split(text)) {
      if (piece.token >= 0) {
        if (!constraint->accept(piece.token)) return false;
        continue;
      }
      for (const char c : piece.text) {
        if (!constraint->accept(static_cast<uint8_t>(c))) return false;
      }
    }
    return constraint->accept(vocabulary.eos);
  }
  bool fits_format(const std::string& format, const std::string& text) const {
    return fits(*compiled_format(format), text);
  }
  std::string refusal_of(const std::string& text) const {
    const auto grammar = compile(tag_of(text));
    return grammar ? "" : grammar.error().message;
  }
};

// Formats with the same language as a regular expression. `.` and [^...] of the expressions know no line ends here.
struct Equivalent {
  std::string format, pattern;
};

std::string number_tag(const std::string& begin, const std::string& pattern,
                       const std::string& end) {
  return R"({"type": "tag", "begin": ")" + begin +
         R"(", "content": {"type": "regex", "pattern": ")" + pattern + R"("}, "end": ")" + end +
         "\"}";
}

std::vector<Equivalent> equivalents() {
  const std::string tags =
      "[" + number_tag("<f=a>", "[0-9]+", "</f>") + ", " + number_tag("<f=b>", "x*", "</f>") + "]";
  // Any text in which "<f=" does not begin, a tag, and so on.
  const std::string free = "(?:(?!<f=)[^])*", either = "(?:<f=a>[0-9]+</f>|<f=b>x*</f>)";
  const std::string triggered =
      R"({"type": "triggered_tags", "triggers": ["<f="], "tags": )" + tags;
  return {
      {triggered + "}", "(?:" + free + either + ")*" + free},
      {triggered + R"(, "stop_after_first": true})", free + either + "?"},
      {triggered + R"(, "at_least_one": true})", either + "(?:" + free + either + ")*" + free},
      {triggered + R"(, "at_least_one": true, "stop_after_first": true})", either},
      {triggered + R"(, "excludes": ["b"], "stop_after_first": true})",
       "(?:(?!<f=|b)[^])*" + either + "?"},
      {R"({"type": "tag", "begin": "<x>", "content": )" + triggered +
           R"(}, "end": ["</x>", "ab"]})",
       "<x>(?:(?:(?!<f=|</x>|ab)[^])*" + either + ")*(?:(?!<f=|</x>|ab)[^])*(?:</x>|ab)"},
      {R"({"type": "tags_with_separator", "separator": ",", "tags": )" + tags + "}",
       "(?:" + either + "(?:," + either + ")*)?"},
      {R"({"type": "tags_with_separator", "separator": "", "at_least_one": true, "tags": )" + tags +
           "}",
       either + "+"},
      {R"({"type": "tags_with_separator", "separator": ",", "stop_after_first": true, "tags": )" +
           tags + "}",
       either + "?"},
      {R"({"type": "sequence", "elements": [{"type": "const_string", "value": "a"}, {"type": "optional", "content":
          {"type": "const_string", "value": "b"}}, {"type": "or", "elements": [{"type": "regex", "pattern": "[0-9]"},
          {"type": "grammar", "grammar": "root ::= \"<\" root \">\" | \"x\""}]}]})",
       "ab?(?:[0-9]|x|<x>|<<x>>|<<<x>>>)"},
      {R"({"type": "repeat", "min": 1, "max": 3, "content": {"type": "const_string", "value": "ab"}})",
       "(?:ab){1,3}"},
      {R"({"type": "repeat", "min": 2, "max": -1, "content": {"type": "const_string", "value": "a"}})",
       "a{2,}"},
      {R"({"type": "plus", "content": {"type": "star", "content": {"type": "const_string", "value": "ab"}}})",
       "(?:ab)*"},
      {R"({"type": "any_text", "excludes": ["aba", "bx"]})", "(?:(?!aba|bx)[^])*"},
      {R"({"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": "</f>"})",
       "(?:(?!</f>)[^])*</f>"},
      {R"({"type": "dispatch", "rules": [["<f=", {"type": "regex", "pattern": "[ab]>"}], ["ab", {"type": "const_string",
          "value": "x"}]], "excludes": ["xx"]})",
       "(?:(?:(?!<f=|ab|xx)[^])*(?:<f=[ab]>|abx))*(?:(?!<f=|ab|xx)[^])*"},
      {R"({"type": "dispatch", "loop": false, "rules": [["<f=", {"type": "regex", "pattern": "[ab]>"}]]})",
       "(?:(?!<f=)[^])*(?:<f=[ab]>)?"},
  };
}

constexpr int kNumTexts = kIsSanitized ? 200 : 2500;

TEST_F(StructuralTag, agrees_with_regular_expressions_on_random_texts) {
  const std::vector<std::string> parts = {"<f=",  "a>", "b>", "1", "12", "</f>", "x", "<x>",
                                          "</x>", "a",  "b",  ",", "<",  "f",    "=", "ab"};
  std::mt19937_64 random(7);
  for (const Equivalent& each : equivalents()) {
    const auto grammar = compiled_format(each.format);
    const std::regex pattern(each.pattern);
    int num_taken = 0;
    for (int i = 0; i < kNumTexts; ++i) {
      std::string text;
      for (uint64_t k = random() % (1 + random() % 9); k > 0; --k) {
        // Whole tags come up often enough to be taken.
        const uint64_t pick = random() % (parts.size() + 4);
        text += pick < parts.size() ? parts[pick] : pick % 2 == 0 ? "<f=a>7</f>" : "<f=b>x</f>";
      }
      const bool is_taken = fits(*grammar, text);
      EXPECT_EQ(is_taken, std::regex_match(text, pattern)) << each.format << " on " << text;
      num_taken += is_taken ? 1 : 0;
    }
    EXPECT_TRUE(kIsSanitized || num_taken > 0) << each.format;
  }
}

TEST_F(StructuralTag, random_outputs_match_whatever_the_tokens) {
  for (const Equivalent& each : equivalents()) {
    const auto grammar = compiled_format(each.format);
    const std::regex pattern(each.pattern);
    for (uint64_t seed = 0; seed < 15; ++seed) {
      const auto constraint = grammar->new_constraint(vocabulary.vocabulary);
      const Walk walk = random_walk(*constraint, vocabulary, seed, 60, 12);
      if (walk.is_complete) {
        EXPECT_TRUE(std::regex_match(walk.text, pattern)) << each.format << " " << walk.text;
        EXPECT_TRUE(fits(*grammar, walk.text)) << each.format << " " << walk.text;
      }
    }
  }
}

// However the marker falls into tokens, behind it the tag's content is due.
TEST_F(StructuralTag, a_trigger_may_be_split_across_tokens) {
  const auto grammar =
      compiled_format(R"({"type": "triggered_tags", "triggers": ["<f="], "tags": [)" +
                      number_tag("<f=a>", "[0-9]+", "</f>") + "]}");
  const std::vector<std::vector<std::string>> ways = {{"<", "f", "=", "a", ">"},
                                                      {"<f", "=a>"},
                                                      {"<f=", "a", ">"},
                                                      {"x", "<f=", "a>12"},
                                                      {"<f=", "a>12"}};
  const auto id_of = [&](const std::string& text) {
    size_t id = 0;
    while (vocabulary.texts[id] != text) ++id;
    return static_cast<int32_t>(id);
  };
  for (const std::vector<std::string>& way : ways) {
    const auto constraint = grammar->new_constraint(vocabulary.vocabulary);
    for (const std::string& token : way) ASSERT_TRUE(constraint->accept(id_of(token))) << token;
    EXPECT_FALSE(constraint->clone()->accept('x')) << way.size();
    EXPECT_FALSE(constraint->clone()->accept(vocabulary.eos)) << way.size();
    EXPECT_TRUE(constraint->accept('3')) << way.size();
    for (const std::string token : {"</", "f>", "x"})
      ASSERT_TRUE(constraint->accept(id_of(token))) << token;
    EXPECT_TRUE(constraint->clone()->accept(vocabulary.eos));
    EXPECT_FALSE(constraint->accept(id_of("x<f=b")));
  }
}

TEST_F(StructuralTag, the_older_form_is_free_text_with_schemas) {
  const std::string tag = R"({"type": "structural_tag", "triggers": ["<f="], "structures": [
      {"begin": "<f=a>", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
       "end": "</f>"},
      {"begin": "<f=b>", "schema": "{\"enum\": [1, 2]}", "end": "</f>"}]})";
  const auto grammar = compiled(tag_of(tag));
  for (const char* text :
       {"", "hello < f", R"(ok <f=a>{"n": 3}</f>)", R"(<f=a>{"n":1}</f> and <f=b>2</f>.)"}) {
    EXPECT_TRUE(fits(*grammar, text)) << text;
  }
  for (const char* text :
       {"<f=", "<f=c>1</f>", R"(<f=a>{"n": "x"}</f>)", "<f=b>3</f>", "<f=b>1", "<f=b>1</f><f=a>"}) {
    EXPECT_FALSE(fits(*grammar, text)) << text;
  }
}

TEST_F(StructuralTag, special_tokens_come_as_tokens_alone) {
  const std::string tag =
      R"({"type": "tag", "begin": "<call>a", "content": {"type": "any_text"}, "end": "</call>"})";
  EXPECT_TRUE(fits_format(tag, "<call>a b</call>"));
  EXPECT_FALSE(fits_format(tag, "<call>b</call>"));
  const auto grammar = compiled_format(tag);
  const auto constraint = grammar->new_constraint(vocabulary.vocabulary);
  EXPECT_FALSE(constraint->accept('<'));
  for (const std::string& format :
       {R"({"type": "triggered_tags", "triggers": ["<call>"], "tags": [)" +
            number_tag("<call>a", "[0-9]", "</call>") + ", " +
            number_tag("<call>b", "x", "</call>") + "]}",
        std::string(
            R"({"type": "dispatch", "rules": [["<call>",
               {"type": "regex", "pattern": "a[0-9]</call>|bx</call>"}]]})")}) {
    const bool is_dispatch = format.find("dispatch") != format.npos;
    EXPECT_TRUE(fits_format(format, "so <calls")) << format;
    EXPECT_FALSE(fits_format(format, "so <call>c1</call>")) << format;
    EXPECT_EQ(fits_format(format, "so <call>a1</call>, <call>bx</call>"), !is_dispatch) << format;
  }
  const std::string by_token =
      R"({"type": "token_triggered_tags", "trigger_tokens": ["<call>"], "tags": [{"type": "tag",
      "begin": {"type": "token", "token": "<call>"}, "content": {"type": "regex", "pattern": "[0-9]"},
      "end": {"type": "token", "token": )" +
      std::to_string(vocabulary.eos - 1) + "}}], \"exclude_tokens\": [\"</call>\"]}";
  EXPECT_TRUE(fits_format(by_token, "a<call>1</call>b<call>2</call>"));
  EXPECT_FALSE(fits_format(by_token, "a<call>x</call>"));
  EXPECT_FALSE(fits_format(by_token, "a</call>"));
  const std::string dispatch =
      R"({"type": "sequence", "elements": [{"type": "token", "token": "</call>"}, {"type": "any_tokens"},
          {"type": "token_dispatch", "loop": false, "rules": [["<call>", {"type": "const_string", "value": "x"}]]}]})";
  EXPECT_TRUE(fits_format(dispatch, "</call>ab<call>x"));
  EXPECT_FALSE(fits_format(dispatch, "</call>ab<call>xx"));
  EXPECT_FALSE(fits_format(dispatch, "ab"));
}

TEST_F(StructuralTag, what_cannot_be_kept_is_named) {
  const std::string tag = number_tag("<f=a>", "[0-9]", "</f>");
  const auto triggered = [&](const std::string& triggers, const std::string& tags,
                             const std::string& more = "") {
    return R"({"type": "triggered_tags", "triggers": )" + triggers + ", \"tags\": [" + tags + "]" +
           more + "}";
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type": "any_text", "max_tokens": 3})", R"(at format: "max_tokens" is not supported)"},
      {R"({"type": "any_text", "max_chars": 0})", R"("max_chars" is not supported)"},
      {R"({"type": "any_text", "exclude": []})", R"(unknown field "exclude")"},
      {R"({"type": "any_text", "excludes": [""]})",
       R"("excludes" must be a list of strings that are not empty)"},
      {R"({"type": "sequence", "elements": [{"type": "star"}]})",
       R"(at format.elements[0]: "content" is missing)"},
      {R"({"type": "or", "elements": []})", R"("elements" must be a list that is not empty)"},
      {R"({"type": "exclude_token"})", "the type exclude_token is not supported"},
      {R"({"type": "qwen_xml_parameter", "json_schema": {}})",
       R"(the type "qwen_xml_parameter" is not supported)"},
      {R"({"value": "x"})", R"("type" is missing)"},
      {R"({"type": "json_schema", "json_schema": {}, "style": "qwen_xml"})",
       R"("style" must be "json")"},
      {R"({"type": "json_schema", "json_schema": {}, "any_order": true})",
       R"("any_order" is not supported)"},
      {R"({"type": "json_schema", "json_schema": "{}"})", R"("json_schema" must be an object)"},
      {R"({"type": "json_schema", "json_schema": {"uniqueItems": true}})", "uniqueItems"},
      {R"({"type": "regex", "pattern": "(?>a)b"})", "regex at byte"},
      {R"({"type": "repeat", "min": 2, "max": 1, "content": {"type": "any_text"}})",
       R"("min" must be at most "max")"},
      {R"({"type": "repeat", "min": 0, "max": 1e9, "content": {"type": "any_text"}})",
       R"("max" must be an integer)"},
      {R"({"type": "token", "token": "a"})", R"("a" is no special token)"},
      {R"({"type": "token", "token": 97})", "97 is no special token"},
      {R"({"type": "const_string", "value": "<eos>"})", R"("<eos>" ends every output)"},
      {triggered(R"(["<g="])", tag), R"(the trigger "<g=" begins no tag)"},
      {triggered(R"(["<f=", "<f=a"])", tag), "two triggers begin"},
      {triggered(R"(["<f="])", tag + "," + number_tag("<x>", "a", "</x>")),
       R"(no trigger begins "<x>")"},
      {triggered(R"(["<f="])", tag, R"(, "excludes": ["f"])"), R"(the trigger "<f=" holds "f")"},
      {triggered("[]", tag), R"("triggers" must be a list that is not empty)"},
      {triggered(R"(["<cal"])", number_tag("<call>", "a", "</call>")),
       "ends within the special token"},
      {triggered(R"(["a<call>"])", number_tag("a<call>", "a", "</call>")),
       "must stand at its begin"},
      {R"({"type": "dispatch", "rules": [["a", {"type": "any_text"}], ["ba", {"type": "any_text"}]]})",
       R"(the trigger "ba" holds "a")"},
      {R"({"type": "dispatch", "rules": [["a"]]})", "lists of two"},
  };
  for (const auto& [format, word] : cases) {
    const std::string message =
        refusal_of(R"({"type": "structural_tag", "format": )" + format + "}");
    EXPECT_NE(message.find(word), message.npos) << format << " -> " << message;
  }
  EXPECT_NE(
      refusal_of(R"({"type": "tag", "format": {"type": "any_text"}})").find("\"type\" must be"),
      std::string::npos);
  EXPECT_NE(refusal_of(R"({"type": "structural_tag"})").find("\"format\" is missing"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"structures": [], "triggers": ["a"]})").find("\"structures\" must be"),
            std::string::npos);
  EXPECT_NE(
      refusal_of(R"({"format": {"type": "any_text"}, "triggers": ["a"]})").find("\"triggers\""),
      std::string::npos);
}

TEST_F(StructuralTag, large_and_deep_tags_are_refused_in_time) {
  std::string deep = R"({"type": "any_text"})", triggers, tags, long_texts;
  for (int i = 0; i < 40; ++i) deep = R"({"type": "star", "content": )" + deep + "}";
  const json::Value value = json::parse(R"({"format": )" + deep + "}", {.max_depth = 100}).value();
  const auto grammar = compile(structural_tag(value, names));
  ASSERT_FALSE(grammar);
  EXPECT_NE(grammar.error().message.find("nested deeper than 32"), std::string::npos)
      << grammar.error().message;
  for (int i = 0; i < 3000; ++i) {
    const std::string name = "<" + std::to_string(i) + ">";
    triggers += (i > 0 ? ", \"" : "\"") + name + "\"";
    tags += (i > 0 ? ", " : "") + number_tag(name, "a", "b");
  }
  for (const std::string& format :
       {R"({"type": "triggered_tags", "triggers": [)" + triggers + R"(], "tags": [)" + tags + "]}",
        R"({"type": "any_text", "excludes": [")" + std::string(250'000, 'a') + "\"]}"}) {
    const CpuStopwatch watch;
    const auto outcome = compile(format_of(format));
    EXPECT_LT(watch.seconds(), 2.5);
    if (!outcome) {
      EXPECT_LT(outcome.error().message.size(), 400u);
    }
  }
}

TEST_F(StructuralTag, white_space_of_a_schema_is_counted) {
  const std::string schema =
      R"({"type": "json_schema", "json_schema": {"properties": {"a": {}}}, "max_whitespace_cnt": )";
  EXPECT_TRUE(fits_format(schema + "2}", "{\n\t\"a\" : \t1}"));
  EXPECT_FALSE(fits_format(schema + "2}", "{   \"a\":1}"));
  EXPECT_TRUE(fits_format(schema + "0}", R"({"a":1})"));
  EXPECT_FALSE(fits_format(schema + "0}", R"({"a": 1})"));
  EXPECT_TRUE(fits_format(schema + "99999}", "{" + std::string(500, ' ') + "}"));
  // Members that the schema does not list are no arguments of a function.
  EXPECT_FALSE(fits_format(schema + "0}", R"({"a":1,"b":1})"));
  EXPECT_NE(refusal_of(R"({"type": "structural_tag", "format": )" + schema + "-1}}")
                .find(R"("max_whitespace_cnt" must be at least 0)"),
            std::string::npos);
}

}  // namespace
}  // namespace fathom::grammar::tests
