#include "apps/common/gsm8k.h"

#include <gtest/gtest.h>

namespace fathom::apps {
namespace {

TEST(Gsm8kAnswer, is_the_number_after_the_mark) {
  EXPECT_EQ(gsm8k_answer("1+2=<<1+2=3>>3 apples.\n#### 3"), 3.0);
  EXPECT_EQ(gsm8k_answer("#### 1,250 and 7"), 1250.0);
  EXPECT_EQ(gsm8k_answer("#### -5"), -5.0);
  EXPECT_EQ(gsm8k_answer("#### $2.50."), 2.5);
  EXPECT_EQ(gsm8k_answer("#### 1\nthen #### 2"), 2.0);
}

TEST(Gsm8kAnswer, is_the_last_number_without_a_mark) {
  EXPECT_EQ(gsm8k_answer("First 12-7 and then 5 apples."), 5.0);
  EXPECT_EQ(gsm8k_answer("So 12-7"), 7.0);
}

TEST(Gsm8kAnswer, is_missing_when_there_is_no_number) {
  EXPECT_EQ(gsm8k_answer("I do not know."), std::nullopt);
  EXPECT_EQ(gsm8k_answer("12 apples #### none"), std::nullopt);
  EXPECT_EQ(gsm8k_answer(""), std::nullopt);
}

TEST(Gsm8kText, ends_where_the_next_question_begins) {
  EXPECT_EQ(before_next_question(" 3\n#### 3\n\nQuestion: Who"), " 3\n#### 3\n\n");
  EXPECT_EQ(before_next_question("all of it"), "all of it");
}

TEST(Gsm8kFile, is_an_array_or_lines) {
  const auto array = parse_gsm8k(R"([{"question": "q", "answer": "a"}])");
  ASSERT_TRUE(array) << array.error().message;
  ASSERT_EQ(array->size(), 1u);
  EXPECT_EQ((*array)[0].question, "q");
  const auto lines = parse_gsm8k(
      "{\"question\": \"q\", \"answer\": \"a\"}\n\n"
      "{\"question\": \"r\", \"answer\": \"b\"}");
  ASSERT_TRUE(lines) << lines.error().message;
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[1].answer, "b");
}

TEST(Gsm8kFile, names_the_broken_entry) {
  const auto array = parse_gsm8k(R"([{"question": "q", "answer": "a"}, {"question": 3}])");
  ASSERT_FALSE(array);
  EXPECT_NE(array.error().message.find("element 1"), std::string::npos) << array.error().message;
  const auto lines = parse_gsm8k("{\"question\": \"q\", \"answer\": \"a\"}\nnonsense\n");
  ASSERT_FALSE(lines);
  EXPECT_NE(lines.error().message.find("line 2"), std::string::npos) << lines.error().message;
}

TEST(Gsm8kScore, counts_right_wrong_and_missing_answers) {
  const std::vector<Gsm8kProblem> questions(4, {.question = "q", .answer = "1+2. #### 3"});
  const Gsm8kScore score =
      gsm8k_score(questions, {" #### 3\n\nQuestion: next #### 9", " #### 4", " no idea", " 3"});
  EXPECT_EQ(score.num_correct, 2);
  EXPECT_EQ(score.num_invalid, 1);
  EXPECT_DOUBLE_EQ(score.accuracy(), 0.5);
  EXPECT_DOUBLE_EQ(score.invalid(), 0.25);
}

TEST(Gsm8kPrompt, is_the_first_examples_and_the_question) {
  const std::vector<Gsm8kProblem> shots = {{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(gsm8k_prompt(gsm8k_preamble(shots, 1), {"c", "3"}),
            "Question: a\nAnswer: 1\n\nQuestion: c\nAnswer:");
  EXPECT_EQ(gsm8k_preamble(shots, -1), "Question: a\nAnswer: 1\n\nQuestion: b\nAnswer: 2\n\n");
}

}  // namespace
}  // namespace fathom::apps
