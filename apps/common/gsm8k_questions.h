#pragma once
// The questions of an evaluation as the command line names them, for `fathom eval gsm8k` and `fathom-bench gsm8k`.
//
//   add_gsm8k_flags(app, flags, "Evaluation");                    // --data, --shots, --num-shots
//   const Gsm8kQuestions questions = load_gsm8k_questions(flags, /*count=*/200);

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "apps/common/gsm8k.h"

namespace fathom::apps {

struct Gsm8kFlags {
  std::string data, shots;  // files; no shots: empty
  int num_shots = -1;       // negative: all
};
void add_gsm8k_flags(CLI::App& app, Gsm8kFlags& flags, const std::string& group);

struct Gsm8kQuestions {
  std::vector<Gsm8kProblem> problems;  // at least one
  std::vector<std::string> prompts;    // one for each, worked examples first
};
// The first `count` questions, all if negative. Throws StartupError.
Gsm8kQuestions load_gsm8k_questions(const Gsm8kFlags& flags, int count);

// The lines that SGLang's benchmark prints.
void print_gsm8k_result(const Gsm8kScore& score, double seconds, double tokens_per_second);

}  // namespace fathom::apps
