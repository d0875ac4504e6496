#include "tests/ref/index.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fathom::ref {
namespace {

using tensor::DType;

// One row of the last axis, as it is cached.
class Row {
 public:
  Row(const HostTensor& from, int64_t row, int64_t dim) : values_(static_cast<size_t>(dim)) {
    for (int64_t i = 0; i < dim; ++i) values_[static_cast<size_t>(i)] = from.at(row * dim + i);
  }

  void normalise(const HostTensor& weight, const HostTensor& bias, double eps) {
    const auto n = static_cast<double>(values_.size());
    double mean = 0, variance = 0;
    for (const double v : values_) mean += v / n;
    for (const double v : values_) variance += (v - mean) * (v - mean) / n;
    for (size_t i = 0; i < values_.size(); ++i)
      values_[i] =
          (values_[i] - mean) / std::sqrt(variance + eps) * weight.at(static_cast<int64_t>(i)) +
          bias.at(static_cast<int64_t>(i));
  }

  void rotate(const HostTensor& table, int64_t token) {
    const auto pairs = static_cast<size_t>(table.dim(1)) / 2;
    for (size_t j = 0; j < pairs; ++j) {
      const double cosine = table.at(token, static_cast<int64_t>(j));
      const double sine = table.at(token, static_cast<int64_t>(j + pairs));
      const double a = values_[j], b = values_[j + pairs];
      values_[j] = a * cosine - b * sine;
      values_[j + pairs] = b * cosine + a * sine;
    }
  }

  // Entry (i, j) of Sylvester's matrix is -1 to the number of ones that i and j share.
  void transform() {
    std::vector<double> out(values_.size());
    for (size_t i = 0; i < out.size(); ++i) {
      for (size_t j = 0; j < out.size(); ++j)
        out[i] += (__builtin_popcountll(i & j) % 2 == 0 ? values_[j] : -values_[j]);
      out[i] /= std::sqrt(static_cast<double>(out.size()));
    }
    values_ = out;
  }

  // The published rule.
  double quantise() {
    double amax = 1e-4;
    for (const double v : values_) amax = std::max(amax, std::abs(v));
    const double scale = std::exp2(std::ceil(std::log2(amax / 448)));
    for (double& v : values_) v = round_to(DType::kF8E4M3, std::clamp(v / scale, -448.0, 448.0));
    return scale;
  }

  void write(HostTensor& to, int64_t row) const {
    for (size_t i = 0; i < values_.size(); ++i)
      to.at(row * static_cast<int64_t>(values_.size()) + static_cast<int64_t>(i)) = values_[i];
  }

 private:
  std::vector<double> values_;
};

// NaN first, then larger ones.
bool is_better(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return a > b;
}

}  // namespace

IndexRows index_keys(const HostTensor& k, const HostTensor& weight, const HostTensor& bias,
                     double eps, const HostTensor& table, bool f8) {
  IndexRows keys{.values = k, .scale = HostTensor(DType::kF32, {k.dim(0)}, 1)};
  if (f8) keys.values.dtype = DType::kF8E4M3;
  for (int64_t token = 0; token < k.dim(0); ++token) {
    Row row(k, token, k.dim(1));
    row.normalise(weight, bias, eps);
    row.rotate(table, token);
    if (f8) {
      row.transform();
      keys.scale.at(token) = row.quantise();
    }
    row.write(keys.values, token);
  }
  return keys;
}

IndexRows index_queries(const HostTensor& q, const HostTensor& table, bool f8) {
  const int64_t heads = q.dim(1);
  IndexRows queries{.values = q, .scale = HostTensor(DType::kF32, {q.dim(0), heads}, 1)};
  if (f8) queries.values.dtype = DType::kF8E4M3;
  for (int64_t i = 0; i < q.dim(0) * heads; ++i) {
    Row row(q, i, q.dim(2));
    row.rotate(table, i / heads);
    if (f8) {
      row.transform();
      queries.scale.at(i) = row.quantise();
    }
    row.write(queries.values, i);
  }
  return queries;
}

HostTensor index_weights(const HostTensor& w, const IndexRows& queries, int64_t dim) {
  HostTensor weights = w;
  const auto scale = std::sqrt(static_cast<double>(w.dim(1)) * static_cast<double>(dim));
  for (size_t i = 0; i < weights.values.size(); ++i)
    weights.values[i] = w.values[i] / scale * queries.scale.values[i];
  return weights;
}

std::vector<double> index_scores(const HostTensor& q, const HostTensor& weights,
                                 const IndexRows& keys) {
  const int64_t rows = keys.values.dim(0), dim = keys.values.dim(1);
  std::vector<double> scores(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t head = 0; head < q.dim(0); ++head) {
      double product = 0;
      for (int64_t i = 0; i < dim; ++i) product += q.at(head, i) * keys.values.at(row, i);
      scores[static_cast<size_t>(row)] +=
          weights.at(head) * std::max(product, 0.0) * keys.scale.at(row);
    }
  return scores;
}

std::vector<int64_t> top_rows(const std::vector<double>& scores, int64_t topk,
                              const std::function<bool(int64_t row)>& sees) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < static_cast<int64_t>(scores.size()); ++row)
    if (sees(row)) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
    return is_better(scores[static_cast<size_t>(a)], scores[static_cast<size_t>(b)]);
  });
  if (static_cast<int64_t>(rows.size()) > topk) rows.resize(static_cast<size_t>(topk));
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace fathom::ref
