// The streaming parser of reasoning and tool calls: what it reports, and that no split changes it.

#include "text/output_parser.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "base/json.h"
#include "tests/text/parser_oracles.h"

namespace fathom::text {
namespace {

using tests::accounts_for;
using tests::check_events;
using tests::describe;
using tests::Events;
using tests::parse_in_pieces;

struct Golden {
  std::string name;
  ChatFormat format;
  OutputParser::Options options;
  std::string output;
  std::string events;  // as describe() writes them
};

const OutputParser::Options kPlain = {};
const OutputParser::Options kThinking = {.starts_in_reasoning = true};
const OutputParser::Options kNoTools = {.tools = false};
const OutputParser::Options kNoCalls = {.calls = false};
const OutputParser::Options kRaw = {.reasoning = false};

// Writes markers short: @B@C…@S…@T@E for DeepSeek's section, call, separator, end of call, end of section;
// @b@c…@a…@t@e for Kimi's.
std::string marked(std::string_view text) {
  static const std::map<char, std::string_view> kMarkers = {
      {'B', markup::kCallsBegin},        {'E', markup::kCallsEnd},
      {'C', markup::kCallBegin},         {'S', markup::kSep},
      {'T', markup::kCallEnd},           {'b', markup::kKimiSectionBegin},
      {'e', markup::kKimiSectionEnd},    {'c', markup::kKimiCallBegin},
      {'a', markup::kKimiArgumentBegin}, {'t', markup::kKimiCallEnd}};
  std::string expanded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '@') {
      expanded += kMarkers.at(text[++i]);
    } else {
      expanded += text[i];
    }
  }
  return expanded;
}

// For gtest, which would print the bytes of the struct.
void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.name; }

const std::vector<Golden>& reasoning_goldens() {
  static const std::vector<Golden> kGoldens = {
      {"nothing", ChatFormat::kV3, kPlain, "", ""},
      {"content", ChatFormat::kV3, kPlain, "Hello <b>world</b> < > <｜x｜>",
       "content[Hello <b>world</b> < > <｜x｜>]\n"},
      {"r1", ChatFormat::kR1, kThinking, "Hm,\nso.\n</think>\n\nIt is 4.",
       "reasoning[Hm,\nso.]\ncontent[It is 4.]\n"},
      {"r1_repeats_the_marker", ChatFormat::kR1, kThinking, "<think>\nHm\n</think>\n\n4",
       "reasoning[Hm]\ncontent[4]\n"},
      {"model_opens_it_itself", ChatFormat::kR1_0528, kPlain, "\n<think>\nHm\n</think>4",
       "reasoning[Hm]\ncontent[4]\n"},
      {"v31", ChatFormat::kV31, kThinking, "a</think>b</think>c",
       "reasoning[a]\ncontent[b</think>c]\n"},
      {"only_marker_newlines_go", ChatFormat::kR1, kThinking, "\na\n\n\n</think>\n\n\n\nb",
       "reasoning[\na\n\n]\ncontent[\n\nb]\n"},
      {"never_closed", ChatFormat::kR1, kThinking, "a\n</thin", "reasoning[a\n</thin]\n"},
      {"nothing_thought", ChatFormat::kR1, kThinking, "\n</think>\n\nx", "content[x]\n"},
      {"almost_closed", ChatFormat::kR1, kThinking, "a</think</think ></think>b",
       "reasoning[a</think</think >]\ncontent[b]\n"},
      {"think_later_is_content", ChatFormat::kV3, kPlain, "x <think>y</think>",
       "content[x <think>y</think>]\n"},
      {"space_then_content", ChatFormat::kV3, kPlain, "  \n<thinking>",
       "content[  \n<thinking>]\n"},
      {"off", ChatFormat::kR1, kRaw, "<think>a</think>b", "content[<think>a</think>b]\n"},
      {"calls_in_reasoning_stay_there", ChatFormat::kV31, kThinking, "use @B?</think>ok",
       "reasoning[use ?]\ncontent[ok]\n"},
      {"call_after_reasoning", ChatFormat::kR1, kThinking,
       "look up\n</think>\n\n@B@Cfunction@Sf\n```json\n{}\n```@T@E",
       "reasoning[look up]\nbegin[f]#0\narguments[{}]#0\nend[]#0\n"}};
  return kGoldens;
}

