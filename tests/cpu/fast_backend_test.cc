// The fast backend against the reference, and against itself: the same bits for every number of threads,
// every batch and every cut of a prompt, on every instruction set that this machine has.
#include "cpu/fast/fast_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cpu/reference/reference_backend.h"
#include "tests/cpu/op_cases.h"

namespace fathom::cpu {
namespace {

using cpu_test::op_cases, cpu_test::OpCase;

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
                         testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                         Isa::kAvx512Bf16),
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

TEST_P(FastBackendTest, names_its_instruction_set) {
  EXPECT_NE(fast_backend(GetParam()).device.find(isa_name(GetParam())), std::string_view::npos);
}

}  // namespace
}  // namespace fathom::cpu
