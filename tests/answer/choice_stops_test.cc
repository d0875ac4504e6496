// Stop strings and stop tokens of a chat wait for the end of the reasoning: whatever its format, however many tokens a
// step brings, and whether the prompt opened the reasoning or the model did.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "answer/choice.h"
#include "tests/answer/fed_answer.h"

namespace fathom::answer {
namespace {

struct Stops {
  std::vector<std::string> strings;
  std::string token_text = {};  // of one stop token
  bool no_stop_trim = false;
  int min_tokens = 0;
};

struct Told {
  std::string reasoning, content;
  std::string matched;  // the string, or #id
  int completion_tokens = 0, reasoning_tokens = 0;
};

int32_t token_of(const std::string& text) {
  const std::vector<int32_t> ids = api::tests::demo_tokenizer()->encode(text);
  EXPECT_EQ(ids.size(), 1U) << text;
  return ids.front();
}

// The output in steps of `step_tokens`, until the choice asks to stop; then one more step that must be dropped.
Told told(std::string_view output, const Stops& stops, bool starts_in_reasoning, size_t step_tokens,
          text::ChatFormat format) {
  ChoiceSetup setup = tests::plain_choice();
  setup.parser.emplace(format,
                       text::OutputParser::Options{.starts_in_reasoning = starts_in_reasoning});
  setup.think_end_id = setup.tokenizer->token_id("</think>").value();
  setup.starts_in_reasoning = starts_in_reasoning;
  setup.stops_wait = true;
  setup.no_stop_trim = stops.no_stop_trim;
  setup.min_tokens = stops.min_tokens;
  if (!stops.strings.empty()) {
    setup.stop = std::make_shared<const text::StopStrings>(stops.strings);
  }
  if (!stops.token_text.empty()) setup.stop_token_ids = {token_of(stops.token_text)};
  Choice choice(setup);
  std::vector<core::SampledToken> tokens;
  for (const int32_t id : setup.tokenizer->encode(output)) tokens.push_back({.token = id});
  bool is_stopped = false;
  for (size_t i = 0; i < tokens.size(); i += step_tokens) {
    const size_t count = std::min(step_tokens, tokens.size() - i);
    const bool stops_now = choice.push(std::span(tokens).subspan(i, count), false);
    EXPECT_FALSE(stops_now && is_stopped);
    is_stopped = is_stopped || stops_now;
  }
  engine::RequestEnd end;
  end.reason = core::FinishReason::kLength;
  choice.end(end);
  EXPECT_TRUE(!is_stopped || choice.finish() == Finish::kStop);
  Told result;
  result.completion_tokens = choice.counts().completion_tokens;
  result.reasoning_tokens = choice.counts().reasoning_tokens;
  for (const text::OutputEvent& event : choice.news.events) {
    (event.kind == text::OutputEvent::Kind::kReasoning ? result.reasoning : result.content) +=
        event.text;
  }
  result.matched = choice.stop_string_found()    ? choice.matched_string()
                   : choice.matched_token() >= 0 ? "#" + std::to_string(choice.matched_token())
                                                 : "";
  EXPECT_EQ(choice.news.tokens.size(), static_cast<size_t>(result.completion_tokens));
  return result;
}

// Format, whether the prompt opens the reasoning, tokens of a step.
using Case = std::tuple<text::ChatFormatTraits, bool, size_t>;

class WaitingStops : public testing::TestWithParam<Case> {
 protected:
  Told tell(std::string_view thought, const std::string& answer, const Stops& stops) const {
    const auto& [format, opens, step_tokens] = GetParam();
    std::string output = opens ? "" : "<think>\n";
    output += thought;
    output += "</think>";
    return told(output + answer, stops, opens, step_tokens, format.format);
  }
};

TEST_P(WaitingStops, end_the_answer_and_not_the_reasoning) {
  const Told told = tell("12 + 7", "\n\nIt is 7 apples", {.strings = {"7"}});
  EXPECT_EQ(told.reasoning, "12 + 7");
  EXPECT_EQ(told.content, "It is ");
  EXPECT_EQ(told.matched, "7");
}

TEST_P(WaitingStops, do_not_take_the_line_breaks_of_the_end_marker) {
  const Told told = tell("a\n\nb", "\n\nIt is\n\nso", {.strings = {"\n\n"}});
  EXPECT_EQ(told.reasoning, "a\n\nb");
  EXPECT_EQ(told.content, "It is");
  EXPECT_EQ(told.matched, "\n\n");
}

TEST_P(WaitingStops, are_not_begun_in_the_reasoning) {
  // "kA" is there only across the marker.
  const Told told = tell("think", "And so", {.strings = {"kA", ">A"}});
  EXPECT_EQ(told.reasoning, "think");
  EXPECT_EQ(told.content, "And so");
  EXPECT_EQ(told.matched, "");
}

TEST_P(WaitingStops, end_the_reasoning_where_they_name_its_end) {
  const Told by_string = tell("a b", "c d", {.strings = {"</think>"}});
  EXPECT_EQ(by_string.reasoning, "a b");
  EXPECT_EQ(by_string.content, "");
  EXPECT_EQ(by_string.matched, "</think>");
  const Told by_token = tell("a b", "c d", {.strings = {}, .token_text = "</think>"});
  EXPECT_EQ(by_token.reasoning, "a b");
  EXPECT_EQ(by_token.content, "");
  EXPECT_EQ(by_token.matched, "#" + std::to_string(token_of("</think>")));
  EXPECT_EQ(by_token.completion_tokens, by_string.completion_tokens);
  EXPECT_EQ(by_token.reasoning_tokens, by_token.completion_tokens);
}

TEST_P(WaitingStops, by_token_end_the_answer_and_not_the_reasoning) {
  const std::string token = "#" + std::to_string(token_of("7"));
  const Told told = tell("7, 7", "\n\n1 7 8", {.strings = {}, .token_text = "7"});
  EXPECT_EQ(told.reasoning, "7, 7");
  EXPECT_EQ(told.content, "1 ");
  EXPECT_EQ(told.matched, token);
  const Told kept =
      tell("7, 7", "\n\n1 7 8", {.strings = {}, .token_text = "7", .no_stop_trim = true});
  EXPECT_EQ(kept.content, "1 7");
  EXPECT_EQ(kept.completion_tokens, told.completion_tokens);
}

TEST_P(WaitingStops, by_token_end_nothing_before_min_tokens) {
  const int before = tell("7", "1 7 8 7 9", {.strings = {}, .token_text = "7"}).completion_tokens;
  const Told told =
      tell("7", "1 7 8 7 9", {.strings = {}, .token_text = "7", .min_tokens = before});
  EXPECT_EQ(told.content, "1 7 8 ");
  EXPECT_GT(told.completion_tokens, before);
}

TEST_P(WaitingStops, of_reasoning_that_never_ends_find_nothing) {
  const auto& [format, opens, step_tokens] = GetParam();
  const Told told =
      answer::told(std::string(opens ? "" : "<think>") + "7 and 7",
                   {.strings = {"7"}, .token_text = "7"}, opens, step_tokens, format.format);
  EXPECT_EQ(told.reasoning, "7 and 7");
  EXPECT_EQ(told.matched, "");
}

std::vector<text::ChatFormatTraits> all_formats() {
  return {text::chat_formats().begin(), text::chat_formats().end()};
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, WaitingStops,
                         testing::Combine(testing::ValuesIn(all_formats()), testing::Bool(),
                                          testing::Values(1, 2, 5, 1000)),
                         [](const auto& info) {
                           std::string name(std::get<0>(info.param).name);
                           name += std::get<1>(info.param) ? "_opened_by_" : "_written_by_";
                           name += std::to_string(std::get<2>(info.param));
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST(WaitingStopsOfNoReasoning, are_awake_from_the_first_byte) {
  const auto tell = [](std::string_view output, const Stops& stops) {
    return told(output, stops, /*starts_in_reasoning=*/false, 1, text::ChatFormat::kR1_0528);
  };
  EXPECT_EQ(tell("It is 7 apples", {.strings = {"7"}}).content, "It is ");
  EXPECT_EQ(tell("\n\nIt is", {.strings = {"\n\n"}}).matched, "\n\n");
  EXPECT_EQ(tell("<b>7", {.strings = {"<b"}}).matched, "<b");
  EXPECT_EQ(tell("7 apples", {.strings = {}, .token_text = "7"}).completion_tokens, 1);
  EXPECT_EQ(tell(" \n", {.strings = {"\n"}}).matched, "\n");
}

}  // namespace
}  // namespace fathom::answer
