#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/ref/oracle.h"

namespace fathom::ref {

using ops::GateKind;
using tensor::DType;

namespace {

// Indices by falling value, ties by lower index.
std::vector<size_t> ranked_experts(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  return order;
}

// Of the first `count` in this order, and of the last of them to the one behind it.
double smallest_margin(const std::vector<double>& falling, size_t count) {
  double margin = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < count && i + 1 < falling.size(); ++i)
    margin = std::min(margin, (falling[i] - falling[i + 1]) / std::fabs(falling[i]));
  return margin;
}

std::vector<bool> allowed_experts(const std::vector<double>& choices, const ops::MoeGateArgs& rules,
                                  double& margin) {
  if (rules.kind == GateKind::kSoftmaxGreedy) return std::vector<bool>(choices.size(), true);
  const size_t groups = static_cast<size_t>(rules.n_group), size = choices.size() / groups;
  std::vector<double> group_scores;
  for (size_t g = 0; g < groups; ++g) {
    const auto begin = choices.begin() + static_cast<std::ptrdiff_t>(g * size);
    std::vector<double> group(begin, begin + static_cast<std::ptrdiff_t>(size));
    std::sort(group.rbegin(), group.rend());
    double score = group[0];
    if (rules.kind == GateKind::kSigmoidNoAux && size > 1) score += group[1];
    group_scores.push_back(score);
  }
  std::vector<bool> allowed(choices.size(), false);
  const std::vector<size_t> order = ranked_experts(group_scores);
  std::vector<double> falling = group_scores;
  std::sort(falling.rbegin(), falling.rend());
  // In which order groups are taken is nothing that anybody sees.
  const auto last = static_cast<size_t>(rules.topk_group) - 1;
  margin = std::min(
      margin,
      smallest_margin({falling.begin() + static_cast<std::ptrdiff_t>(last), falling.end()}, 1));
  for (size_t i = 0; i < static_cast<size_t>(rules.topk_group); ++i) {
    for (size_t e = order[i] * size; e < (order[i] + 1) * size; ++e) allowed[e] = true;
  }
  return allowed;
}

}  // namespace

GateChoice moe_gate(const HostTensor& x, const HostTensor& weight, const HostTensor& bias,
                    const ops::MoeGateArgs& rules, int64_t num_experts_per_tok) {
  const int64_t tokens = x.dim(0), experts = weight.dim(0);
  GateChoice out{.ids = HostTensor(DType::kI32, {tokens, num_experts_per_tok}),
                 .weights = HostTensor(DType::kF32, {tokens, num_experts_per_tok}),
                 .margin = std::numeric_limits<double>::infinity()};
  const HostTensor logits = linear(x, {.data = weight, .scale = {}});
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> scores, choices;
    double total = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const double logit = logits.at(t, e);
      scores.push_back(rules.kind == GateKind::kSigmoidNoAux ? 1 / (1 + std::exp(-logit))
                                                             : std::exp(logit));
      total += scores.back();
    }
    for (int64_t e = 0; e < experts; ++e) {
      double& score = scores[static_cast<size_t>(e)];
      if (rules.kind != GateKind::kSigmoidNoAux) score /= total;
      choices.push_back(rules.kind == GateKind::kSigmoidNoAux ? score + bias.at(e) : score);
    }
    const std::vector<bool> allowed = allowed_experts(choices, rules, out.margin);
    std::vector<double> falling;
    double sum = 0;
    int64_t j = 0;
    for (const size_t e : ranked_experts(choices)) {
      if (!allowed[e]) continue;
      falling.push_back(choices[e]);
      if (j == num_experts_per_tok) continue;
      out.ids.at(t, j) = static_cast<double>(e);
      out.weights.at(t, j) = scores[e];
      sum += scores[e];
      ++j;
    }
    out.margin =
        std::min(out.margin, smallest_margin(falling, static_cast<size_t>(num_experts_per_tok)));
    for (j = 0; j < num_experts_per_tok; ++j) {
      if (rules.norm_topk_prob) out.weights.at(t, j) /= sum + 1e-20;
      out.weights.at(t, j) *= static_cast<double>(rules.routed_scaling_factor);
    }
  }
  return out;
}

}  // namespace fathom::ref
