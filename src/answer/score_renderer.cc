#include "answer/score_renderer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "answer/pieces/json_text.h"
#include "answer/usage.h"
#include "base/check.h"

namespace fathom::answer {
namespace {

// Probabilities of the labels; with softmax their shares among each other.
std::vector<double> scores_of(std::span<const Choice> labels, bool apply_softmax) {
  std::vector<double> scores;
  for (const Choice& choice : labels) {
    const std::vector<core::SampledToken>& tokens = choice.news.tokens;
    // None: the request was aborted.
    scores.push_back(tokens.empty() ? std::numeric_limits<double>::quiet_NaN()
                                    : double{tokens.front().logprob});
  }
  const double most = apply_softmax ? *std::ranges::max_element(scores) : 0;
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  if (!apply_softmax) return scores;
  for (double& score : scores) score /= sum;
  return scores;
}

class ScoreRenderer : public Renderer {
 public:
  explicit ScoreRenderer(api::ShownForm shown) : Renderer(std::move(shown)) {}

  void write_news(Choice&, std::string&) override { FATHOM_CHECK(false, "scores are no stream"); }
  void write_end(std::span<const Choice>, std::string&) override {
    FATHOM_CHECK(false, "scores are no stream");
  }

  std::string body(std::span<Choice> choices) override {
    const auto num_labels = static_cast<size_t>(form().choices_per_item);
    std::string out = R"({"scores":[)";
    for (size_t begin = 0; begin < choices.size(); begin += num_labels) {
      out += begin > 0 ? ",[" : "[";
      append_scores(out, scores_of(choices.subspan(begin, num_labels), form().apply_softmax));
      out += ']';
    }
    out += R"(],"model":)";
    append_json(out, form().model);
    out += R"(,"usage":)";
    // The labels are asked for, not written.
    ChoiceCounts usage = total_usage(choices, form().choices_per_item);
    usage.completion_tokens = 0;
    append_usage(out, usage);
    return out + R"(,"object":"scoring"})";
  }

 private:
  static void append_scores(std::string& out, const std::vector<double>& scores) {
    for (size_t i = 0; i < scores.size(); ++i) {
      if (i > 0) out += ',';
      append_json(out, static_cast<float>(scores[i]));
    }
  }
};

}  // namespace

std::unique_ptr<Renderer> make_score_renderer(api::ShownForm form) {
  return std::make_unique<ScoreRenderer>(std::move(form));
}

}  // namespace fathom::answer
