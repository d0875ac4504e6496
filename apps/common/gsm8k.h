#pragma once
// GSM8K problems: reading them, and the number that an answer states.
//
//   Result<std::vector<Gsm8kProblem>> problems = parse_gsm8k(text);
//   std::optional<double> value = gsm8k_answer("2+3=5. #### 1,250");       // 1250
//
// Pure functions but for load_gsm8k().

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom::apps {

struct Gsm8kProblem {
  std::string question, answer;
};

// A JSON array of {"question", "answer"}, or one such object per line.
Result<std::vector<Gsm8kProblem>> parse_gsm8k(const std::string& text);

// The first `count` problems of a file, all if negative. Throws StartupError.
std::vector<Gsm8kProblem> load_gsm8k(const std::string& path, int count);

// The first number after the last "####"; without that mark the last number. Thousands separators are
// dropped. None when there is no number.
std::optional<double> gsm8k_answer(std::string_view text);

// What stands before the model starts another "Question": the benchmark's stop string.
std::string_view before_next_question(std::string_view text);

// The worked examples as they stand before each question; `num_shots` < 0 takes all.
std::string gsm8k_preamble(const std::vector<Gsm8kProblem>& shots, int num_shots);
std::string gsm8k_prompt(const std::string& preamble, const Gsm8kProblem& problem);

struct Gsm8kScore {
  int num_questions = 0, num_correct = 0, num_invalid = 0;  // invalid: no number in the answer
  double accuracy() const;
  double invalid() const;
};
// REQUIRES: one text for each question.
Gsm8kScore gsm8k_score(const std::vector<Gsm8kProblem>& questions,
                       const std::vector<std::string>& texts);

}  // namespace fathom::apps