const std::vector<Golden>& call_goldens() {
  static const std::vector<Golden> kGoldens = {
      {"fenced", ChatFormat::kV3, kPlain,
       "Let me see.\n@B@Cfunction@Sget_weather\n```json\n{\"city\": "
       "\"Oslo\"}\n```@T\n@Cfunction@Sget_time\n```json\n{\"zone\": \"CET\"}\n```@T@E",
       "content[Let me see.\n]\nbegin[get_weather]#0\narguments[{\"city\": "
       "\"Oslo\"}]#0\nend[]#0\nbegin[get_time]#1\narguments[{\"zone\": \"CET\"}]#1\nend[]#1\n"},
      {"bare", ChatFormat::kV31, kPlain,
       "@B@Cf@S{\"a\": [1, -2.5e3, true, null, {\"b\": \"\\u00e9\\\"\"}]}@T@Cg@S{}@T@Edone",
       "begin[f]#0\narguments[{\"a\": [1, -2.5e3, true, null, {\"b\": "
       "\"\\u00e9\\\"\"}]}]#0\nend[]#0\nbegin[g]#1\narguments[{}]#1\nend[]#1\ncontent[done]\n"},
      {"kimi", ChatFormat::kKimiK2, kPlain,
       "ok@b@cfunctions.get_weather:0@a{\"city\": \"Oslo\"}@t@csearch.web:1@a {} @t@e",
       "content[ok]\nbegin[get_weather]#0(functions.get_weather:0)\narguments[{\"city\": "
       "\"Oslo\"}]#0\nend[]#0\nbegin[search.web]#1(search.web:1)\narguments[{}]#1\nend[]#1\n"},
      {"section_left_open", ChatFormat::kV31, kPlain, "@B@Cf@S{}@T\n",
       "begin[f]#0\narguments[{}]#0\nend[]#0\n"},
      {"marker_inside_a_string", ChatFormat::kV31, kPlain, "@B@Cf@S{\"a\": \"@T@E&1\"}@T@E",
       "begin[f]#0\narguments[{\"a\": \"@T@E&1\"}]#0\nend[]#0\n"},
      {"two_sections", ChatFormat::kV31, kPlain, "@B@Cf@S{}@T@E and @B@Cg@S{}@T@E",
       "begin[f]#0\narguments[{}]#0\nend[]#0\ncontent[ and "
       "]\nbegin[g]#1\narguments[{}]#1\nend[]#1\n"},
      {"name_beyond_ascii", ChatFormat::kV31, kPlain, "@B@C天气@S{\"城\": \"奥斯陆\"}@T@E",
       "begin[天气]#0\narguments[{\"城\": \"奥斯陆\"}]#0\nend[]#0\n"},
      {"name_of_a_server", ChatFormat::kV31, kPlain, "@B@Cdb:read+(v2)@S{}@T@E",
       "begin[db:read+(v2)]#0\narguments[{}]#0\nend[]#0\n"},
      {"fenced_name_of_a_server", ChatFormat::kV3, kPlain,
       "@B@Cfunction@Sdb:read\n```json\n{}\n```@T@E",
       "begin[db:read]#0\narguments[{}]#0\nend[]#0\n"},
      {"id_of_a_server", ChatFormat::kKimiK2, kPlain, "@b@cfunctions.db:read:0@a{}@t@e",
       "begin[db:read]#0(functions.db:read:0)\narguments[{}]#0\nend[]#0\n"},
      {"tools_off", ChatFormat::kV31, kNoTools, "@B@Cf@S{}@T@E", "content[@B@Cf@S{}@T@E]\n"},
      {"calls_off", ChatFormat::kV31, kNoCalls, "a@B@Cf@S{}@T\n@E\n", "content[af{}\n\n]\n"},
      {"format_without_calls", ChatFormat::kV2, kPlain, "@B@Cf@S{}@T@E",
       "content[@B@Cf@S{}@T@E]\n"},
      {"other_formats_markers", ChatFormat::kV31, kPlain, "@b@c", "content[@b@c]\n"}};
  return kGoldens;
}

