#include "apps/bench_ops/head_cosine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "apps/bench_ops/on_reference.h"
#include "apps/bench_ops/operands.h"
#include "base/rng.h"
#include "ops/head_linear.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// Of more heads and rows nothing else is learnt.
constexpr int64_t kMostHeads = 16, kMostRows = 8;

// Uniform in [-1, 1), the same for a place and a seed.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  double at(int64_t index) const {
    const auto words = philox(seed_, 0, static_cast<uint64_t>(index / 4));
    return 2 * double{uniform(words[static_cast<size_t>(index % 4)])} - 1;
  }

 private:
  uint64_t seed_;
};

std::vector<double> draw_many(uint64_t seed, int64_t count) {
  const Draws draws(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = draws.at(i);
  return values;
}

template <class T>
Tensor upload_as(Operands& operands, const std::vector<double>& values,
                 std::initializer_list<int64_t> shape) {
  std::vector<T> rounded(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    rounded[i] = tensor::from_float<T>(static_cast<float>(values[i]));
  return operands.upload(rounded, shape);
}

Tensor upload(Operands& operands, DType dtype, const std::vector<double>& values,
              std::initializer_list<int64_t> shape) {
  if (dtype == DType::kBf16) return upload_as<tensor::Bf16>(operands, values, shape);
  return upload_as<float>(operands, values, shape);
}

// e4m3 with a scale for each block of 128x128 of a head, as a checkpoint has it.
ops::Weight upload_f8(Operands& operands, const HeadShape& s, const std::vector<double>& values) {
  constexpr double kLargest = 448;
  const int64_t out_blocks = ops::num_scale_blocks(s.out), in_blocks = ops::num_scale_blocks(s.in);
  std::vector<float> scales(static_cast<size_t>(s.heads * out_blocks * in_blocks), 0.0f);
  const auto scale_of = [&](int64_t i) -> float& {
    const int64_t row = i / s.in, head = row / s.out;
    const int64_t block = (head * out_blocks + row % s.out / tensor::kScaleBlock) * in_blocks;
    return scales[static_cast<size_t>(block + i % s.in / tensor::kScaleBlock)];
  };
  const auto count = static_cast<int64_t>(values.size());
  for (int64_t i = 0; i < count; ++i)
    scale_of(i) = std::max(scale_of(i),
                           static_cast<float>(std::abs(values[static_cast<size_t>(i)]) / kLargest));
  std::vector<double> quotients(values.size());
  for (int64_t i = 0; i < count; ++i)
    quotients[static_cast<size_t>(i)] = values[static_cast<size_t>(i)] / double{scale_of(i)};
  return {.data = upload_as<tensor::F8E4M3>(operands, quotients, {s.heads, s.out, s.in}),
          .scale = operands.upload(scales, {s.heads, out_blocks, in_blocks})};
}

// Of one row and head with every output.
void add_products(const HeadShape& s, const double* x, const double* w, const float* actual,
                  double (&sums)[3]) {
  for (int64_t n = 0; n < s.out; ++n) {
    double exact = 0;
    for (int64_t k = 0; k < s.in; ++k) exact += x[k] * w[n * s.in + k];
    const double mine = double{actual[n]};
    sums[0] += exact * mine;
    sums[1] += exact * exact;
    sums[2] += mine * mine;
  }
}

}  // namespace

double head_linear_cosine(const ops::Backend& backend, const HeadShape& shape, DType weight,
                          int64_t tokens) {
  HeadShape s = shape;
  s.heads = std::min(s.heads, kMostHeads);
  const std::unique_ptr<ops::Stream> stream = backend.make_stream({.num_threads = 1});
  RandomPieces pieces(backend);
  Operands operands(backend, *stream, pieces, /*seed=*/1);
  const std::vector<double> x = draw_many(1, tokens * s.heads * s.in);
  const std::vector<double> w = draw_many(2, s.heads * s.out * s.in);
  ops::Weight weights{};
  if (weight == DType::kF8E4M3) {
    weights = upload_f8(operands, s, w);
  } else {
    weights.data = upload(operands, weight, w, {s.heads, s.out, s.in});
  }
  const Tensor rows = upload(operands, backend.act, x, {tokens, s.heads, s.in});
  const Tensor out = operands.empty(backend.act, {tokens, s.heads, s.out});
  ops::head_linear({.x = rows, .weight = weights, .out = out}, *stream);
  OnReference on_reference(*stream);
  const int64_t first = std::max<int64_t>(tokens - kMostRows, 0);
  const std::vector<float> actual = on_reference.values(out.slice(0, first, tokens));
  double sums[3] = {};
  for (int64_t token = first; token < tokens; ++token)
    for (int64_t head = 0; head < s.heads; ++head)
      add_products(s, x.data() + (token * s.heads + head) * s.in, w.data() + head * s.out * s.in,
                   actual.data() + ((token - first) * s.heads + head) * s.out, sums);
  return sums[0] / std::sqrt(sums[1] * sums[2]);
}

std::string head_rows_type(const ops::Backend& backend, DType weight) {
  return std::string(tensor::dtype_name(weight == DType::kF8E4M3 ? weight : backend.act));
}

void print_head_table(const std::vector<HeadRow>& rows) {
  if (rows.empty()) return;
  std::printf("\nproducts of each head, by types; cosine similarity to float64\n");
  std::printf("%-6s %6s %-12s %-8s %-8s %7s %12s %10s\n", "matrix", "heads", "[out, in]", "rows",
              "weights", "tokens", "us", "cosine");
  for (const HeadRow& row : rows) {
    const std::string sizes =
        "[" + std::to_string(row.shape.out) + ", " + std::to_string(row.shape.in) + "]";
    std::printf("%-6s %6lld %-12s %-8s %-8s %7lld %12.2f %10.7f\n", row.matrix.c_str(),
                static_cast<long long>(row.shape.heads), sizes.c_str(), row.rows.c_str(),
                row.weight.c_str(), static_cast<long long>(row.tokens), row.us, row.cosine);
  }
}

}  // namespace fathom::apps
