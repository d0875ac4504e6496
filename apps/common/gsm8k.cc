#include "apps/common/gsm8k.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "apps/common/text_setup.h"
#include "base/check.h"
#include "base/json.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Result<Gsm8kProblem> parse_problem(const json::Value& value, const std::string& where) {
  for (const char* key : {"question", "answer"}) {
    if (!value.is_object() || !value.contains(key) || !value[key].is_string()) {
      return invalid_argument(where + ": \"" + key + "\" must be a string of an object");
    }
  }
  return Gsm8kProblem{.question = value["question"].get<std::string>(),
                      .answer = value["answer"].get<std::string>()};
}

Result<std::vector<Gsm8kProblem>> parse_array(const std::string& text) {
  Result<json::Value> array = json::parse(text);
  if (!array) return array.error();
  std::vector<Gsm8kProblem> problems;
  for (size_t i = 0; i < array->size(); ++i) {
    Result<Gsm8kProblem> problem = parse_problem((*array)[i], "element " + std::to_string(i));
    if (!problem) return problem.error();
    problems.push_back(std::move(*problem));
  }
  return problems;
}

Result<std::vector<Gsm8kProblem>> parse_lines(const std::string& text) {
  std::vector<Gsm8kProblem> problems;
  size_t line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = "line " + std::to_string(line_number);
    Result<json::Value> value = json::parse(line);
    if (!value) return invalid_argument(where + ": " + value.error().message);
    Result<Gsm8kProblem> problem = parse_problem(*value, where);
    if (!problem) return problem.error();
    problems.push_back(std::move(*problem));
  }
  return problems;
}

// The number that starts at `begin`, "-1,234.5", without its separators; moves `begin` past it.
double take_number(std::string_view text, size_t& begin) {
  std::string digits;
  // A minus sign, but not the operator of "12-7".
  const bool minus = begin > 0 && text[begin - 1] == '-';
  if (minus && (begin == 1 || !is_digit(text[begin - 2]))) digits = "-";
  while (begin < text.size()) {
    const char c = text[begin];
    const bool more = begin + 1 < text.size() && is_digit(text[begin + 1]);
    if (is_digit(c) || (c == '.' && more)) {
      digits += c;
    } else if (c != ',' || !more) {
      break;
    }
    ++begin;
  }
  double value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

}  // namespace

Result<std::vector<Gsm8kProblem>> parse_gsm8k(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '[') return parse_array(text);
  return parse_lines(text);
}

std::vector<Gsm8kProblem> load_gsm8k(const std::string& path, int count) {
  Result<std::vector<Gsm8kProblem>> problems = parse_gsm8k(read_text_file(path));
  if (!problems) throw StartupError(path + ": " + problems.error().message);
  if (count >= 0 && static_cast<size_t>(count) < problems->size()) {
    problems->resize(static_cast<size_t>(count));
  }
  return std::move(*problems);
}

std::optional<double> gsm8k_answer(std::string_view text) {
  const size_t mark = text.rfind("####");
  std::string_view rest = mark == std::string_view::npos ? text : text.substr(mark);
  std::optional<double> answer;
  for (size_t i = 0; i < rest.size();) {
    if (!is_digit(rest[i])) {
      ++i;
      continue;
    }
    answer = take_number(rest, i);
    if (mark != std::string_view::npos) break;
  }
  return answer;
}

std::string_view before_next_question(std::string_view text) {
  return text.substr(0, text.find("Question"));
}

std::string gsm8k_preamble(const std::vector<Gsm8kProblem>& shots, int num_shots) {
  const size_t count = num_shots < 0 ? shots.size() : static_cast<size_t>(num_shots);
  std::string preamble;
  for (size_t i = 0; i < std::min(count, shots.size()); ++i) {
    preamble += "Question: " + shots[i].question + "\nAnswer: " + shots[i].answer + "\n\n";
  }
  return preamble;
}

std::string gsm8k_prompt(const std::string& preamble, const Gsm8kProblem& problem) {
  return preamble + "Question: " + problem.question + "\nAnswer:";
}

double Gsm8kScore::accuracy() const { return static_cast<double>(num_correct) / num_questions; }
double Gsm8kScore::invalid() const { return static_cast<double>(num_invalid) / num_questions; }

Gsm8kScore gsm8k_score(const std::vector<Gsm8kProblem>& questions,
                       const std::vector<std::string>& texts) {
  FATHOM_CHECK(questions.size() == texts.size(),
               questions.size() << " questions, " << texts.size() << " answers");
  Gsm8kScore score{.num_questions = static_cast<int>(questions.size())};
  for (size_t i = 0; i < questions.size(); ++i) {
    const std::optional<double> want = gsm8k_answer(questions[i].answer);
    const std::optional<double> got = gsm8k_answer(before_next_question(texts[i]));
    if (!got) ++score.num_invalid;
    if (got && want && *got == *want) ++score.num_correct;
  }
  return score;
}

}  // namespace fathom::apps