// What is no call, or not a whole one: the text comes back without the markers, a call that has a name is a
// call that is not complete.
const std::vector<Golden>& broken_goldens() {
  static const std::vector<Golden> kGoldens = [] {
    const std::vector<std::array<std::string, 2>> bare = {
        {"a@B", "content[a]\n"},
        {"a@B\n", "content[a]\n"},
        {"@B@E", ""},
        {"@Bhm@E", "content[hm]\n"},
        {"@B@C", ""},
        {"@B@Cf", ""},
        {"@B@Cf@S", "begin[f]#0\ncut[]#0\n"},
        {"@B@Cf@S{\"a\": 1", "begin[f]#0\narguments[{\"a\": 1]#0\ncut[]#0\n"},
        {"@B@Cf@S{}", "begin[f]#0\narguments[{}]#0\nend[]#0\n"},
        {"@B@Cf@S@T@E", "begin[f]#0\ncut[]#0\n"},
        {"@B@Cf@T@E", "begin[f]#0\ncut[]#0\n"},
        {"@B@Cf@S{\"a\": 1,}@T@E", "begin[f]#0\narguments[{\"a\": 1,}]#0\ncut[]#0\n"},
        {"@B@Cf@S[1]@T@E", "content[f[1]]\n"},
        {"@B@Cf@S{} x@T@E", "begin[f]#0\narguments[{}]#0\nend[]#0\ncontent[ x]\n"},
        {"@B@C@S{}@T@E", "content[{}]\n"},
        {"@B@Cf g@S{}@T@E", "content[f g{}]\n"},
        {"@B@Cf@S{\"a\": \"\n\"}@T@E", "begin[f]#0\narguments[{\"a\": \"\n\"}]#0\ncut[]#0\n"},
        {"@B@Cf@S{\"\\ud800\": 1}@T@E", "begin[f]#0\narguments[{\"\\ud800\": 1}]#0\ncut[]#0\n"},
        {"@B@Cf@S{\"\xff\": 1}@T@E", "begin[f]#0\narguments[{\"\xff\": 1}]#0\ncut[]#0\n"},
        {"@B@Cf\xc3@S{}@T@E", "content[f\xc3{}]\n"},
        {"@Cf@S{}@T@E", "content[f{}]\n"},
        {"@B@Cf@S{\"a\": \"b@T@E", "begin[f]#0\narguments[{\"a\": \"b@T@E]#0\ncut[]#0\n"},
        {"@B@Cf@S{\"a\": @T@E", "begin[f]#0\narguments[{\"a\": ]#0\ncut[]#0\n"},
        {"@B@Cfunction@Sf\n```json\n{}\n```@T@E", "content[functionf\n```json\n{}\n```]\n"},
        {"@B@Cf<@S{}@T@E", "content[f<{}]\n"},
        {"@B@Cf@S{} <@T@E", "begin[f]#0\narguments[{}]#0\nend[]#0\ncontent[ <]\n"},
        {"@B@Cf@S{,<｜tool", "begin[f]#0\narguments[{,]#0\ncut[]#0\n"},
        {"a @S b@T c", "content[a  b c]\n"},
        {"a <", "content[a <]\n"},
        {"a <｜tool▁ca", "content[a ]\n"},
        // Leaving the inner marker out would make another one.
        {"<@C｜tool▁sep｜>>x", "content[<｜tool▁sep｜x]\n"}};
    const std::vector<std::array<std::string, 2>> kimi = {
        {"@b@cf@a{}@t@e", "content[f{}]\n"},
        {"@b@cfunctions.:0@a{}@t@e", "content[functions.:0{}]\n"},
        {"@b@cfunctions.f:@a{}@t@e", "content[functions.f:{}]\n"},
        {"@b@cfunctions.f:x@a{}@t", "content[functions.f:x{}]\n"},
        {"@b@cfunctions.f:0@a{\"a\"", "begin[f]#0(functions.f:0)\narguments[{\"a\"]#0\ncut[]#0\n"},
        {"a <|tool", "content[a ]\n"},
        {"a <|", "content[a <|]\n"}};
    const std::vector<std::array<std::string, 2>> fenced = {
        {"@B@Cfunction@Sf\n{}@T@E", "content[functionf\n{}]\n"},
        {"@B@Cf@S{}@T@E", "content[f{}]\n"},
        {"@B@Cfunction@Sf\n```json\n", "begin[f]#0\ncut[]#0\n"},
        {"@B@Cfunction@Sf\n```json\n{}\n``@T@E", "begin[f]#0\narguments[{}]#0\nend[]#0\n"},
        {"@B@Cfunction@Sf\n```json\n{}@T@E", "begin[f]#0\narguments[{}]#0\nend[]#0\n"}};
    std::vector<Golden> goldens;
    const auto add = [&](ChatFormat format, const auto& cases) {
      for (const auto& [output, events] : cases) {
        goldens.push_back(
            {"broken_" + std::to_string(goldens.size()), format, kPlain, output, events});
      }
    };
    add(ChatFormat::kV31, bare);
    add(ChatFormat::kKimiK2, kimi);
    add(ChatFormat::kR1, fenced);
    return goldens;
  }();
  return kGoldens;
}

