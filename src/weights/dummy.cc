#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <vector>

#include "base/rng.h"
#include "weights/convert.h"
#include "weights/loader.h"
#include "weights/parallel.h"
#include "weights/progress.h"
#include "weights/read_plan.h"

namespace fathom::weights {
namespace {

using tensor::DType;
using tensor::Tensor;

// Random values come from one table per (dtype, spread), copied in blocks from positions that depend on
// seed, name and block alone: as fast as memory, and the same for any number of threads.
constexpr int64_t kTableElements = 1 << 17, kBlockElements = 4096;
constexpr int64_t kPieceElements = 256 * kBlockElements;

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
std::vector<tensor::F8E4M3> f8_table(uint64_t seed) {
  std::vector<tensor::F8E4M3> table(kTableElements);
  for (int64_t i = 0; i < kTableElements; ++i) {
    const uint32_t bits = philox(seed, 1, static_cast<uint64_t>(i))[0];
    const uint32_t magnitude = (bits >> 8) % 0x7f;  // 0x7f is NaN
    table[static_cast<size_t>(i)].bits = static_cast<uint8_t>((bits & 0x80u) | magnitude);
  }
  return table;
}

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

// The random source of one fill_dummy(): tables of the values that its parameters need.
class Tables {
 public:
  Tables(uint64_t seed, const std::vector<Parameter>& parameters)
      : normal_(normal_table(seed)), f8_(f8_table(seed)) {
    for (const Parameter& parameter : parameters) table(parameter.data.dtype(), stddev(parameter));
  }

  // Spread of the values that go into the table: f8 values get theirs from the scales.
  static float stddev(const Parameter& parameter) {
    return parameter.data.dtype() == DType::kF8E4M3 ? 1.0f : parameter.dummy_stddev;
  }

  const char* find(DType dtype, float stddev) const {
    for (const Table& table : tables_) {
      if (table.dtype == dtype && table.stddev == stddev) return table.bytes.data();
    }
    FATHOM_CHECK(false, "no table of " << tensor::dtype_name(dtype) << " " << stddev);
  }

 private:
  struct Table {
    DType dtype;
    float stddev;
    std::vector<char> bytes;
  };

  void table(DType dtype, float stddev) {
    const auto same = [&](const Table& t) { return t.dtype == dtype && t.stddev == stddev; };
    if (std::any_of(tables_.begin(), tables_.end(), same)) return;
    Table table{dtype, stddev, {}};
    table.bytes.resize(static_cast<size_t>(kTableElements * tensor::dtype_bytes(dtype)));
    if (dtype == DType::kF8E4M3) {
      std::memcpy(table.bytes.data(), f8_.data(), table.bytes.size());
    } else {
      std::vector<float> values = normal_;
      for (float& v : values) v = stddev == 0 ? 1.0f : v * stddev;
      convert(values.data(), DType::kF32, table.bytes.data(), dtype, kTableElements);
    }
    tables_.push_back(std::move(table));
  }

  std::vector<float> normal_;
  std::vector<tensor::F8E4M3> f8_;
  std::vector<Table> tables_;
};

// Elements [begin, end) of one parameter, counted row by row.
struct Piece {
  const Parameter* parameter;
  int64_t begin, end;
};

class Filler {
 public:
  Filler(const Tables& tables, const LoadOptions& options) : tables_(tables), options_(options) {}

  void fill(const Piece& piece, std::vector<char>& staging) const {
    const Parameter& parameter = *piece.parameter;
    const Tensor& data = parameter.data;
    const int64_t element_bytes = tensor::dtype_bytes(data.dtype());
    const char* table = tables_.find(data.dtype(), Tables::stddev(parameter));
    const uint64_t key = name_hash(parameter.name);
    // Copies to a device are slow to start: a contiguous piece goes there at once.
    const bool staged = options_.copy && data.is_contiguous();
    if (staged) staging.resize(static_cast<size_t>((piece.end - piece.begin) * element_bytes));
    for (int64_t begin = piece.begin; begin < piece.end;) {
      const Run run = run_at(parameter, begin);
      const int64_t count = std::min(run.count, piece.end - begin);
      const uint32_t random = philox(options_.dummy_seed, key, run.block)[0];
      const char* from =
          table + (random % (kTableElements - kBlockElements + 1) + run.in_block) * element_bytes;
      if (staged) {
        std::memcpy(staging.data() + (begin - piece.begin) * element_bytes, from,
                    static_cast<size_t>(count * element_bytes));
      } else {
        store(data, begin, from, count);
      }
      begin += count;
    }
    if (staged) store(data, piece.begin, staging.data(), piece.end - piece.begin);
    if (piece.begin == 0 && !parameter.scale.is_null()) fill_scales(parameter, staging);
  }

