// Calls in DSML as the output parser reports them: what V3.2 writes, what models write in its place, and that no cut
// changes it. "<~" and "</~" stand for the mark behind a bracket.

#include "text/output/dsml_reader.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "base/json.h"
#include "tests/text/chat_cases.h"
#include "tests/text/parser_oracles.h"
#include "text/chat_encoder.h"

namespace fathom::text {
namespace {

using tests::check_events;
using tests::describe;
using tests::Events;
using tests::parse_in_pieces;

constexpr ChatFormat kDsmlFormat = ChatFormat::kV32;

std::string with_mark(std::string_view text) {
  std::string expanded;
  for (const char c : text) expanded += c == '~' ? std::string(markup::kDsml) : std::string(1, c);
  return expanded;
}

struct DsmlCase {
  std::string name, output;
  std::string events;  // as describe() writes them, "~" for the mark
  OutputParser::Options options = {};
};

void PrintTo(const DsmlCase& golden, std::ostream* out) { *out << golden.name; }

const OutputParser::Options kInReasoning = {.starts_in_reasoning = true};

const char* const kCallOfF = "begin[f]#0\narguments[{\"a\": \"b\"}]#0\nend[]#0\n";

std::vector<DsmlCase> published_form() {
  return {
      {"no_calls", "Hello <b>, ｜ and\n\nmore\n", "content[Hello <b>, ｜ and\n\nmore\n]\n"},
      {"one_call",
       "Let me see.\n\n<~function_calls>\n<~invoke name=\"f\">\n<~parameter name=\"a\" "
       "string=\"true\">b</~parameter>\n</~invoke>\n</~function_calls>",
       std::string("content[Let me see.]\n") + kCallOfF},
      {"every_kind_of_value",
       "<~function_calls>\n<~invoke name=\"f\">\n<~parameter name=\"s\" string=\"true\"> \"x\" \\ "
       "\n\t</~parameter>\n<~parameter name=\"n\" "
       "string=\"false\">-1.5e3</~parameter>\n<~parameter "
       "name=\"l\" string=\"false\">[1, {\"k\": \"</~parameter>\"}]</~parameter>\n<~parameter "
       "name=\"z\" string=\"false\">null</~parameter>\n</~invoke>\n</~function_calls>",
       "begin[f]#0\narguments[{\"s\": \" \\\"x\\\" \\\\ \\n\\t\", \"n\": -1.5e3, \"l\": [1, "
       "{\"k\": "
       "\"</~parameter>\"}], \"z\": null}]#0\nend[]#0\n"},
      {"two_calls",
       "<~function_calls>\n<~invoke name=\"f\">\n<~parameter name=\"a\" "
       "string=\"true\">b</~parameter>\n</~invoke>\n<~invoke "
       "name=\"天气\">\n\n</~invoke>\n</~function_calls>",
       std::string(kCallOfF) + "begin[天气]#1\narguments[{}]#1\nend[]#1\n"},
      {"name_of_a_server", "<~invoke name=\"db:read+(v2)\"></~invoke>",
       "begin[db:read+(v2)]#0\narguments[{}]#0\nend[]#0\n"},
      {"empty_string",
       "<~function_calls>\n<~invoke name=\"f\">\n<~parameter name=\"\" "
       "string=\"true\"></~parameter>\n</~invoke>\n</~function_calls>",
       "begin[f]#0\narguments[{\"\": \"\"}]#0\nend[]#0\n"},
      {"after_reasoning",
       "Hm.</think>\n\n<~function_calls>\n<~invoke "
       "name=\"f\">\n\n</~invoke>\n</~function_calls>",
       "reasoning[Hm.]\nbegin[f]#0\narguments[{}]#0\nend[]#0\n", kInReasoning},
      {"reasoning_alone", "so\n\n</think>It is 4.", "reasoning[so\n]\ncontent[It is 4.]\n",
       kInReasoning},
  };
}

// Shapes that models write in place of the form: calls stay calls, and no tag is text.
std::vector<DsmlCase> other_shapes() {
  const std::string call =
      "<~invoke name=\"f\">\n<~parameter name=\"a\" string=\"true\">b</~parameter>\n</~invoke>";
  return {
      {"section_in_reasoning",
       "Hm.\n\n<~function_calls>\n" + call + "\n</~function_calls></think>\n\nDone",
       std::string("reasoning[Hm.]\n") + kCallOfF + "content[Done]\n", kInReasoning},
      {"call_in_reasoning", "Hm. " + call, std::string("reasoning[Hm. ]\n") + kCallOfF,
       kInReasoning},
      {"call_without_section", "ok\n\n" + call, std::string("content[ok]\n") + kCallOfF},
      {"section_without_end", "<~function_calls>\n" + call + "\n", kCallOfF},
      {"tool_calls", "<~tool_calls>\n" + call + "\n</~tool_calls>", kCallOfF},
      {"spaced_calls", "<~ calls>\n" + call + "\n</~ calls>", kCallOfF},
      {"words_between",
       "<~function_calls>\n" + call +
           "\nand then\n<~invoke name=\"g\"></~invoke></~function_calls>",
       std::string(kCallOfF) + "content[\nand then]\nbegin[g]#1\narguments[{}]#1\nend[]#1\n"},
      {"malformed_sibling",
       "<~function_calls>\n<~invoke name=\"g\">\n<~parameter name=\"x\" "
       "string=\"true\">y\n</~invoke>\n" +
           call + "\n</~function_calls>",
       "begin[g]#0\narguments[{\"x\": \"y\\n]#0\ncut[]#0\nbegin[f]#1\narguments[{\"a\": "
       "\"b\"}]#1\nend[]#1\n"},
      {"self_closing_call", "<~function_calls>\n<~invoke name=\"f\"/>\n</~function_calls>",
       "begin[f]#0\narguments[{}]#0\nend[]#0\n"},
      {"self_closing_parameter",
       "<~invoke name=\"f\"><~parameter name=\"a\" string=\"true\" /></~invoke>",
       "begin[f]#0\narguments[{\"a\": \"\"}]#0\nend[]#0\n"},
      {"value_ends_in_ampersand",
       "<~invoke name=\"f\"><~parameter name=\"a\" string=\"true\">a &</~parameter></~invoke>",
       "begin[f]#0\narguments[{\"a\": \"a &\"}]#0\nend[]#0\n"},
      {"value_ends_in_bracket",
       "<~invoke name=\"f\"><~parameter name=\"a\" string=\"true\">a <</</~parameter></~invoke>",
       "begin[f]#0\narguments[{\"a\": \"a <</\"}]#0\nend[]#0\n"},
      {"no_json_is_a_string",
       "<~invoke name=\"f\"><~parameter name=\"a\" string=\"false\">True</~parameter>\n<~parameter "
       "name=\"b\" string=\"false\">12 km</~parameter>\n<~parameter name=\"c\" "
       "string=\"false\">1, \"d\": 2</~parameter>\n<~parameter name=\"e\" "
       "string=\"false\">[1</~parameter>\n<~parameter name=\"f\" "
       "string=\"false\"></~parameter></~invoke>",
       "begin[f]#0\narguments[{\"a\": \"True\", \"b\": \"12 km\", \"c\": \"1, \\\"d\\\": 2\", "
       "\"e\": \"[1\", \"f\": \"\"}]#0\nend[]#0\n"},
      {"no_kind_said",
       "<~invoke name=\"f\"><~parameter name=\"a\">7</~parameter><~parameter "
       "name=\"b\">x</~parameter></~invoke>",
       "begin[f]#0\narguments[{\"a\": 7, \"b\": \"x\"}]#0\nend[]#0\n"},
      {"repeated_name",
       "<~invoke name=\"f\"><~parameter name=\"a\" string=\"false\">1</~parameter><~parameter "
       "name=\"a\" string=\"false\">2</~parameter></~invoke>",
       "begin[f]#0\narguments[{\"a\": 1, \"a\": 2}]#0\ncut[]#0\n"},
      {"one_object", "<~invoke name=\"f\">\n{\"a\": [\"</~invoke>\"]}\n</~invoke>",
       "begin[f]#0\narguments[{\"a\": [\"</~invoke>\"]}]#0\nend[]#0\n"},
      {"words_in_a_call",
       "<~invoke name=\"f\">\n<~parameter name=\"a\" string=\"true\">b</~parameter>so\n</~invoke>!",
       "begin[f]#0\narguments[{\"a\": \"b\"so\n]#0\ncut[]#0\ncontent[!]\n"},
      {"next_call_before_the_end",
       "<~invoke name=\"f\"><~parameter name=\"a\" string=\"false\">1</~parameter>\n<~invoke "
       "name=\"g\"/>",
       "begin[f]#0\narguments[{\"a\": 1]#0\ncut[]#0\nbegin[g]#1\narguments[{}]#1\nend[]#1\n"},
      {"section_ends_first", "<~function_calls><~invoke name=\"f\"></~function_calls>x",
       "begin[f]#0\ncut[]#0\ncontent[x]\n"},
      {"no_name", "<~function_calls><~invoke>\nx</~invoke></~function_calls>", "content[\nx]\n"},
      {"bad_name", "<~invoke name=\"f g\">x", "content[x]\n"},
      {"stray_tags", "a</~parameter>b</~invoke>c<~parameter name=\"k\">d", "content[abcd]\n"},
      {"mark_alone", "the ~ mark, <~hello> and <~invoke it\n",
       "content[the  mark, hello> and  it\n]\n"},
      {"quotes_in_a_name",
       "<~invoke name=\"f\"><~parameter name=\"a\"b>c\" string=\"true\">d</~parameter></~invoke>",
       "begin[f]#0\narguments[{\"a\\\"b>c\": \"d\"}]#0\nend[]#0\n"},
      {"halves_of_a_mark", "<｜DS</~invoke>ML｜invoke>x", "content[<｜DSMLinvoke>x]\n"},
      {"line_breaks_before_text", "a\n\n\nb\n<c\n\n\n<~invoke name=\"f\"/>",
       "content[a\n\n\nb\n<c\n]\nbegin[f]#0\narguments[{}]#0\nend[]#0\n"},
      {"late_end_of_reasoning_in_a_value",
       "x" + std::string("<~invoke name=\"f\"><~parameter name=\"a\" "
                         "string=\"true\"></think></~parameter></~invoke></think>y</think>"),
       "reasoning[x]\nbegin[f]#0\narguments[{\"a\": "
       "\"</think>\"}]#0\nend[]#0\ncontent[y</think>]\n",
       kInReasoning},
      {"calls_off",
       "a\n\n<~function_calls>\n" + call + "\n</~function_calls>",
       "content[a\n\n\n\nb\n\n]\n",
       {.calls = false}},
      {"tools_off", call, "content[" + call + "]\n", {.tools = false}},
      {"bytes_that_are_no_text",
       "<~invoke name=\"f\"><~parameter name=\"a\" string=\"true\">\xff</~parameter></~invoke>",
       "begin[f]#0\narguments[{\"a\": \"\xff\"}]#0\ncut[]#0\n"},
  };
}

// An output that ends in the middle.
std::vector<DsmlCase> cut_short() {
  std::vector<DsmlCase> goldens;
  const auto add = [&](const char* output, const char* events) {
    goldens.push_back({"cut_" + std::to_string(goldens.size()), output, events});
  };
  add("a <", "content[a <]\n");
  add("a <｜", "content[a <｜]\n");
  add("a <｜DS", "content[a ]\n");
  add("a\n\n<~function", "content[a\n\n]\n");
  add("a\n\n<~function_calls>\n", "content[a]\n");
  add("<~function_calls>\n<~invoke name=\"f", "");
  add("<~invoke name=\"f\">", "begin[f]#0\ncut[]#0\n");
  add("<~invoke name=\"f\">\n<~parameter name=\"a\" str", "begin[f]#0\ncut[]#0\n");
  add("<~invoke name=\"f\"><~parameter name=\"a\" string=\"true\">x</｜DSM",
      "begin[f]#0\narguments[{\"a\": \"x]#0\ncut[]#0\n");
  add("<~invoke name=\"f\"><~parameter name=\"a\" string=\"true\">x</",
      "begin[f]#0\narguments[{\"a\": \"x</]#0\ncut[]#0\n");
  add("<~invoke name=\"f\"><~parameter name=\"a\" string=\"false\">[1,",
      "begin[f]#0\narguments[{\"a\": [1,]#0\ncut[]#0\n");
  add("<~invoke name=\"f\"><~parameter name=\"a\" string=\"false\">1</~parameter>\n",
      "begin[f]#0\narguments[{\"a\": 1]#0\ncut[]#0\n");
  // The bracket of a tag that was to come.
  add("<~function_calls>\n<", "");
  add("<~invoke name=\"f\">\n<", "begin[f]#0\ncut[]#0\n");
  add("<~invoke name=\"f\"/>\n</", "begin[f]#0\narguments[{}]#0\nend[]#0\n");
  add("<~invoke name=\"f\"><~parameter name=\"a\" string=\"false\">1</",
      "begin[f]#0\narguments[{\"a\": 1]#0\ncut[]#0\n");
  add("<~invoke name=\"f\"><~parameter name=\"a\" string=\"false\">1</~parameter></｜",
      "begin[f]#0\narguments[{\"a\": 1]#0\ncut[]#0\n");
  return goldens;
}

std::vector<DsmlCase> all_dsml_cases() {
  std::vector<DsmlCase> all;
  for (const auto& goldens : {published_form(), other_shapes(), cut_short()}) {
    all.insert(all.end(), goldens.begin(), goldens.end());
  }
  for (DsmlCase& golden : all) {
    golden.output = with_mark(golden.output);
    golden.events = with_mark(golden.events);
  }
  return all;
}

class DsmlCases : public testing::TestWithParam<DsmlCase> {};

TEST_P(DsmlCases, GiveTheseEvents) {
  const DsmlCase& golden = GetParam();
  const Events events = parse_in_pieces(kDsmlFormat, golden.options, golden.output);
  EXPECT_EQ(describe(events), golden.events);
  check_events(kDsmlFormat, events, golden.options);
  EXPECT_TRUE(tests::accounts_for(kDsmlFormat, golden.output, events));
}

TEST_P(DsmlCases, AreTheSameForEverySplitAtTwoPointsAndByteByByte) {
  const DsmlCase& golden = GetParam();
  const Events whole = parse_in_pieces(kDsmlFormat, golden.options, golden.output);
  const size_t num_bytes = golden.output.size();
  std::vector<size_t> all_cuts;
  for (size_t i = 0; i <= num_bytes; ++i) {
    all_cuts.push_back(i);
    for (size_t j = i; j <= num_bytes; ++j) {
      const Events pieces = parse_in_pieces(kDsmlFormat, golden.options, golden.output, {i, j});
      ASSERT_EQ(pieces, whole) << i << ", " << j << "\n" << describe(pieces);
    }
  }
  EXPECT_EQ(parse_in_pieces(kDsmlFormat, golden.options, golden.output, all_cuts), whole);
}

TEST_P(DsmlCases, HoldForEveryPrefixInEverySplit) {
  const DsmlCase& golden = GetParam();
  for (size_t length = 0; length <= golden.output.size(); ++length) {
    const std::string_view cut = std::string_view(golden.output).substr(0, length);
    for (size_t split = 0; split <= length; ++split) {
      tests::check_output(kDsmlFormat, golden.options, cut, {split});
    }
    EXPECT_TRUE(
        tests::accounts_for(kDsmlFormat, cut, parse_in_pieces(kDsmlFormat, golden.options, cut)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DsmlCases, testing::ValuesIn(all_dsml_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(DsmlReader, EventsDoNotDependOnRandomSplitsOfRandomOutputs) {
  const char* const parts[] = {"<~function_calls>",
                               "</~function_calls>",
                               "<~invoke name=\"f\">",
                               "</~invoke>",
                               "<~invoke name=\"g\"/>",
                               "<~parameter name=\"a\" string=\"true\">",
                               "<~parameter name=\"b\" string=\"false\">",
                               "<~parameter name=\"c\">",
                               "</~parameter>",
                               "~",
                               "<~",
                               "</~par",
                               "<",
                               "｜",
                               "DSML",
                               "ML｜",
                               "<｜DS",
                               "</think>",
                               "<think>",
                               "\n",
                               "{\"k\": [1]}",
                               "12",
                               "\"",
                               " x ",
                               "\xef\xbd"};
  constexpr unsigned kSeed = 32;
  std::minstd_rand rng(kSeed);
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (int round = 0; round < 20000; ++round) {
    std::string output;
    for (auto i = rng() % 14; i > 0; --i) output += with_mark(parts[rng() % std::size(parts)]);
    std::vector<size_t> cuts;
    for (size_t i = 0; i < output.size(); ++i) {
      if (rng() % 4 == 0) cuts.push_back(i);
    }
    const OutputParser::Options options = {.reasoning = rng() % 2 == 0,
                                           .starts_in_reasoning = rng() % 2 == 0,
                                           .tools = rng() % 4 != 0,
                                           .calls = rng() % 4 != 0};
    tests::check_output(kDsmlFormat, options, output, cuts);
    EXPECT_TRUE(
        tests::accounts_for(kDsmlFormat, output, parse_in_pieces(kDsmlFormat, options, output)))
        << output;
  }
}

// Every way to leave out, repeat, cut or disturb the parts of two calls, with words around them: no tag is text.
TEST(DsmlReader, NoShapeOfCallsLeaksATag) {
  const std::vector<std::string> parts = {
      "Sure.\n\n",
      "<~function_calls>\n",
      "<~invoke name=\"f\">\n",
      "<~parameter name=\"a\" string=\"true\">b</~parameter>\n",
      "</~invoke>\n",
      "then\n",
      "<~invoke name=\"g\">\n",
      "<~parameter name=\"n\" string=\"false\">1</~parameter>\n",
      "</~invoke>\n",
      "</~function_calls>",
      "\nDone."};
  int num_shapes = 0;
  const auto check = [&](const std::string& output) {
    for (const bool in_reasoning : {false, true}) {
      const OutputParser::Options options = {.starts_in_reasoning = in_reasoning};
      const Events events = parse_in_pieces(kDsmlFormat, options, output);
      check_events(kDsmlFormat, events, options);
      for (const OutputEvent& event : events) {
        const bool is_text = event.kind == OutputEvent::Kind::kContent ||
                             event.kind == OutputEvent::Kind::kReasoning;
        EXPECT_TRUE(!is_text || event.text.find("DSML") == std::string::npos) << output;
      }
      ++num_shapes;
    }
  };
  for (unsigned left_out = 0; left_out < 1u << parts.size(); ++left_out) {
    if (__builtin_popcount(left_out) > 3) continue;
    std::string output;
    for (size_t i = 0; i < parts.size(); ++i) {
      if ((left_out >> i & 1) == 0) output += with_mark(parts[i]);
    }
    check(output);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = 0; j < parts.size(); ++j) {
      std::vector<std::string> disturbed = parts;
      disturbed.insert(disturbed.begin() + static_cast<ptrdiff_t>(j), parts[i]);
      std::string output;
      for (const std::string& part : disturbed) output += with_mark(part);
      check(output);
    }
  }
  EXPECT_GE(num_shapes, 455);
}

TEST(DsmlReader, ArgumentsComeAsTheyAreWritten) {
  OutputParser parser(kDsmlFormat, {});
  const auto events_of = [&](const char* piece) {
    Events events;
    parser.push(with_mark(piece), events);
    return describe(events);
  };
  EXPECT_EQ(events_of("See\n\n<~function_calls>\n<~invoke name=\"f\""), "content[See]\n");
  EXPECT_EQ(events_of(">"), "begin[f]#0\n");
  EXPECT_EQ(events_of("\n<~parameter name=\"a\" string=\"true\">"), "arguments[{\"a\": \"]#0\n");
  EXPECT_EQ(events_of("Os"), "arguments[Os]#0\n");
  EXPECT_EQ(events_of("lo</~param"), "arguments[lo]#0\n");
  EXPECT_EQ(events_of("eter>\n<~parameter name=\"n\" string=\"false\">"),
            "arguments[\", \"n\": ]#0\n");
  EXPECT_EQ(events_of("12"), "") << "it may be a string yet";
  EXPECT_EQ(events_of("</~parameter>"), "arguments[12]#0\n");
  EXPECT_EQ(events_of("\n</~invoke>"), "arguments[}]#0\nend[]#0\n");
}

TEST(DsmlReader, LongValuesAreNotHeld) {
  const std::string begin = "<~invoke name=\"f\"><~parameter name=\"a\" string=\"false\">";
  OutputParser parser(kDsmlFormat, {});
  Events events;
  parser.push(with_mark(begin) + "[" + std::string(DsmlReader::kMaxHeldBytes, ' '), events);
  ASSERT_EQ(events.back().kind, OutputEvent::Kind::kToolCallArguments);
  EXPECT_GT(events.back().text.size(), DsmlReader::kMaxHeldBytes);
  parser.push(with_mark("x</~parameter></~invoke>"), events);
  EXPECT_FALSE(events.back().is_complete) << "too late for a string";
}

TEST(DsmlReader, HostileOutputsTakeLinearTime) {
  for (const char* part : {"<", "｜", "<~invoke name=\"", "<~invoke name=\"f\">", "\n", "</~",
                           "<~parameter name=\"a\">", "<~function_calls>", "~"}) {
    std::string output;
    while (output.size() < (size_t{4} << 20)) output += with_mark(part);
    for (const bool in_reasoning : {false, true}) {
      const OutputParser::Options options = {.starts_in_reasoning = in_reasoning};
      check_events(kDsmlFormat, parse_in_pieces(kDsmlFormat, options, output), options);
    }
  }
}

// What the model is shown of its calls is what the parser makes calls of.
TEST(DsmlReader, ReadsBackWhatIsRendered) {
  const auto cases = tests::load_chat_cases("reasoning_cases.json");
  int num_calls = 0;
  for (const Conversation& chat : cases.conversations) {
    for (const Message& message : chat.messages) {
      if (message.tool_calls.empty()) continue;
      Conversation turn;
      turn.messages = {{.role = "user", .content = "?"}, message};
      turn.messages[1].reasoning = "Hm.";
      turn.messages[1].content = "Let me see.";
      turn.thinking = true;
      const auto prompt = render(kDsmlFormat, turn);
      ASSERT_TRUE(prompt) << prompt.error().message;
      const std::string text = to_text(*prompt);
      const size_t begin = text.find("<think>") + 7;
      const Events events = parse_in_pieces(
          kDsmlFormat, kInReasoning, text.substr(begin, text.size() - begin - markup::kEos.size()));
      ASSERT_EQ(events.size(), 2 + 3 * message.tool_calls.size()) << describe(events);
      EXPECT_EQ(events[0].text, "Hm.");
      EXPECT_EQ(events[1].text, "Let me see.");
      for (size_t i = 0; i < message.tool_calls.size(); ++i, ++num_calls) {
        EXPECT_EQ(events[2 + 3 * i].text, message.tool_calls[i].name);
        EXPECT_EQ(*json::parse(events[3 + 3 * i].text),
                  *json::parse(message.tool_calls[i].arguments));
        EXPECT_TRUE(events[4 + 3 * i].is_complete);
      }
    }
  }
  EXPECT_GT(num_calls, 50);
}

}  // namespace
}  // namespace fathom::text