// Calls that are fine stay calls beside others that are not.
const std::vector<Golden>& mixed_goldens() {
  static const std::vector<Golden> kGoldens = {
      {"second_is_bad", ChatFormat::kV31, kPlain, "@B@Cf@S{}@T@Cg@S{x}@T@Ch@S{}@T@E!",
       "begin[f]#0\narguments[{}]#0\nend[]#0\nbegin[g]#1\narguments[{x}]#1\ncut[]#1\nbegin[h]#2\n"
       "arguments[{}]#2\nend[]#2\ncontent[!]\n"},
      {"first_is_bad", ChatFormat::kV31, kPlain, "@B@Cf@Sx@T@Cg@S{}@T@E",
       "content[fx]\nbegin[g]#0\narguments[{}]#0\nend[]#0\n"},
      {"a_call_inside_the_name", ChatFormat::kV31, kPlain, "@B@Cf@Cg@S{}@T@E",
       "begin[f]#0\ncut[]#0\nbegin[g]#1\narguments[{}]#1\nend[]#1\n"},
      {"a_call_inside_the_arguments", ChatFormat::kV31, kPlain, "@B@Cf@S{\"a\": @Cg@S{}@T}@T@E",
       "begin[f]#0\narguments[{\"a\": ]#0\ncut[]#0\nbegin[g]#1\narguments[{}]#1\nend[]#1\n"
       "content[}]\n"},
      {"words_between_calls", ChatFormat::kV31, kPlain, "@B@Cf@S{}@Tthen@Cg@S{}@T@E",
       "begin[f]#0\narguments[{}]#0\nend[]#0\ncontent[then]\nbegin[g]#1\narguments[{}]#1\nend[]#"
       "1\n"},
      {"a_section_in_a_section", ChatFormat::kV31, kPlain, "@Bx@B@Cg@S{}@T@E",
       "content[x]\nbegin[g]#0\narguments[{}]#0\nend[]#0\n"},
      {"cut_off_after_a_call", ChatFormat::kV31, kPlain, "@B@Cf@S{}@T@Cg@S{\"a",
       "begin[f]#0\narguments[{}]#0\nend[]#0\nbegin[g]#1\narguments[{\"a]#1\ncut[]#1\n"}};
  return kGoldens;
}

