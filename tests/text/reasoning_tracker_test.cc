// The tracker and OutputParser read the same outputs: what one calls reasoning is reasoning to the other, whatever the
// pieces are.

#include "text/reasoning_tracker.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/output_parser.h"

namespace fathom::text {
namespace {

struct Split {
  std::string before, answer;
  bool operator==(const Split&) const = default;
};

Split tracked(std::string_view output, bool starts_in_reasoning, size_t piece_bytes) {
  ReasoningTracker tracker(starts_in_reasoning);
  Split split;
  for (size_t i = 0; i < output.size(); i += piece_bytes) {
    tracker.push(output.substr(i, piece_bytes), split.before, split.answer);
  }
  tracker.finish(split.answer);
  return split;
}

// What OutputParser calls content.
std::string parsed_content(std::string_view output, bool starts_in_reasoning) {
  OutputParser parser(ChatFormat::kV31,
                      {.starts_in_reasoning = starts_in_reasoning, .tools = false});
  std::vector<OutputEvent> events;
  parser.push(output, events);
  parser.finish(events);
  std::string content;
  for (const OutputEvent& event : events) {
    if (event.kind == OutputEvent::Kind::kContent) content += event.text;
  }
  return content;
}

TEST(ReasoningTracker, parts_an_output_at_the_end_of_its_reasoning) {
  EXPECT_EQ(tracked("a7</think>\n\nb7", true, 100), (Split{"a7</think>\n\n", "b7"}));
  EXPECT_EQ(tracked("a</think>\n\n\nb</think>", true, 100),
            (Split{"a</think>\n\n", "\nb</think>"}));
  EXPECT_EQ(tracked("</think>b", true, 100), (Split{"</think>", "b"}));
  EXPECT_EQ(tracked("a</thin", true, 100), (Split{"a</thin", ""}));
  EXPECT_EQ(tracked(" \n<think>a</think>b", false, 100), (Split{" \n<think>a</think>", "b"}));
  EXPECT_EQ(tracked(" <thin", false, 100), (Split{"", " <thin"}));
  EXPECT_EQ(tracked("b <think>a</think>", false, 100), (Split{"", "b <think>a</think>"}));
  EXPECT_EQ(tracked("", false, 1), (Split{"", ""}));
}

TEST(ReasoningTracker, says_when_the_end_has_just_come) {
  ReasoningTracker tracker(true);
  Split split;
  tracker.push("a</thi", split.before, split.answer);
  EXPECT_TRUE(tracker.in_reasoning());
  EXPECT_FALSE(tracker.has_just_ended());
  tracker.push("nk>b", split.before, split.answer);
  EXPECT_TRUE(tracker.is_over());
  EXPECT_TRUE(tracker.has_just_ended());
  tracker.push("</think>", split.before, split.answer);
  EXPECT_FALSE(tracker.has_just_ended());
}

TEST(ReasoningTracker, a_call_ends_it_where_the_format_says_so) {
  const std::string output = "hm <｜DSML｜invoke name=\"f\"/>\nstop";
  for (const bool calls_end_it : {false, true}) {
    ReasoningTracker tracker(/*starts_in_reasoning=*/true, calls_end_it);
    std::string before, answer;
    tracker.push(output, before, answer);
    EXPECT_EQ(tracker.is_over(), calls_end_it);
    EXPECT_EQ(before + answer, output);
    EXPECT_EQ(answer, calls_end_it ? "f\"/>\nstop" : "");
    EXPECT_FALSE(tracker.has_just_ended()) << "its marker has not come";
  }
}

TEST(ReasoningTracker, tells_what_would_be_of_the_answer) {
  ReasoningTracker tracker(false);
  Split split;
  EXPECT_FALSE(tracker.is_answer(" \n"));
  EXPECT_FALSE(tracker.is_answer("<think>7"));
  EXPECT_TRUE(tracker.is_answer("7"));
  tracker.push("<think>", split.before, split.answer);
  EXPECT_FALSE(tracker.is_answer("7"));
  tracker.push("</think>\n", split.before, split.answer);
  EXPECT_FALSE(tracker.is_answer("\n"));
  EXPECT_TRUE(tracker.is_answer("\n\n"));
}

TEST(ReasoningTracker, agrees_with_the_parser_whatever_the_pieces_are) {
  const std::vector<std::string> parts = {"<think>", "</think>", "\n", " ",   "a",
                                          "<",       "</thi",    "é",  "nk>", std::string(70, ' ')};
  constexpr unsigned kSeed = 31;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 20'000; ++i) {
    std::string output;
    for (size_t n = random() % 9; n > 0; --n) output += parts[random() % parts.size()];
    const bool starts_in_reasoning = random() % 2 == 0;
    // A <think> that the model repeats behind the prompt's is reasoning to one and no text to the other.
    const Split whole = tracked(output, starts_in_reasoning, output.size() + 1);
    EXPECT_EQ(whole.answer, parsed_content(output, starts_in_reasoning))
        << "seed " << kSeed << " output " << testing::PrintToString(output);
    EXPECT_EQ(whole.before + whole.answer, output);
    for (const size_t piece : {size_t{1}, size_t{3}}) {
      EXPECT_EQ(tracked(output, starts_in_reasoning, piece), whole) << output;
    }
  }
}

}  // namespace
}  // namespace fathom::text
