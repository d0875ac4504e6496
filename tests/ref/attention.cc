#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/ref/oracle.h"

namespace fathom::ref {

using tensor::DType;

HostTensor rms_norm(const HostTensor& x, const HostTensor& weight, double eps) {
  HostTensor y = x;
  for (int64_t row = 0; row < x.dim(0); ++row) {
    double squares = 0;
    for (int64_t i = 0; i < x.dim(1); ++i) squares += x.at(row, i) * x.at(row, i);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.dim(1)) + eps);
    for (int64_t i = 0; i < x.dim(1); ++i) y.at(row, i) = x.at(row, i) * factor * weight.at(i);
  }
  return y;
}

HostTensor rope_table(const HostTensor& positions, const HostTensor& inv_freq, double magnitude) {
  const int64_t pairs = inv_freq.dim(0);
  HostTensor table(DType::kF32, {positions.dim(0), 2 * pairs});
  for (int64_t t = 0; t < positions.dim(0); ++t) {
    for (int64_t j = 0; j < pairs; ++j) {
      const double angle = round_to(DType::kF32, positions.at(t) * inv_freq.at(j));
      table.at(t, j) = std::cos(angle) * magnitude;
      table.at(t, pairs + j) = std::sin(angle) * magnitude;
    }
  }
  return table;
}

HostTensor rope(const HostTensor& x, const HostTensor& table) {
  HostTensor y = x;
  const int64_t pairs = x.dim(2) / 2;
  for (int64_t t = 0; t < x.dim(0); ++t) {
    for (int64_t h = 0; h < x.dim(1); ++h) {
      for (int64_t j = 0; j < pairs; ++j) {
        const double a = x.at(t, h, 2 * j), b = x.at(t, h, 2 * j + 1);
        const double cosine = table.at(t, j), sine = table.at(t, pairs + j);
        y.at(t, h, 2 * j) = a * cosine - b * sine;
        y.at(t, h, 2 * j + 1) = b * cosine + a * sine;
      }
    }
  }
  return y;
}

HostTensor kv_rows(const HostTensor& kv_a, const HostTensor& weight, double eps,
                   const HostTensor& table) {
  const int64_t tokens = kv_a.dim(0), rank = weight.dim(0), rope_dim = table.dim(1);
  const HostTensor latent = rms_norm(kv_a.columns(0, rank), weight, eps);
  const HostTensor k_rope =
      rope(kv_a.columns(rank, rank + rope_dim).reshaped({tokens, 1, rope_dim}), table);
  HostTensor rows = kv_a;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < rank; ++i) rows.at(t, i) = latent.at(t, i);
    for (int64_t i = 0; i < rope_dim; ++i) rows.at(t, rank + i) = k_rope.at(t, 0, i);
  }
  return rows;
}

const double* vector_of(const HostTensor& x, int64_t i, int64_t j) {
  return &x.values[static_cast<size_t>((i * x.shape[1] + j) * x.shape[2])];
}

// Rows that a query does not see are left out, whatever they hold.
HostTensor attention(const HostTensor& q, const HostTensor& keys, const HostTensor& values,
                     double scale, const Sees& sees) {
  const int64_t queries = q.dim(0), heads = q.dim(1), dk = q.dim(2), dv = values.dim(2);
  HostTensor out(DType::kF32, {queries, heads, dv});
  std::vector<int64_t> seen;
  std::vector<double> weights;
  for (int64_t query = 0; query < queries; ++query) {
    seen.clear();
    for (int64_t row = 0; row < keys.dim(0); ++row)
      if (sees(query, row)) seen.push_back(row);
    for (int64_t head = 0; head < heads && !seen.empty(); ++head) {
      const int64_t key_head = keys.dim(1) == 1 ? 0 : head;
      weights.clear();
      for (const int64_t row : seen) {
        const double *const a = vector_of(q, query, head), *const b =
                                                               vector_of(keys, row, key_head);
        double score = 0;
        for (int64_t i = 0; i < dk; ++i) score += a[i] * b[i] * scale;
        weights.push_back(score);
      }
      const double max = *std::max_element(weights.begin(), weights.end());
      double total = 0;
      for (double& w : weights) total += (w = std::exp(w - max));
      double* const sum = &out.at(query, head, 0);
      for (size_t j = 0; j < seen.size(); ++j) {
        const double w = weights[j] / total, *const v = vector_of(values, seen[j], key_head);
        for (int64_t i = 0; i < dv; ++i) sum[i] += w * v[i];
      }
    }
  }
  return out;
}

}  // namespace fathom::ref