std::vector<Golden> all_goldens() {
  std::vector<Golden> all;
  for (const auto* goldens :
       {&reasoning_goldens(), &call_goldens(), &broken_goldens(), &mixed_goldens()}) {
    all.insert(all.end(), goldens->begin(), goldens->end());
  }
  for (Golden& golden : all) {
    golden.output = marked(golden.output);
    golden.events = marked(golden.events);
  }
  return all;
}

class Goldens : public testing::TestWithParam<Golden> {};

TEST_P(Goldens, GiveTheseEvents) {
  const Golden& golden = GetParam();
  const Events events = parse_in_pieces(golden.format, golden.options, golden.output);
  EXPECT_EQ(describe(events), golden.events);
  check_events(golden.format, events, golden.options);
  EXPECT_TRUE(accounts_for(golden.format, golden.output, events));
}

TEST_P(Goldens, AreTheSameForEverySplitAtTwoPointsAndByteByByte) {
  const Golden& golden = GetParam();
  const Events whole = parse_in_pieces(golden.format, golden.options, golden.output);
  const size_t num_bytes = golden.output.size();
  std::vector<size_t> all_cuts;
  for (size_t i = 0; i <= num_bytes; ++i) {
    all_cuts.push_back(i);
    for (size_t j = i; j <= num_bytes; ++j) {
      const Events pieces = parse_in_pieces(golden.format, golden.options, golden.output, {i, j});
      ASSERT_EQ(pieces, whole) << i << ", " << j << "\n" << describe(pieces);
    }
  }
  EXPECT_EQ(parse_in_pieces(golden.format, golden.options, golden.output, all_cuts), whole);
}

TEST_P(Goldens, HoldForEveryPrefixInEverySplit) {
  const Golden& golden = GetParam();
  for (size_t length = 0; length <= golden.output.size(); ++length) {
    const std::string_view cut = std::string_view(golden.output).substr(0, length);
    for (size_t split = 0; split <= length; ++split) {
      tests::check_output(golden.format, golden.options, cut, {split});
    }
    const Events events = parse_in_pieces(golden.format, golden.options, cut);
    EXPECT_TRUE(accounts_for(golden.format, cut, events)) << cut << "\n" << describe(events);
  }
}

