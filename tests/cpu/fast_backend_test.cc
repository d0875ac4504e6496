// The fast backend against the reference, and against itself: the same bits for every number of threads,
// every batch and every cut of a prompt, on every instruction set that this machine has.
#include "cpu/fast/fast_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/reference/reference_backend.h"
#include "ops/linear.h"
#include "tests/cpu/op_cases.h"

namespace fathom::cpu {
namespace {

using cpu_test::op_cases, cpu_test::OpCase;
using tensor::DType, tensor::Tensor;

class FastBackendTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_supported(GetParam()))
      GTEST_SKIP() << "this processor has no " << isa_name(GetParam())
                   << "; to run it: a processor that has it";
  }
  std::unique_ptr<ops::Stream> stream(int num_threads) {
    return fast_backend(GetParam()).make_stream({.num_threads = num_threads});
  }
};
INSTANTIATE_TEST_SUITE_P(every_isa, FastBackendTest,
                         testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                                         Isa::kAmx),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(FastBackendTest, agrees_with_the_reference) {
  const std::unique_ptr<ops::Stream> fast = stream(3),
                                     reference = reference_backend().make_stream({});
  for (const OpCase& op : op_cases()) {
    const std::vector<float> actual = op.run(*fast, 0, op.tokens);
    const std::vector<float> expected = op.run(*reference, 0, op.tokens);
    ASSERT_EQ(actual.size(), expected.size()) << op.name;
    double square = 0;
    for (const float v : expected) square += static_cast<double>(v) * static_cast<double>(v);
    const double rms = std::sqrt(square / static_cast<double>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], 2e-5 * (rms + std::abs(expected[i])))
          << op.name << " element " << i;
  }
}

TEST_P(FastBackendTest, gives_the_same_bits_for_any_number_of_threads) {
  const std::unique_ptr<ops::Stream> one = stream(1);
  for (const OpCase& op : op_cases()) {
    const std::vector<float> expected = op.run(*one, 0, op.tokens);
    for (int threads = 2; threads <= 4; ++threads) {
      const std::unique_ptr<ops::Stream> many = stream(threads);
      EXPECT_TRUE(same_bits(op.run(*many, 0, op.tokens), expected))
          << op.name << " with " << threads << " threads";
    }
  }
}

TEST_P(FastBackendTest, gives_a_row_the_same_bits_in_any_batch_or_chunk) {
  const std::unique_ptr<ops::Stream> fast = stream(2);
  for (const OpCase& op : op_cases()) {
    const std::vector<float> expected = op.run(*fast, 0, op.tokens);
    for (const int64_t step : {1, 5, 13, 50, 100}) {
      std::vector<float> joined;
      for (int64_t begin = 0; begin < op.tokens; begin += step) {
        const std::vector<float> part = op.run(*fast, begin, std::min(begin + step, op.tokens));
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(same_bits(joined, expected)) << op.name << " in steps of " << step;
    }
  }
}

// One product with a weight of 1 for each output, so that nothing is lost in sums.
std::vector<float> times_one(std::vector<float> x, ops::Stream& stream) {
  std::vector<tensor::Bf16> one(1, tensor::from_float<tensor::Bf16>(1.0f));
  std::vector<float> out(x.size());
  const auto rows = static_cast<int64_t>(x.size());
  ops::linear(
      {.x = Tensor::contiguous(x.data(), DType::kF32, {rows, 1}),
       .weight = {.data = Tensor::contiguous(one.data(), DType::kBf16, {1, 1}), .scale = {}},
       .out = Tensor::contiguous(out.data(), DType::kF32, {rows, 1})},
      stream);
  return out;
}

TEST_P(FastBackendTest, multiplies_bf16_weights_by_all_bits_of_x) {
  const std::unique_ptr<ops::Stream> fast = stream(1);
  std::vector<float> x = {1.0f + 0x1p-23f, -0x1.fffffep+100f, 0x1.234567p-60f, 0x1.010101p0f, 0.0f};
  for (int i = 0; i < 40; ++i)
    x.push_back(std::ldexp(1.0f + 0x1p-8f + 0x1p-16f * float(i), i - 20));
  for (const size_t count : {size_t{1}, size_t{5}, x.size()}) {
    const std::vector<float> part(x.begin(), x.begin() + static_cast<int64_t>(count));
    EXPECT_EQ(times_one(part, *fast), part) << count << " rows";
  }
}

TEST_P(FastBackendTest, keeps_what_is_infinite_and_nan_in_its_row) {
  const std::unique_ptr<ops::Stream> fast = stream(1);
  const float inf = std::numeric_limits<float>::infinity();
  for (const size_t more : {size_t{0}, size_t{30}}) {
    std::vector<float> x = {1.5f, inf, -inf, std::nanf(""), 2.5f};
    x.resize(x.size() + more, 3.0f);
    const std::vector<float> out = times_one(x, *fast);
    EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 3),
              (std::vector<float>{1.5f, inf, -inf}));
    EXPECT_TRUE(std::isnan(out[3]));
    EXPECT_EQ(out[4], 2.5f);
    for (size_t i = 5; i < out.size(); ++i) EXPECT_EQ(out[i], 3.0f) << "row " << i;
  }
}

TEST_P(FastBackendTest, names_its_instruction_set) {
  EXPECT_NE(fast_backend(GetParam()).device.find(isa_name(GetParam())), std::string_view::npos);
}

}  // namespace
}  // namespace fathom::cpu
