#include "apps/common/gsm8k_questions.h"

#include <cstdio>

#include "apps/common/model_directory.h"
#include "base/startup_error.h"

namespace fathom::apps {

void add_gsm8k_flags(CLI::App& app, Gsm8kFlags& flags, const std::string& group) {
  app.add_option("--data,--data-path", flags.data,
                 "Problems: a JSON array or JSON lines of {\"question\", \"answer\"}, the answer "
                 "ending in \"#### NUMBER\"")
      ->type_name("FILE")
      ->default_str("the demo model's, with its examples")
      ->group(group);
  app.add_option("--shots", flags.shots, "Worked examples put before each problem, same form")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--num-shots", flags.num_shots, "Use only the first N examples")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->default_str("all")
      ->group(group);
}

namespace {

// Without a file the problems that came with the demo model, and the examples that it learned the form from.
Gsm8kFlags with_defaults(Gsm8kFlags flags) {
  if (!flags.data.empty()) return flags;
  const std::string demo = demo_directory();
  if (demo.empty())
    throw StartupError(
        "--data is required: the problems of the demo model are not beside this program");
  flags.data = demo + "/eval.json";
  if (flags.shots.empty()) flags.shots = demo + "/shots.json";
  return flags;
}

}  // namespace

Gsm8kQuestions load_gsm8k_questions(const Gsm8kFlags& given, int count) {
  const Gsm8kFlags flags = with_defaults(given);
  Gsm8kQuestions questions{.problems = load_gsm8k(flags.data, count), .prompts = {}};
  if (questions.problems.empty()) throw StartupError(flags.data + ": no questions");
  std::string preamble;
  if (!flags.shots.empty()) preamble = gsm8k_preamble(load_gsm8k(flags.shots, -1), flags.num_shots);
  for (const Gsm8kProblem& problem : questions.problems) {
    questions.prompts.push_back(gsm8k_prompt(preamble, problem));
  }
  return questions;
}

void print_gsm8k_result(const Gsm8kScore& score, double seconds, double tokens_per_second) {
  std::printf("Accuracy: %.3f\nInvalid: %.3f\nLatency: %.3f s\nOutput throughput: %.3f token/s\n",
              score.accuracy(), score.invalid(), seconds, tokens_per_second);
}

}  // namespace fathom::apps