// What a client was sent is not taken back: the arguments of a call begin alike however far its output came.
TEST_P(Goldens, OnlyAddToTheArgumentsOfACall) {
  const Golden& golden = GetParam();
  std::vector<std::string> last;
  for (size_t length = 0; length <= golden.output.size(); ++length) {
    std::vector<std::string> arguments;
    for (const OutputEvent& event :
         parse_in_pieces(golden.format, golden.options, golden.output.substr(0, length))) {
      if (event.kind == OutputEvent::Kind::kToolCallBegin) arguments.emplace_back();
      if (event.kind == OutputEvent::Kind::kToolCallArguments) arguments.back() += event.text;
    }
    // Of a call that was cut off behind its name more may show that it is none.
    while (!arguments.empty() && arguments.back().empty()) arguments.pop_back();
    ASSERT_GE(arguments.size(), last.size());
    for (size_t i = 0; i < last.size(); ++i) ASSERT_TRUE(arguments[i].starts_with(last[i]));
    last = std::move(arguments);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Goldens, testing::ValuesIn(all_goldens()),
                         [](const auto& info) { return info.param.name; });

TEST(OutputParser, EventsDoNotDependOnRandomSplitsOfRandomOutputs) {
  const std::vector<std::string> parts = {"@B",
                                          "@E",
                                          "@C",
                                          "@S",
                                          "@T",
                                          "@b",
                                          "@e",
                                          "@c",
                                          "@a",
                                          "@t",
                                          "<think>",
                                          "</think>",
                                          "\n",
                                          "f",
                                          "function",
                                          "```json\n",
                                          "\n```",
                                          "{}",
                                          "{\"a\": \"",
                                          "\"}",
                                          "<",
                                          "functions.f:0",
                                          "@Cf@S{\"k\": 1}@T",
                                          "｜",
                                          "｜tool▁sep｜>",
                                          "<|tool_call",
                                          " text "};
  const ChatFormat formats[] = {ChatFormat::kV3, ChatFormat::kV31, ChatFormat::kKimiK2,
                                ChatFormat::kV2};
  constexpr unsigned kSeed = 11;
  std::minstd_rand rng(kSeed);
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (int round = 0; round < 20000; ++round) {
    std::string output;
    for (auto i = rng() % 12; i > 0; --i) output += marked(parts[rng() % parts.size()]);
    std::vector<size_t> cuts;
    for (size_t i = 0; i < output.size(); ++i) {
      if (rng() % 4 == 0) cuts.push_back(i);
    }
    const OutputParser::Options options = {.reasoning = rng() % 2 == 0,
                                           .starts_in_reasoning = rng() % 2 == 0,
                                           .tools = rng() % 4 != 0,
                                           .calls = rng() % 4 != 0};
    const ChatFormat format = formats[rng() % std::size(formats)];
    tests::check_output(format, options, output, cuts);
    const Events events = parse_in_pieces(format, options, output);
    EXPECT_TRUE(accounts_for(format, output, events)) << output << "\n" << describe(events);
  }
}

TEST(OutputParser, TextIsShownAsSoonAsItCannotBecomeMarkup) {
  OutputParser parser(ChatFormat::kV31, {});
  Events events;
  parser.push("Hello", events);
  EXPECT_EQ(describe(events), "content[Hello]\n");
  parser.push(" <", events);
  EXPECT_EQ(describe(events), "content[Hello ]\n");
  parser.push("｜tool▁calls", events);
  EXPECT_EQ(describe(events), "content[Hello ]\n");
  parser.push("▁x", events);
  EXPECT_EQ(describe(events), "content[Hello <｜tool▁calls▁x]\n");
}

TEST(OutputParser, PiecesOfWholeCharactersGiveEventsOfWholeCharacters) {
  // U+FF5D shares two of its three bytes with the U+FF5C of the markers.
  OutputParser parser(ChatFormat::kV31, {});
  for (const char* piece : {"<", "｝", "<", "｜", "tool", "▁", "call", "▂", "é"}) {
    Events events;
    parser.push(piece, events);
    for (const OutputEvent& event : events) {
      EXPECT_TRUE(is_json_object("{\"" + event.text + "\":0}")) << event.text;
    }
  }
}

TEST(OutputParser, ArgumentsComeAsTheyAreWritten) {
  OutputParser parser(ChatFormat::kV31, {});
  const auto events_of = [&](const char* piece) {
    Events events;
    parser.push(marked(piece), events);
    return describe(events);
  };
  EXPECT_EQ(events_of("@B@Cget_weather"), "");
  EXPECT_EQ(events_of("@S"), "");
  EXPECT_EQ(events_of("{\"city"), "begin[get_weather]#0\narguments[{\"city]#0\n");
  EXPECT_EQ(events_of("\": \"Os"), "arguments[\": \"Os]#0\n");
  EXPECT_EQ(events_of("<"), "") << "it may begin a marker";
  EXPECT_EQ(events_of("b>"), "arguments[<b>]#0\n");
  EXPECT_EQ(events_of("\"}"), "arguments[\"}]#0\nend[]#0\n");
  EXPECT_EQ(events_of("@T@E"), "");
}

TEST(OutputParser, ArgumentsMayBeOfAnyLengthButWhiteSpaceIsNotHeldForEver) {
  const std::string text(size_t{3} << 20, 'x');
  const Events events =
      parse_in_pieces(ChatFormat::kV31, {}, marked("@B@Cf@S{\"a\": \"" + text + "\"}@T@E"));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_TRUE(events[2].is_complete);
  for (const char* before : {"@B", "@B@Cf@S", "@B@Cf@S{}", "@B@Cf@S{}@T"}) {
    OutputParser parser(ChatFormat::kV31, {});
    Events blank;
    parser.push(marked(before) + std::string(OutputParser::kMaxHeldBytes + 1, ' '), blank);
    ASSERT_FALSE(blank.empty()) << before;
    EXPECT_EQ(blank.back().kind, OutputEvent::Kind::kContent) << before;
  }
}

TEST(OutputParser, DeepArgumentsAreNotComplete) {
  const auto nested = [](int depth) {
    std::string arguments = "{\"a\":";
    for (int i = 1; i < depth; ++i) arguments += "[";
    for (int i = 1; i < depth; ++i) arguments += "]";
    return marked("@B@Cf@S" + arguments + "}@T@E");
  };
  EXPECT_TRUE(parse_in_pieces(ChatFormat::kV31, {}, nested(64)).back().is_complete);
  const Events too_deep = parse_in_pieces(ChatFormat::kV31, {}, nested(65));
  ASSERT_EQ(too_deep.size(), 3u);
  EXPECT_FALSE(too_deep.back().is_complete);
}

TEST(OutputParser, HostileOutputsTakeLinearTime) {
  // 8 MiB of beginnings each; quadratic re-reading would take minutes.
  for (const char* part : {"<", "<｜tool▁calls▁begin", "@B", "@B@Cf@S{\"a", "\n", "</think",
                           "@B@Cf", "<@C｜tool▁sep｜"}) {
    std::string output;
    while (output.size() < (size_t{8} << 20)) output += marked(part);
    for (const bool starts_in_reasoning : {false, true}) {
      const OutputParser::Options options = {.starts_in_reasoning = starts_in_reasoning};
      const Events events = parse_in_pieces(ChatFormat::kV31, options, output);
      check_events(ChatFormat::kV31, events, options);
      size_t num_bytes = 0;
      for (const OutputEvent& event : events) num_bytes += event.text.size();
      EXPECT_LE(num_bytes, output.size());
    }
  }
}

TEST(JsonObjectMachine, AgreesWithTheJsonReader) {
  constexpr unsigned kSeed = 5;
  std::minstd_rand rng(kSeed);
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const std::string seeds[] = {
      R"({"a": [1, -2.5, 0, true, false, null], "b": {"c": "é\u00e9\ud83d\ude00\n"}, "d": ""})",
      R"({ "x" : 0.5 , "y" : [ ] , "z" : { } })", R"({"k":[[["s"]]],"l":-0.125})"};
  const std::string bytes = "{}[]\",:\\u09aefnt.-+ \n\xc3\xa9\xed\xa0\xf4\x90";
  int num_valid = 0;
  for (int round = 0; round < 100000; ++round) {
    std::string text = seeds[rng() % 3];
    for (auto i = rng() % 3; i > 0; --i) {
      const size_t at = rng() % text.size();
      switch (rng() % 3) {
        case 0:
          text.erase(at, 1);
          break;
        case 1:
          text[at] = bytes[rng() % bytes.size()];
          break;
        default:
          text.insert(at, 1, bytes[rng() % bytes.size()]);
      }
    }
    // nlohmann's grammar alone: json::parse() also refuses duplicate keys, which RFC 8259 allows.
    const bool is_object = json::Value::accept(text) && json::Value::parse(text).is_object();
    num_valid += is_object;
    ASSERT_EQ(is_json_object(text), is_object) << text;
  }
  EXPECT_GT(num_valid, 20000);
}

TEST(JsonObjectMachine, KnowsTheLastByte) {
  JsonObjectMachine machine;
  const std::string_view text = "{\"a\": {}}";
  for (size_t i = 0; i + 1 < text.size(); ++i)
    EXPECT_EQ(machine.push(text[i]), JsonObjectMachine::State::kMore);
  EXPECT_EQ(machine.push(text.back()), JsonObjectMachine::State::kDone);
}

}  // namespace
}  // namespace fathom::text
