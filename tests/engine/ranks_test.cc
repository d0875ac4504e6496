// The demo model on several ranks, each a thread: in float32 the greedy tokens and log-probabilities of one rank,
// whatever else the engine does and into however many lanes the sequences are shared out; in FP8 right answers. Ranks
// that do not sample the same are found in that step. The sizes are a few of those that tools/ranks_walk.sh runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/failpoint.h"
#include "cuda/rank_devices.h"
#include "tests/engine/rank_walk.h"
#include "tests/engine/sim_scenario.h"
#include "tests/model/v32_checkpoint.h"
#include "tests/runner/demo_model.h"
#include "tests/sanitized.h"

namespace fathom::engine {
namespace {

using runner::DrafterInfo;
using runner::RankGroup;
using runner::RankSizes;
using testing::expect_same_bits;
using testing::expect_same_outcome;
using testing::expect_way_taken;
using ::testing::HasSubstr;
using testing::kRankFloat32;
using testing::make_invariant_ranks;
using testing::make_ranks;
using testing::rank_config;
using testing::rank_requests;
using testing::rank_ways;
using testing::RankOutcome;
using testing::ranks_for;
using testing::RankWay;
using testing::Recorder;
using testing::run_on;

class RanksOf : public ::testing::TestWithParam<RankSizes> {};

TEST_P(RanksOf, give_the_tokens_and_log_probabilities_of_one) {
  for (RankWay way : rank_ways()) {
    SCOPED_TRACE(way.name);
    // Captured steps of one lane are every runner's.
    if (GetParam().dp == 1 && !way.graph_batch_sizes.empty()) continue;
    if (GetParam().dp > 2) way.num_growing = GetParam().dp + 2;  // two in one lane at least
    const auto one = ranks_for({}, way), several = ranks_for(GetParam(), way);
    const RankOutcome alone = run_on(*one, way), together = run_on(*several, way);
    expect_same_outcome(alone, together);
    expect_way_taken(together, way);
    if (::testing::Test::HasFailure()) return;
  }
}

std::string rank_sizes_name(const ::testing::TestParamInfo<RankSizes>& info) {
  return "tp" + std::to_string(info.param.tp) + "_dp" + std::to_string(info.param.dp) + "_ep" +
         std::to_string(info.param.ep);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RanksOf,
                         ::testing::Values(RankSizes{.tp = 4}, RankSizes{.tp = 2, .ep = 2},
                                           RankSizes{.tp = 8, .ep = 8}, RankSizes{.dp = 2},
                                           RankSizes{.tp = 2, .dp = 2, .ep = 4}),
                         rank_sizes_name);

INSTANTIATE_TEST_SUITE_P(
    DISABLED_MoreSizes, RanksOf,
    ::testing::Values(RankSizes{.tp = 2}, RankSizes{.tp = 8}, RankSizes{.tp = 4, .ep = 4},
                      RankSizes{.dp = 2, .ep = 2}, RankSizes{.dp = 4}, RankSizes{.dp = 4, .ep = 4},
                      RankSizes{.tp = 2, .dp = 2}, RankSizes{.tp = 4, .dp = 2},
                      RankSizes{.tp = 4, .dp = 2, .ep = 8}, RankSizes{.tp = 2, .dp = 4, .ep = 8},
                      RankSizes{.dp = 8}, RankSizes{.dp = 8, .ep = 8}, RankSizes{.dp = 16},
                      RankSizes{.dp = 16, .ep = 16}, RankSizes{.tp = 2, .dp = 8, .ep = 16},
                      RankSizes{.tp = 8, .dp = 2, .ep = 16}),
    rank_sizes_name);

// With an indexer, which every rank of tensor parallelism has whole: the rows that it chooses are the same on all.
class SparseRanksOf : public ::testing::TestWithParam<RankSizes> {};

TEST_P(SparseRanksOf, give_the_tokens_and_log_probabilities_of_one) {
  static const model::V32Checkpoint checkpoint({.num_likely_tokens = 6});
  for (RankWay way : rank_ways()) {
    const std::string name = way.name;
    if (name != "plain" && name != "retracted" && name != "tree") continue;
    SCOPED_TRACE(name);
    way.directory = checkpoint.directory();
    const auto one = ranks_for({}, way), several = ranks_for(GetParam(), way);
    const RankOutcome together = run_on(*several, way);
    expect_same_outcome(run_on(*one, way), together);
    expect_way_taken(together, way);
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SparseRanksOf,
                         ::testing::Values(RankSizes{.tp = 4}, RankSizes{.dp = 2},
                                           RankSizes{.tp = 2, .dp = 2, .ep = 4}),
                         rank_sizes_name);

constexpr DrafterInfo kFewRanksTree = {.num_steps = 3, .top_k = 2, .num_draft_tokens = 6};

// Few tokens of few requests, for a sanitizer: what the threads of ranks share in steps of every kind.
TEST(FewRanks, give_the_tokens_of_one) {
  const RankWay plain{.name = "plain", .config = {.chunked_prefill_size = 64}};
  const RankWay tree{
      .name = "tree with masks", .config = {}, .is_constrained = true, .drafter = kFewRanksTree};
  for (auto [way, sizes] :
       {std::pair(plain, RankSizes{.tp = 2, .ep = 2}), std::pair(tree, RankSizes{.dp = 2})}) {
    SCOPED_TRACE(way.name);
    way.num_tokens = 3;
    way.num_requests = 3;
    expect_same_outcome(run_on(*ranks_for({}, way), way), run_on(*ranks_for(sizes, way), way));
  }
}

// Parts of experts inside a block of scales, and whole experts. Sums in another order move e4m3 values over a rounding
// edge, so tokens are not those of one rank; what is asked for is what the demo model knows.
TEST(Fp8Ranks, answer_word_problems_and_agree_in_every_step) {
  for (const RankSizes& sizes : {RankSizes{.tp = 2}, RankSizes{.tp = 2, .dp = 2, .ep = 4}}) {
    const auto ranks = make_ranks(sizes, {.load_mtp = false}, rank_config());
    const RankOutcome outcome = run_on(*ranks, {});
    for (const core::RequestOutput& output : outcome.outputs) {
      EXPECT_EQ(output.error, "");
      EXPECT_EQ(output.tokens.size(), static_cast<size_t>(testing::kRankTokens));
    }
  }
}

// Where there are fewer GPUs than ranks nothing is shown.
bool can_have(const RankSizes& sizes, const ops::Backend& backend) {
  return !backend.device_memory || cuda::why_not_ranks(cuda::list_gpus(), sizes.count()).empty();
}

// In FP8 a bit that differs moves values over rounding edges, and soon tokens. Four parts of the demo model's widths
// are equal fractions of its blocks of scales, eight are not.
TEST(SumParts, give_the_same_bits_whatever_the_number_of_ranks) {
  const ops::Backend& backend = fathom::testing::invariant_backend();
  model::ModelOptions fp8{.load_mtp = false}, plain{.dequantize = true, .load_mtp = false};
  for (model::ModelOptions* options : {&fp8, &plain}) {
    options->kv_cache_dtype = backend.defaults.kv_cache_dtype;
    options->attention_form = model::AttentionForm::kAbsorbed;
  }
  int num_compared = 0;
  for (const auto& [options, parts] : {std::pair(fp8, 4), std::pair(plain, 8)}) {
    SCOPED_TRACE(parts);
    const RankOutcome one =
        run_on(*make_invariant_ranks({.sum_parts = parts}, options), {.num_requests = 4});
    for (RankSizes sizes : {RankSizes{.tp = 2}, RankSizes{.tp = 4}, RankSizes{.tp = 8},
                            RankSizes{.dp = 2}, RankSizes{.tp = 2, .dp = 2}}) {
      sizes.sum_parts = parts;
      if (parts % sizes.count() != 0 || !can_have(sizes, backend)) continue;
      SCOPED_TRACE(sizes.tp);
      SCOPED_TRACE(sizes.dp);
      expect_same_bits(one, run_on(*make_invariant_ranks(sizes, options), {.num_requests = 4}));
      ++num_compared;
    }
  }
  if (num_compared == 0) GTEST_SKIP() << "one GPU";
}

// What the test above would see.
TEST(SumParts, differ_where_each_rank_computes_one) {
  const auto logprobs = [](const RankSizes& sizes) {
    std::vector<float> all;
    for (const core::RequestOutput& output :
         run_on(*make_ranks(sizes, kRankFloat32, rank_config()), {.num_requests = 2}).outputs)
      for (const core::SampledToken& token : output.tokens) all.push_back(token.logprob);
    return all;
  };
  EXPECT_NE(logprobs({}), logprobs({.tp = 2}));
}

class RankDesync : public ::testing::Test {
 protected:
  void TearDown() override { disarm_failpoints(); }

  // The errors of the requests, with a failpoint planted before the sixth step.
  static std::vector<std::string> errors_with(const char* failpoint,
                                              const RankSizes& sizes = {.tp = 2}) {
    return errors_on(*ranks_for(sizes, {}), failpoint);
  }
  static std::vector<std::string> errors_on(RankGroup& ranks, const char* failpoint) {
    StepLoop loop(ranks.runner(), {});
    Recorder recorder(loop);
    for (const core::Request& request : rank_requests()) EXPECT_TRUE(loop.add(request));
    for (int step = 0; recorder.step(); ++step)
      if (step == 5) arm_failpoint(failpoint, 1);
    // One that comes afterwards.
    core::Request late = rank_requests()[0];
    late.id = 1000;
    EXPECT_TRUE(loop.add(late));
    recorder.run();
    std::vector<std::string> errors;
    for (const auto& [id, output] : recorder.finished) errors.push_back(output.error);
    EXPECT_EQ(errors.size(), rank_requests().size() + 1);
    EXPECT_NE(ranks.runner().failure(), "");
    return errors;
  }

  // Ends the process with status 7 after printing the errors, which must all be alike: ranks that wait for ever cannot
  // be ended.
  [[noreturn]] static void print_errors_and_exit(const char* failpoint, const RankSizes& sizes) {
    const auto ranks =
        make_ranks(sizes, kRankFloat32, rank_config(), std::chrono::milliseconds(500));
    const std::vector<std::string> errors = errors_on(*ranks, failpoint);
    const auto of_first = std::count(errors.begin(), errors.end(), errors.at(0));
    std::fprintf(stderr, "%d of %d: %s\n", static_cast<int>(of_first),
                 static_cast<int>(errors.size()), errors.at(0).c_str());
    std::_Exit(7);
  }
};

const ::testing::ExitedWithCode kErrorsPrinted(7);

TEST_F(RankDesync, of_another_token_is_named_and_ends_all_requests) {
  for (const std::string& error : errors_with("model_runner.token.1")) {
    EXPECT_THAT(error, HasSubstr("rank 1 sampled token 0, rank 0 token "));
    EXPECT_THAT(error, HasSubstr("the ranks of the model no longer agree"));
  }
}

TEST_F(RankDesync, of_a_rank_that_could_not_sample_is_named) {
  for (const std::string& error : errors_with("model_runner.logits.0")) {
    EXPECT_THAT(error, HasSubstr(", rank 0 nothing ("));
    EXPECT_THAT(error, HasSubstr("no longer agree"));
  }
}

// What one lane no longer agrees on ends the requests of all: experts of every lane computed it.
TEST_F(RankDesync, of_a_lane_is_named_and_ends_the_requests_of_all_lanes) {
  for (const std::string& error : errors_with("model_runner.token.3", {.tp = 2, .dp = 2}))
    EXPECT_THAT(error, HasSubstr("rank 3 sampled token 0, rank 2 token "));
}

TEST_F(RankDesync, of_the_rows_of_lanes_is_named_with_both_ranks_and_ends_all_requests) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      print_errors_and_exit("model_runner.lane_rows.1", {.dp = 2}), kErrorsPrinted,
      "9 of 9: rank . of 2 in dp is in all_gather_rows \\(number [0-9]+\\) of "
      "f32\\[[0-9]+, 128\\] along axis 0, rows from .*, rank . of 2 in dp in all_gather_rows .* in "
      "step [0-9]+: the ranks of the model cannot go on");
}

// Within the half second that the others wait.
TEST_F(RankDesync, of_a_rank_that_stands_still_is_named_with_step_and_collective) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      print_errors_and_exit("model_runner.stands_still.1", {.tp = 2}), kErrorsPrinted,
      "9 of 9: rank 0 of 2 in tp has waited [0-9]+ ms in all_reduce \\(number [0-9]+\\) for "
      "rank 1 of 2 in tp, which stands still and whose last is all_gather \\(number "
      "[0-9]+\\) in step [5-8]: the ranks of the model cannot go on");
  EXPECT_EXIT(
      print_errors_and_exit("model_runner.stands_still.3", {.tp = 2, .dp = 2}), kErrorsPrinted,
      "9 of 9: rank . of 2 in (tp of lane 1|dp of place 1) has waited .* for rank 1 of 2 in "
      "(tp of lane 1|dp of place 1), which stands still");
}

TEST_F(RankDesync, of_ranks_that_wait_for_ever_ends_the_process_where_nobody_ends_it_before) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto ranks =
            make_ranks({.tp = 2}, kRankFloat32, rank_config(), std::chrono::milliseconds(500));
        errors_on(*ranks, "model_runner.stands_still.1");
      },
      "check failed: .*rank 1 of 2 in tp, which stands still");
}

// The same on every rank is an error of one request, as on one rank.
TEST_F(RankDesync, is_not_what_all_ranks_have) {
  const auto ranks = ranks_for({.tp = 2}, {});
  StepLoop loop(ranks->runner(), {});
  Recorder recorder(loop);
  for (const core::Request& request : rank_requests()) EXPECT_TRUE(loop.add(request));
  arm_failpoint("model_runner.logits.0", 1);
  arm_failpoint("model_runner.logits.1", 1);
  recorder.run();
  const auto failed = std::count_if(
      recorder.finished.begin(), recorder.finished.end(),
      [](const auto& entry) { return entry.second.finish_reason == core::FinishReason::kFailed; });
  EXPECT_EQ(failed, 1);
}

}  // namespace
}  // namespace fathom::engine
