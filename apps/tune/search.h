#pragma once
// The search of `fathom tune` for one shape and some numbers of rows that must be divided alike: candidates that a cost
// model thinks well of are timed briefly, the best are timed again in turn with the backend's own rule, and what is not
// faster by more than noise is left out.
//
//   SearchTask<MatrixChoice> task{.rows = {16, 64, 128}, .candidates = candidates};
//   const SearchResult<MatrixChoice> result = search(task, limits, measure);
//
// What measures is a function, so that tests need no device. Pure otherwise.

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "apps/common/figures.h"
#include "tuned/table.h"

namespace fathom::apps {

template <class Choice>
struct TuneCandidate {
  Choice choice{};
  double predicted = 0;  // by the cost model, in any unit: the smaller, the better
};

template <class Choice>
struct SearchTask {
  std::vector<int64_t> rows;  // of one class where the order of sums depends on the choice
  std::vector<TuneCandidate<Choice>> candidates;  // without the rule
};

struct SearchLimits {
  double worst_predicted = 1.6;  // times the best
  size_t most_candidates = 12;   // that are timed
  size_t best = 3;               // that are timed again
  int brief_samples = 3, samples = 11;
  double worth = 0.98;         // of the rule's time, in the mean
  double never_above = 1.005;  // of the rule's time, for any number of rows
  std::function<bool()> is_late = [] { return false; };  // asked before each candidate
};

// Seconds of a call with so many rows, some samples of it.
template <class Choice>
using MeasureChoice =
    std::function<std::vector<double>(const Choice& choice, int64_t rows, int num_samples)>;

template <class Choice>
struct SearchResult {
  std::vector<tuned::Entry<Choice>>
      entries;  // a row each; the rule in all of them: nothing was better
  size_t num_timed = 0, num_pruned = 0;
  bool was_late = false;

  bool is_better() const {
    return std::any_of(entries.begin(), entries.end(),
                       [](const auto& entry) { return !(entry.choice == Choice{}); });
  }
};

// The most promising first.
template <class Choice>
std::vector<Choice> pruned(const SearchTask<Choice>& task, const SearchLimits& limits) {
  std::vector<TuneCandidate<Choice>> candidates = task.candidates;
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.predicted < b.predicted; });
  std::vector<Choice> kept;
  for (const TuneCandidate<Choice>& candidate : candidates) {
    if (kept.size() >= limits.most_candidates ||
        candidate.predicted > limits.worst_predicted * candidates.front().predicted)
      break;
    kept.push_back(candidate.choice);
  }
  return kept;
}

namespace tune {

// Medians of all rows of a task, for one choice for each.
template <class Choice>
struct Timed {
  std::vector<Choice> choices;  // of each number of rows, all with sums of one order
  std::vector<double> seconds;
};

// The mean of the ratios, geometric.
inline double mean_ratio(const std::vector<double>& seconds, const std::vector<double>& others) {
  double logs = 0;
  for (size_t i = 0; i < seconds.size(); ++i) logs += std::log(seconds[i] / others[i]);
  return std::exp(logs / static_cast<double>(std::max<size_t>(seconds.size(), 1)));
}

// `timed` joins those that order sums as it does: for each number of rows the better of both stays.
template <class Choice>
void join(Timed<Choice> timed, std::vector<Timed<Choice>>& all) {
  for (Timed<Choice>& other : all) {
    if (!tuned::has_same_sums(other.choices.front(), timed.choices.front())) continue;
    for (size_t i = 0; i < timed.seconds.size(); ++i) {
      if (timed.seconds[i] >= other.seconds[i]) continue;
      other.seconds[i] = timed.seconds[i];
      other.choices[i] = timed.choices[i];
    }
    return;
  }
  all.push_back(std::move(timed));
}

}  // namespace tune

