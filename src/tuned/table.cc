#include "tuned/table.h"

#include <algorithm>

namespace fathom::tuned {
namespace {

Table current;

template <class List, class Shape>
auto lower_bound_of(List& list, const Shape& shape) {
  return std::lower_bound(list.begin(), list.end(), shape,
                          [](const auto& one, const Shape& wanted) { return one.shape < wanted; });
}

template <class List, class Shape>
auto* find_in(const List& list, const Shape& shape) {
  const auto at = lower_bound_of(list, shape);
  return at != list.end() && at->shape == shape ? &*at : nullptr;
}

template <class List, class Choices>
void put_in(List& list, Choices choices) {
  const auto at = lower_bound_of(list, choices.shape);
  if (at != list.end() && at->shape == choices.shape) {
    *at = std::move(choices);
  } else {
    list.insert(at, std::move(choices));
  }
}

// The nearest in ratio, of the class of `rows`; of two as near, the smaller.
template <class Choices>
auto* nearest(const Choices* choices, int64_t rows) {
  const decltype(choices->entries.data()) none = nullptr;
  auto* best = none;
  if (choices == nullptr) return best;
  const auto ratio = [rows](int64_t other) {
    const auto a = static_cast<double>(rows), b = static_cast<double>(other);
    return a < b ? b / a : a / b;
  };
  for (const auto& entry : choices->entries) {
    if (!is_one_class(choices->shape, entry.rows, rows)) continue;
    if (best == nullptr || ratio(entry.rows) < ratio(best->rows)) best = &entry;
  }
  return best;
}

}  // namespace

const MatrixChoices* Table::find(const MatrixShape& shape) const {
  return find_in(matrices, shape);
}
const ExpertChoices* Table::find(const ExpertShape& shape) const { return find_in(experts, shape); }
void Table::put(MatrixChoices choices) { put_in(matrices, std::move(choices)); }
void Table::put(ExpertChoices choices) { put_in(experts, std::move(choices)); }

void set_table(Table table) { current = std::move(table); }
const Table& table() { return current; }

const Entry<MatrixChoice>* find_entry(const MatrixShape& shape, int64_t rows) {
  if (current.matrices.empty()) return nullptr;
  const Entry<MatrixChoice>* const entry = nearest(current.find(shape), rows);
  return entry != nullptr && entry->choice.kernel != MatrixKernel::kDefault ? entry : nullptr;
}

MatrixChoice choose(const MatrixShape& shape, int64_t rows) {
  const Entry<MatrixChoice>* const entry = find_entry(shape, rows);
  return entry != nullptr ? entry->choice : MatrixChoice{};
}

ExpertChoice choose(const ExpertShape& shape, int64_t rows) {
  if (current.experts.empty()) return {};
  const Entry<ExpertChoice>* const entry = nearest(current.find(shape), rows);
  // One that was measured in one slab says nothing of several.
  if (entry == nullptr || (entry->choice.kernel == ExpertKernel::kWide && rows > kMaxExpertSlab))
    return {};
  return entry->choice;
}

}  // namespace fathom::tuned
