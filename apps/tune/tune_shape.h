#pragma once
// One shape from its tasks to its file: searches every task, times what came out once more when all are done, and keeps
// what still is faster.
//
//   ShapeOutcome<Choice> outcome = tune_shape(tasks, limits, measure);
//   if (outcome.is_better()) write(outcome.entries);
//
// Pure but for `measure`.

#include <utility>

#include "apps/tune/search.h"

namespace fathom::apps {

template <class Choice>
struct ShapeOutcome {
  std::vector<tuned::Entry<Choice>>
      entries;  // rows rising; without classes of rows where nothing was better
  size_t num_timed = 0, num_pruned = 0;
  bool was_late = false;

  bool is_better() const { return !entries.empty(); }
};

// The numbers of rows where something is chosen.
template <class Choice>
size_t num_chosen(const std::vector<tuned::Entry<Choice>>& entries) {
  return static_cast<size_t>(std::count_if(entries.begin(), entries.end(), [](const auto& entry) {
    return !(entry.choice == Choice{});
  }));
}

// What is still worth it when it is timed again; the rule's entries otherwise.
template <class Choice>
std::vector<tuned::Entry<Choice>> hold(const std::vector<tuned::Entry<Choice>>& entries,
                                       const SearchLimits& limits,
                                       const MeasureChoice<Choice>& measure) {
  std::vector<tuned::Entry<Choice>> again;
  std::vector<int64_t> rows;
  for (const tuned::Entry<Choice>& entry : entries) {
    again.push_back(time_again(entry.choice, entry.rows, limits.samples, measure));
    rows.push_back(entry.rows);
  }
  return is_worth(again, limits) ? again : rule_entries<Choice>(rows);
}

// Entries of the rule stay beside others of their class alone: there they say that these do not reach so far.
template <class Shape, class Choice>
std::vector<tuned::Entry<Choice>> without_idle_classes(
    const Shape& shape, const std::vector<tuned::Entry<Choice>>& entries) {
  std::vector<tuned::Entry<Choice>> kept;
  for (const tuned::Entry<Choice>& entry : entries) {
    const bool counts = std::any_of(entries.begin(), entries.end(), [&](const auto& other) {
      return tuned::is_one_class(shape, other.rows, entry.rows) && !(other.choice == Choice{});
    });
    if (counts) kept.push_back(entry);
  }
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.rows < b.rows; });
  return kept;
}

template <class Shape, class Choice>
ShapeOutcome<Choice> tune_shape(const Shape& shape, const std::vector<SearchTask<Choice>>& tasks,
                                const SearchLimits& limits, const MeasureChoice<Choice>& measure) {
  ShapeOutcome<Choice> outcome;
  std::vector<SearchResult<Choice>> results;
  for (const SearchTask<Choice>& task : tasks) {
    results.push_back(search(task, limits, measure));
    outcome.num_timed += results.back().num_timed;
    outcome.num_pruned += results.back().num_pruned;
    outcome.was_late = outcome.was_late || results.back().was_late;
  }
  std::vector<tuned::Entry<Choice>> entries;
  for (const SearchResult<Choice>& result : results)
    for (auto& entry : result.is_better() ? hold(result.entries, limits, measure) : result.entries)
      entries.push_back(entry);
  outcome.entries = without_idle_classes(shape, entries);
  return outcome;
}

}  // namespace fathom::apps