// Both in turn, so that what drifts drifts for both: medians of the chosen and of the rule.
template <class Choice>
tuned::Entry<Choice> time_again(const Choice& choice, int64_t rows, int num_samples,
                                const MeasureChoice<Choice>& measure) {
  std::vector<double> chosen, by_rule;
  for (int i = 0; i < num_samples; ++i) {
    for (const double seconds : measure(Choice{}, rows, 1)) by_rule.push_back(seconds);
    for (const double seconds : measure(choice, rows, 1)) chosen.push_back(seconds);
  }
  return {.rows = rows,
          .choice = choice,
          .us = median(chosen) * 1e6,
          .default_us = median(by_rule) * 1e6};
}

// Of the rule's time, in the geometric mean.
template <class Choice>
double ratio_to_rule(const std::vector<tuned::Entry<Choice>>& entries) {
  std::vector<double> us, default_us;
  for (const tuned::Entry<Choice>& entry : entries) {
    us.push_back(entry.us);
    default_us.push_back(entry.default_us);
  }
  return tune::mean_ratio(us, default_us);
}

// Whether entries of one task are faster than the rule together, and none slower.
template <class Choice>
bool is_worth(const std::vector<tuned::Entry<Choice>>& entries, const SearchLimits& limits) {
  const bool none_slower = std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.us <= limits.never_above * entry.default_us;
  });
  return none_slower && !entries.empty() && ratio_to_rule(entries) <= limits.worth;
}

template <class Choice>
std::vector<tuned::Entry<Choice>> rule_entries(const std::vector<int64_t>& rows) {
  std::vector<tuned::Entry<Choice>> entries;
  for (const int64_t count : rows) entries.push_back({.rows = count});
  return entries;
}

namespace tune {

// Brief times of what pruning left, joined by the order of their sums, the best first.
template <class Choice>
std::vector<Timed<Choice>> time_briefly(const SearchTask<Choice>& task, const SearchLimits& limits,
                                        const MeasureChoice<Choice>& measure,
                                        SearchResult<Choice>& result) {
  constexpr double kHopeless = 1.3;  // times the rule, for the first number of rows
  std::vector<double> by_rule;
  for (const int64_t rows : task.rows)
    by_rule.push_back(median(measure(Choice{}, rows, limits.brief_samples)));
  const std::vector<Choice> candidates = pruned(task, limits);
  result.num_pruned = task.candidates.size() - candidates.size();
  std::vector<Timed<Choice>> all;
  for (const Choice& choice : candidates) {
    if (limits.is_late()) {
      result.was_late = true;
      break;
    }
    ++result.num_timed;
    Timed<Choice> timed;
    for (const int64_t rows : task.rows) {
      timed.choices.push_back(choice);
      timed.seconds.push_back(median(measure(choice, rows, limits.brief_samples)));
      if (timed.seconds.front() > kHopeless * by_rule.front()) break;
    }
    if (timed.seconds.size() == task.rows.size()) join(std::move(timed), all);
  }
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return mean_ratio(a.seconds, by_rule) < mean_ratio(b.seconds, by_rule);
  });
  return all;
}

}  // namespace tune

template <class Choice>
SearchResult<Choice> search(const SearchTask<Choice>& task, const SearchLimits& limits,
                            const MeasureChoice<Choice>& measure) {
  SearchResult<Choice> result;
  const std::vector<tune::Timed<Choice>> all = tune::time_briefly(task, limits, measure, result);
  double best = 1;
  for (size_t i = 0; i < std::min(limits.best, all.size()); ++i) {
    if (limits.is_late()) {
      result.was_late = true;
      break;
    }
    std::vector<tuned::Entry<Choice>> entries;
    for (size_t row = 0; row < task.rows.size(); ++row)
      entries.push_back(time_again(all[i].choices[row], task.rows[row], limits.samples, measure));
    const double ratio = ratio_to_rule(entries);
    if (!is_worth(entries, limits) || ratio >= best) continue;
    best = ratio;
    result.entries = std::move(entries);
  }
  if (result.entries.empty()) result.entries = rule_entries<Choice>(task.rows);
  return result;
}

}  // namespace fathom::apps
