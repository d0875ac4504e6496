#pragma once
// The choices that were measured to be faster than the backend's rules, for one device: those that ship with the
// program and those of a directory (tuned/file.h), by shape and number of rows.
//
//   set_table(std::move(table));                                  // at the start of the program, before streams
//   const MatrixChoice choice = choose({DType::kF8E4M3, 1536, 1536}, /*rows=*/64);
//   if (choice.kernel == MatrixKernel::kBatch) ...;               // else the backend's rule
//
// A number of rows that was not measured goes with the nearest, in ratio, of its class. choose() is thread-safe but for
// set_table(), which comes first.

#include <string>
#include <vector>

#include "tuned/choice.h"

namespace fathom::tuned {

template <class Choice>
struct Entry {
  int64_t rows = 0;
  Choice choice{};
  double us = 0, default_us = 0;  // as measured; 0: not told
};

// The choices of one shape, rows rising.
template <class Shape, class Choice>
struct ShapeChoices {
  std::string device;  // "NVIDIA_H200"
  Shape shape{};
  std::vector<Entry<Choice>> entries;
  std::string from;  // "shipped", or a path
};
using MatrixChoices = ShapeChoices<MatrixShape, MatrixChoice>;
using ExpertChoices = ShapeChoices<ExpertShape, ExpertChoice>;

struct Table {
  std::vector<MatrixChoices> matrices;
  std::vector<ExpertChoices> experts;

  // Null: there are none.
  const MatrixChoices* find(const MatrixShape& shape) const;
  const ExpertChoices* find(const ExpertShape& shape) const;
  // In place of what there is of the same shape.
  void put(MatrixChoices choices);
  void put(ExpertChoices choices);
};

// For the rest of the process. Called before there are streams, or by who tunes, between calls of one thread.
void set_table(Table table);
const Table& table();

// Null: the backend's rule.
const Entry<MatrixChoice>* find_entry(const MatrixShape& shape, int64_t rows);
// kDefault in it: the backend's rule.
MatrixChoice choose(const MatrixShape& shape, int64_t rows);
ExpertChoice choose(const ExpertShape& shape, int64_t rows);

}  // namespace fathom::tuned
