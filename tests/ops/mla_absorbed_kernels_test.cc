// mla_absorbed where the GPU has other kernels and other shares of query rows: many short sequences, verification of
// chains and trees, heads of one rank to those of a whole model.

#include "tests/ops/mla_absorbed_cases.h"

namespace fathom::ops_test {
namespace {

class MlaAbsorbedKernelsTest : public MlaAbsorbedFixture {};
INSTANTIATE_TEST_SUITE_P(backends, MlaAbsorbedKernelsTest, testing::ValuesIn(one_of_each_backend()),
                         backend_name);

constexpr DType kHopperCacheTypes[] = {DType::kBf16, DType::kF8E4M3};

// So many that a backend deals them out to all of its multiprocessors.
TEST_P(MlaAbsorbedKernelsTest, sixty_four_short_sequences_match_float64) {
  for (const DType dtype : kHopperCacheTypes) {
    AbsorbedCase c{.dims = kRankDims, .sequences = {}, .cache_dtype = dtype, .seed = 21};
    for (int64_t i = 0; i < 64; ++i) c.sequences.push_back({1, i == 7 ? 0 : 1 + 29 * i % 71});
    expect_matches_oracle(c);
  }
}

TEST_P(MlaAbsorbedKernelsTest, a_few_decodes_match_float64) {
  for (const DType dtype : kHopperCacheTypes)
    expect_matches_oracle({.dims = kRankDims,
                           .sequences = {{1, 3}, {1, 200}, {1, 0}},
                           .cache_dtype = dtype,
                           .seed = 23});
}

// A chain of 5 and of 7 drafts behind its token, and trees of as many, beside a plain decode.
TEST_P(MlaAbsorbedKernelsTest, drafts_match_float64_for_any_number_of_heads) {
  for (const DType dtype : kHopperCacheTypes)
    for (const bool with_tree : {false, true})
      for (const int64_t heads : {32, 80, 128}) {
        SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << ", " << heads << " heads"
                                        << (with_tree ? ", trees" : ""));
        expect_matches_oracle(
            {.dims = {.heads = heads, .rank = 512, .rope = 64, .nope = 128, .v = 128},
             .sequences = {{6, 70}, {8, 129}, {1, 65}},
             .cache_dtype = dtype,
             .with_tree = with_tree,
             .seed = 22});
      }
}

}  // namespace
}  // namespace fathom::ops_test
