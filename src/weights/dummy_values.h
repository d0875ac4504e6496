#pragma once
// The values of dummy weights: tables of random numbers, and which of them goes where. Host and device copy the same
// tables by the same rule (ops/fill_from_table.h), so both hold the same bits.
//
//   const DummyValues values(seed, parameters);
//   for (const ops::FillFromTableArgs& fill : values.fills()) copy(fill);       // data and scales of all parameters
//
// Owns the tables, in host memory. Immutable, thread-safe.

#include <cstdint>
#include <vector>

#include "ops/fill_from_table.h"
#include "weights/parameter.h"

namespace fathom::weights {

class DummyValues {
 public:
  // REQUIRES: parameters are well formed (read_plan.h).
  DummyValues(uint64_t seed, const std::vector<Parameter>& parameters);
  DummyValues(const DummyValues&) = delete;
  DummyValues& operator=(const DummyValues&) = delete;

  const std::vector<ops::FillFromTableArgs>& fills() const { return fills_; }

 private:
  // Of random values with a standard deviation, or all the same. Those of f8 and i8 take the whole range.
  struct Kind {
    tensor::DType dtype;
    float stddev = 0, constant = 0;
    bool operator==(const Kind&) const = default;
  };
  struct Table {
    Kind kind;
    std::vector<char> bytes;
  };

  void add(const tensor::Tensor& out, const Kind& kind, const Parameter& parameter);
  void add_zero_points(const Parameter& parameter, float scale);
  tensor::Tensor table(const Kind& kind);

  const uint64_t seed_;
  const std::vector<float> normal_;
  std::vector<Table> tables_;
  std::vector<ops::FillFromTableArgs> fills_;
};

}  // namespace fathom::weights
