#include <algorithm>
#include <cstdio>

#include "apps/bench/ablation/report.h"

namespace fathom::apps {
namespace {

const json::Value& tokens_of(const AblationOutcome& outcome) {
  return outcome.measured.at("questions").at("tokens");
}

double accuracy_of(const AblationOutcome& outcome) {
  return outcome.measured.at("questions").at("accuracy").get<double>();
}

void compare(AblationOutcome& outcome, const AblationOutcome& first) {
  const json::Value &tokens = tokens_of(outcome), &wanted = tokens_of(first);
  outcome.num_answers = static_cast<int>(tokens.size());
  for (size_t i = 0; i < std::min(tokens.size(), wanted.size()); ++i)
    if (tokens[i] == wanted[i]) ++outcome.num_equal;
}

std::string fault_of(const AblationOutcome& outcome, const AblationOutcome& first, bool is_exact) {
  const int num_other = outcome.num_answers - outcome.num_equal;
  if (is_exact && apps::is_exact(*outcome.row)) {
    if (num_other == 0) return "";
    return "other tokens than row " + std::string(first.row->name) + " in " +
           std::to_string(num_other) + " of " + std::to_string(outcome.num_answers) + " answers";
  }
  const double accuracy = accuracy_of(outcome), wanted = accuracy_of(first);
  if (accuracy >= wanted - kAccuracyMargin) return "";
  char text[80];
  std::snprintf(text, sizeof text, "accuracy %.3f, row %s has %.3f", accuracy,
                std::string(first.row->name).c_str(), wanted);
  return text;
}

}  // namespace

void judge(std::vector<AblationOutcome>& outcomes, bool is_exact) {
  if (outcomes.empty()) return;
  const AblationOutcome first = outcomes.front();
  for (AblationOutcome& outcome : outcomes) {
    if (!outcome.runs()) continue;
    if (!first.runs()) {
      outcome.why_failed =
          "row " + std::string(first.row->name) + " did not run: nothing to compare with";
      continue;
    }
    compare(outcome, first);
    outcome.why_failed = fault_of(outcome, first, is_exact);
  }
}

}  // namespace fathom::apps
