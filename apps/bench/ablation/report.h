#pragma once
// What became of the rows of an ablation, judged beside the first row's, and as a document, a picture and JSON.
//
//   judge(outcomes, /*is_exact=*/true);
//   write(path, ablation_markdown(setup, outcomes));
//
// Pure functions.

#include <string>
#include <vector>

#include "apps/bench/ablation/rows.h"
#include "base/json.h"

namespace fathom::apps {

struct AblationOutcome {
  const AblationRow* row = nullptr;
  std::string why_failed;  // empty: it ran, and answered as it must
  json::Value measured;    // what `fathom bench engine --json` wrote; null: it did not run
  int num_answers = 0, num_equal = 0;  // token lists, and how many are those of the first row

  bool runs() const { return why_failed.empty(); }
};

// What all rows have in common.
struct AblationSetup {
  std::string model{}, device{}, commit{}, flags{};
  int input_len = 0, output_len = 0, query_tokens = 0, num_questions = 0;
  bool is_exact = false;  // float32: rows must have equal tokens
};

// How much less often than the first row's the answers of a row may be right that need not have equal tokens.
inline constexpr double kAccuracyMargin = 0.05;

// Compares each row with the first and says in why_failed what it may not do: have other tokens, or, where rounding
// differs, be right less often. Without a first row that ran nothing is compared, and each fails for that.
void judge(std::vector<AblationOutcome>& outcomes, bool is_exact);

std::string ablation_markdown(const AblationSetup& setup,
                              const std::vector<AblationOutcome>& outcomes);
std::string ablation_svg(const AblationSetup& setup, const std::vector<AblationOutcome>& outcomes);
json::Value ablation_json(const AblationSetup& setup, const std::vector<AblationOutcome>& outcomes);

}  // namespace fathom::apps