 private:
  // Elements side by side in one block of the whole tensor.
  struct Run {
    uint64_t block;
    int64_t in_block, count;
  };

  // Blocks are counted in the whole tensor, so they are the same however ranks and threads divide it.
  static Run run_at(const Parameter& parameter, int64_t index) {
    const Tensor& data = parameter.data;
    const Shard& shard = parameter.shard;
    const int64_t columns = data.dim(data.rank() - 1);
    const bool cuts_rows = !shard.is_whole() && shard.axis == data.rank() - 1;
    const int64_t row_elements = cuts_rows ? columns * shard.size : columns;
    const int64_t first = cuts_rows ? shard.rank * columns : shard.rank * data.num_elements();
    const int64_t at = first + index / columns * row_elements + index % columns;
    const int64_t in_block = at % kBlockElements;
    const int64_t in_row = cuts_rows ? columns - index % columns : kBlockElements;
    return {.block = static_cast<uint64_t>(at / kBlockElements),
            .in_block = in_block,
            .count = std::min(in_row, kBlockElements - in_block)};
  }

  void fill_scales(const Parameter& parameter, std::vector<char>& staging) const {
    const int64_t count = parameter.scale.num_elements();
    staging.resize(static_cast<size_t>(count) * sizeof(float));
    static const float spread = f8_spread();
    const float scale = (parameter.dummy_stddev == 0 ? 1.0f : parameter.dummy_stddev) / spread;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(staging.data() + static_cast<size_t>(i) * sizeof(float), &scale, sizeof scale);
    }
    store(parameter.scale, 0, staging.data(), count);
  }

  // Writes `count` elements to data, starting at element `begin` in row order.
  void store(const Tensor& data, int64_t begin, const char* from, int64_t count) const {
    const int64_t element_bytes = tensor::dtype_bytes(data.dtype());
    const bool flat = data.is_contiguous();
    const int64_t columns = flat ? data.num_elements() : data.dim(1);
    const int64_t row_stride = flat ? columns : data.stride(0);
    while (count > 0) {
      const int64_t row = begin / columns, column = begin % columns;
      const int64_t run = std::min(count, columns - column);
      char* to = static_cast<char*>(data.data()) + (row * row_stride + column) * element_bytes;
      if (options_.copy) {
        options_.copy(to, from, run * element_bytes);
      } else {
        std::memcpy(to, from, static_cast<size_t>(run * element_bytes));
      }
      begin += run, count -= run, from += run * element_bytes;
    }
  }

  const Tables& tables_;
  const LoadOptions& options_;
};

}  // namespace

Status fill_dummy(const std::vector<Parameter>& parameters, const LoadOptions& options) {
  std::vector<Piece> pieces;
  int64_t total_bytes = 0;
  for (const Parameter& parameter : parameters) {
    check_parameter(parameter);
    if (parameter.held_elsewhere) continue;
    if (parameter.found != nullptr) *parameter.found = true;
    total_bytes += parameter.data.num_bytes();
    const int64_t elements = parameter.data.num_elements();
    for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
      pieces.push_back({&parameter, begin, std::min(elements, begin + kPieceElements)});
    }
  }
  const Tables tables(options.dummy_seed, parameters);
  const Filler filler(tables, options);
  Progress progress(options.on_progress, total_bytes);
  std::vector<std::vector<char>> staging(static_cast<size_t>(std::max(options.num_threads, 1)));
  Status done = run_jobs(pieces.size(), options.num_threads, [&](size_t job, size_t worker) {
    const Piece& piece = pieces[job];
    filler.fill(piece, staging[worker]);
    progress.add((piece.end - piece.begin) * tensor::dtype_bytes(piece.parameter->data.dtype()));
    return Status();
  });
  progress.finish();
  return done;
}

}  // namespace fathom::weights
