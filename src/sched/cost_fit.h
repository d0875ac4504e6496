#pragma once
// CostFit: what each of N kinds of work costs, learnt from measurements of their sums.
//
//   CostFit<3> fit({.prior = {4e5, 1, 1}});               // of one unit of each kind, relative to each other
//   fit.observe({1, 2e9, 5e8}, /*seconds=*/0.05, /*scale=*/0.06);
//   double seconds = fit.predict({1, 1e9, 3e9});
//
// Least squares of relative errors with weights that halve every kHalfLife observations, and no cost below 0. What was
// measured too little to tell costs what the prior says, times one factor that all kinds share. So one
// observation is enough to predict kinds of work that it did not have, and the same calls give the same costs.
// An outlier counts little: upwards because errors are relative to the measured time, downwards because they are to
// the predicted one if that is longer (`scale`, which is the caller's, since the fit may be of a part of the step).
// Plain data of one thread.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace fathom::sched {

template <size_t N>
class CostFit {
 public:
  using Vector = std::array<double, N>;

  explicit CostFit(const Vector& prior) : unit_(prior) {}

  int64_t num_observed() const { return num_observed_; }
  // Seconds; 0 before the first observation.
  double predict(const Vector& work) const {
    double seconds = 0;
    for (size_t i = 0; i < N; ++i) seconds += cost_[i] * work[i];
    return seconds;
  }
  // The same, with up to kCaution times the cost for kinds of work that were hardly measured lately: for plans that
  // must not take longer.
  double predict_at_most(const Vector& work) const {
    double seconds = 0;
    for (size_t i = 0; i < N; ++i) {
      const double unknown = kPriorWeight / (kPriorWeight + gram_[i][i]);
      seconds += (1 + (kCaution - 1) * unknown) * cost_[i] * work[i];
    }
    return seconds;
  }
  // REQUIRES: scale > 0.
  void observe(const Vector& work, double seconds, double scale) {
    if (num_observed_ == 0 && !fix_units(work, seconds)) return;
    ++num_observed_;
    Vector row;
    for (size_t i = 0; i < N; ++i) row[i] = work[i] * unit_[i] / scale;
    const double target = seconds / scale;
    for (size_t i = 0; i < N; ++i) {
      for (size_t j = 0; j < N; ++j) gram_[i][j] = kDecay * gram_[i][j] + row[i] * row[j];
      moment_[i] = kDecay * moment_[i] + row[i] * target;
    }
    solve();
  }

 private:
  static constexpr int kHalfLife = 48, kSweeps = 8;
  static constexpr double kDecay = 0.98566;  // 2^(-1 / kHalfLife)
  // The prior counts as much as this part of one step that does nothing but the kind of work in question.
  static constexpr double kPriorWeight = 0.02;
  static constexpr double kCaution = 4;

  // From here on the costs of the prior sum up to the first time that was measured, so factors are near 1.
  bool fix_units(const Vector& work, double seconds) {
    double sum = 0;
    for (size_t i = 0; i < N; ++i) sum += unit_[i] * work[i];
    if (!(sum > 0) || !(seconds > 0)) return false;
    for (double& unit : unit_) unit *= seconds / sum;
    factor_.fill(1);
    return true;
  }

  // Gauss-Seidel from the last solution; the prior makes the matrix positive definite.
  void solve() {
    double gram_sum = 0, moment_sum = 0;
    for (size_t i = 0; i < N; ++i) {
      moment_sum += moment_[i];
      for (size_t j = 0; j < N; ++j) gram_sum += gram_[i][j];
    }
    const double shared_factor = gram_sum > 0 ? moment_sum / gram_sum : 1;
    for (int sweep = 0; sweep < kSweeps; ++sweep)
      for (size_t i = 0; i < N; ++i) {
        double rest = moment_[i] + kPriorWeight * shared_factor;
        for (size_t j = 0; j < N; ++j)
          if (j != i) rest -= gram_[i][j] * factor_[j];
        factor_[i] = std::max(0.0, rest / (gram_[i][i] + kPriorWeight));
      }
    for (size_t i = 0; i < N; ++i) cost_[i] = factor_[i] * unit_[i];
  }

  Vector unit_;      // seconds of the prior
  Vector factor_{};  // of unit_, as fitted
  Vector cost_{};    // their product
  std::array<Vector, N> gram_{};
  Vector moment_{};
  int64_t num_observed_ = 0;
};

}  // namespace fathom::sched
