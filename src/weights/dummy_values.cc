#include "weights/dummy_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>

#include "base/rng.h"
#include "weights/convert.h"

namespace fathom::weights {
namespace {

using tensor::DType, tensor::Tensor;

constexpr int64_t kTableElements = 1 << 17;

// Normal values of standard deviation 1 (Box and Muller).
std::vector<float> normal_table(uint64_t seed) {
  std::vector<float> table(kTableElements);
  for (int64_t i = 0; i < kTableElements; i += 2) {
    const std::array<uint32_t, 4> bits = philox(seed, 0, static_cast<uint64_t>(i));
    const double radius = std::sqrt(-2 * std::log(1.0 - uniform(bits[0])));
    const double angle = 2 * std::numbers::pi * uniform(bits[1]);
    table[static_cast<size_t>(i)] = static_cast<float>(radius * std::cos(angle));
    table[static_cast<size_t>(i) + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return table;
}

// Every finite f8 pattern is as likely as any other, which covers the whole range.
void make_f8_table(uint64_t seed, char* table) {
  for (int64_t i = 0; i < kTableElements; ++i) {
    const uint32_t bits = philox(seed, 1, static_cast<uint64_t>(i))[0];
    const uint32_t magnitude = (bits >> 8) % 0x7f;  // 0x7f is NaN
    table[i] = static_cast<char>((bits & 0x80u) | magnitude);
  }
}

void make_i8_table(uint64_t seed, char* table) {
  for (int64_t i = 0; i < kTableElements; ++i) {
    const auto bits = philox(seed, 1, static_cast<uint64_t>(i))[0];
    table[i] = static_cast<char>(static_cast<int32_t>((bits >> 8) % 255) - 127);
  }
}

// All pairs of integers of 4 bits.
void make_i4_table(uint64_t seed, char* table) {
  for (int64_t i = 0; i < kTableElements; ++i)
    table[i] = static_cast<char>(philox(seed, 1, static_cast<uint64_t>(i))[0] >> 8);
}

// Root mean square of the integers from -127 to 127.
float i8_spread() { return std::sqrt(127.0f * 128.0f / 3.0f); }
// Of those from -8 to 7, as which those from 0 to 15 count with a zero point of 8.
float i4_spread() { return std::sqrt(344.0f / 16.0f); }
constexpr float kMiddleOfU4 = 8;

// Root mean square of the f8 table's distribution.
float f8_spread() {
  double sum = 0;
  for (uint8_t magnitude = 0; magnitude < 0x7f; ++magnitude) {
    const double value = tensor::to_float(tensor::F8E4M3{magnitude});
    sum += value * value;
  }
  return static_cast<float>(std::sqrt(sum / 0x7f));
}

uint64_t name_hash(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// As one row, where nothing lies between the rows, neither in memory nor in the whole tensor.
Tensor as_rows(const Tensor& out, bool cuts_rows) {
  const bool one_row = out.rank() == 1 || (out.is_contiguous() && !cuts_rows);
  if (!one_row) return out;
  return out.reshape({1, out.num_elements()});
}

}  // namespace

DummyValues::DummyValues(uint64_t seed, const std::vector<Parameter>& parameters)
    : seed_(seed), normal_(normal_table(seed)) {
  static const float spread_of_f8 = f8_spread();
  for (const Parameter& parameter : parameters) {
    if (parameter.held_elsewhere) continue;
    const float stddev = parameter.dummy_stddev;
    const DType dtype = parameter.data.dtype();
    if (!parameter.scale.is_null()) {
      const float spread = dtype == DType::kI8          ? i8_spread()
                           : tensor::holds_pairs(dtype) ? i4_spread()
                                                        : spread_of_f8;
      add(parameter.data, {.dtype = dtype}, parameter);
      // All the same, so it does not matter that their positions are not those of the whole tensor's scales.
      const float scale = (stddev == 0 ? 1.0f : stddev) / spread;
      if (dtype == DType::kU4x2) {
        add_zero_points(parameter, scale);
        continue;
      }
      add(parameter.scale, {.dtype = DType::kF32, .constant = scale}, parameter);
    } else {
      add(parameter.data, {.dtype = dtype, .stddev = stddev, .constant = stddev == 0 ? 1.0f : 0.0f},
          parameter);
    }
  }
}

// The operator copies elements: f16 values go as bf16 ones of the same bits.
void DummyValues::add_zero_points(const Parameter& parameter, float scale) {
  const int64_t rows = parameter.scale.dim(0), columns = parameter.scale.dim(1);
  const Tensor bits = Tensor::contiguous(parameter.scale.data(), DType::kBf16, {rows, columns});
  const auto constant = [](float value) {
    return tensor::to_float(tensor::Bf16{tensor::from_float<tensor::F16>(value).bits});
  };
  add(bits.slice(1, 0, columns / 2), {.dtype = DType::kBf16, .constant = constant(scale)},
      parameter);
  add(bits.slice(1, columns / 2, columns),
      {.dtype = DType::kBf16, .constant = constant(kMiddleOfU4)}, parameter);
}

void DummyValues::add(const Tensor& out, const Kind& kind, const Parameter& parameter) {
  const Shard& shard = parameter.shard;
  const int64_t columns = out.dim(out.rank() - 1);
  const bool cuts_rows = !shard.is_whole() && shard.axis == out.rank() - 1;
  const Tensor rows = as_rows(out, cuts_rows);
  fills_.push_back({.out = rows,
                    .table = table(kind),
                    .seed = seed_,
                    .key = name_hash(parameter.name),
                    .first = shard.rank * (cuts_rows ? columns : out.num_elements()),
                    .row_elements = cuts_rows ? columns * shard.size : rows.dim(1)});
}

Tensor DummyValues::table(const Kind& kind) {
  const auto as_tensor = [](Table& table) {
    return Tensor::contiguous(table.bytes.data(), table.kind.dtype, {kTableElements});
  };
  for (Table& known : tables_)
    if (known.kind == kind) return as_tensor(known);
  Table& made = tables_.emplace_back(Table{.kind = kind, .bytes = {}});
  made.bytes.resize(static_cast<size_t>(kTableElements * tensor::dtype_bytes(kind.dtype)));
  if (kind.dtype == DType::kF8E4M3) {
    make_f8_table(seed_, made.bytes.data());
  } else if (kind.dtype == DType::kI8) {
    make_i8_table(seed_, made.bytes.data());
  } else if (tensor::holds_pairs(kind.dtype)) {
    make_i4_table(seed_, made.bytes.data());
  } else {
    std::vector<float> values = normal_;
    for (float& v : values) v = kind.stddev == 0 ? kind.constant : v * kind.stddev;
    convert(values.data(), DType::kF32, made.bytes.data(), kind.dtype, kTableElements);
  }
  return as_tensor(made);
}

}  // namespace fathom::weights
