#include "tests/ref/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fathom::ref {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

std::vector<int32_t> ranking(const std::vector<double>& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

std::vector<double> log_softmax(const std::vector<double>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const double logit : logits) total += std::exp(logit - max);
  std::vector<double> out;
  for (const double logit : logits) out.push_back(logit - max - std::log(total));
  return out;
}

std::vector<double> adjusted_logits(const SamplerRow& row) {
  std::vector<double> logits = row.logits;
  for (size_t id = 0; id < row.counts.size(); ++id) {
    const auto bits = static_cast<uint32_t>(row.counts[id]);
    const uint32_t times = bits & 0x7fffffffu;
    if (bits != 0) {
      logits[id] = logits[id] > 0 ? logits[id] / row.repetition : logits[id] * row.repetition;
    }
    logits[id] -= row.frequency * times + (times > 0 ? row.presence : 0);
  }
  for (const std::pair<int32_t, double>& entry : row.bias) {
    logits[static_cast<size_t>(entry.first)] += entry.second;
  }
  for (size_t id = 0; id < row.allowed.size(); ++id) {
    if (!row.allowed[id]) logits[id] = -kInfinity;
  }
  return logits;
}

Distribution restricted(const SamplerRow& row) {
  std::vector<double> logits = adjusted_logits(row);
  const std::vector<int32_t> order = ranking(logits);
  if (row.temperature == 0 || row.top_k == 1) return {.ids = {order[0]}, .probabilities = {1.0}};
  for (double& logit : logits) logit /= row.temperature;
  const std::vector<double> log_probabilities = log_softmax(logits);
  const auto p_of = [&](int32_t id) {
    return std::exp(log_probabilities[static_cast<size_t>(id)]);
  };
  const double best = p_of(order[0]);
  Distribution out;
  double sum = 0;
  for (const int32_t id : order) {
    const double p = p_of(id);
    const auto taken = static_cast<int32_t>(out.ids.size());
    if (taken > 0 && row.top_k > 0 && taken == row.top_k) break;
    if (taken > 0 && row.top_p < 1) out.margin = std::min(out.margin, std::fabs(sum - row.top_p));
    if (row.min_p > 0) out.margin = std::min(out.margin, std::fabs(p - row.min_p * best));
    if (taken > 0 && ((row.top_p < 1 && sum >= row.top_p) || p < row.min_p * best || p == 0)) break;
    out.ids.push_back(id);
    sum += p;
  }
  std::sort(out.ids.begin(), out.ids.end());
  for (const int32_t id : out.ids) out.probabilities.push_back(p_of(id) / sum);
  return out;
}

int32_t Distribution::draw(double u) const {
  double running = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    running += probabilities[i];
    if (running > u) return ids[i];
  }
  return ids.back();
}

bool Distribution::is_near_border(double u, double tolerance) const {
  if (margin < tolerance) return true;
  double running = 0;
  for (const double p : probabilities) {
    running += p;
    if (std::fabs(running - u) < tolerance) return true;
  }
  return false;
}

}  // namespace fathom::ref
