// The tuner without a device: what it may choose from, what its cost model drops, and what it keeps of given times.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "apps/tune/candidates.h"
#include "apps/tune/journal.h"
#include "apps/tune/tune_shape.h"
#include "base/startup_error.h"
#include "tests/scratch_directory.h"
#include "tuned/file.h"

namespace fathom::apps {
namespace {

using tensor::DType, testing::HasSubstr, testing::ThrowsMessage;
using tuned::ExpertChoice, tuned::ExpertKernel, tuned::MatrixChoice, tuned::MatrixKernel,
    tuned::MatrixShape;

constexpr MatrixShape kMatrix{.dtype = DType::kF8E4M3, .n = 1536, .k = 1536};

// Gives times by rule and by choice, and counts how often it was asked.
struct FakeDevice {
  std::function<double(const MatrixChoice&, int64_t rows)> us;
  double clock_seconds = 0, seconds_of_a_sample = 0;
  int num_samples = 0;

  MeasureChoice<MatrixChoice> measure() {
    return [this](const MatrixChoice& choice, int64_t rows, int count) {
      num_samples += count;
      clock_seconds += seconds_of_a_sample * count;
      return std::vector<double>(static_cast<size_t>(count), us(choice, rows) * 1e-6);
    };
  }
};

MatrixChoice batch(int cluster) { return {.kernel = MatrixKernel::kBatch, .cluster = cluster}; }

SearchTask<MatrixChoice> batch_task() {
  return {.rows = {16, 64},
          .candidates = {{batch(1), 10}, {batch(2), 11}, {batch(4), 12}, {batch(8), 100}}};
}

TEST(Tune, the_fastest_of_the_likely_is_chosen_for_all_rows_of_its_class) {
  FakeDevice device{.us = [](const MatrixChoice& choice, int64_t) {
    return choice.cluster == 2 ? 7.0 : choice.cluster == 4 ? 8.0 : 10.0;
  }};
  const auto result = search(batch_task(), SearchLimits{}, device.measure());
  ASSERT_EQ(result.entries.size(), 2U);
  for (const auto& entry : result.entries) {
    EXPECT_EQ(entry.choice, batch(2));
    EXPECT_NEAR(entry.us, 7, 1e-9);
    EXPECT_NEAR(entry.default_us, 10, 1e-9);
  }
  EXPECT_EQ(result.num_timed, 3U);
  EXPECT_EQ(result.num_pruned, 1U);
}

TEST(Tune, what_the_cost_model_drops_is_never_timed) {
  FakeDevice device{.us = [](const MatrixChoice& choice, int64_t) {
    EXPECT_NE(choice.cluster, 8);
    return 10.0;
  }};
  search(batch_task(), SearchLimits{}, device.measure());
  EXPECT_EQ(pruned(batch_task(), SearchLimits{}),
            (std::vector<MatrixChoice>{batch(1), batch(2), batch(4)}));
  EXPECT_EQ(pruned(batch_task(), SearchLimits{.most_candidates = 2}).size(), 2U);
}

TEST(Tune, a_choice_that_is_slower_for_one_number_of_rows_is_left_out) {
  FakeDevice device{.us = [](const MatrixChoice& choice, int64_t rows) {
    if (choice.cluster != 2) return 10.0;
    return rows == 16 ? 5.0 : 10.5;
  }};
  EXPECT_FALSE(search(batch_task(), SearchLimits{}, device.measure()).is_better());
}

TEST(Tune, a_gain_within_noise_is_left_out) {
  FakeDevice device{
      .us = [](const MatrixChoice& choice, int64_t) { return choice.cluster == 2 ? 9.9 : 10.0; }};
  EXPECT_FALSE(search(batch_task(), SearchLimits{}, device.measure()).is_better());
}

TEST(Tune, what_does_not_hold_when_it_is_timed_again_is_left_out) {
  int calls = 0;
  // Fast while it is searched, as slow as the rule after that.
  FakeDevice device{.us = [&](const MatrixChoice& choice, int64_t) {
    return choice.cluster == 2 && ++calls < 20 ? 7.0 : 10.0;
  }};
  const std::vector<SearchTask<MatrixChoice>> tasks = {batch_task()};
  SearchLimits limits;
  limits.samples = 7;
  EXPECT_TRUE(search(batch_task(), limits, device.measure()).is_better());
  calls = 0;
  EXPECT_FALSE(tune_shape(kMatrix, tasks, limits, device.measure()).is_better());
}

TEST(Tune, variants_with_the_same_sums_may_differ_between_rows) {
  const auto with_stages = [](int stages) {
    return MatrixChoice{
        .kernel = MatrixKernel::kStreaming, .cluster = 1, .warps = 8, .stages = stages};
  };
  const SearchTask<MatrixChoice> task{.rows = {1, 8},
                                      .candidates = {{with_stages(2), 1}, {with_stages(4), 1}}};
  FakeDevice device{.us = [](const MatrixChoice& choice, int64_t rows) {
    return choice.stages == 0 ? 10.0 : (choice.stages == 4) == (rows == 1) ? 6.0 : 8.0;
  }};
  const auto result = search(task, SearchLimits{}, device.measure());
  ASSERT_EQ(result.entries.size(), 2U);
  EXPECT_EQ(result.entries[0].choice, with_stages(4));
  EXPECT_EQ(result.entries[1].choice, with_stages(2));
}

TEST(Tune, what_is_hopeless_for_the_first_rows_is_not_timed_for_more) {
  FakeDevice device{.us = [](const MatrixChoice& choice, int64_t rows) {
    if (choice.cluster > 0) {
      EXPECT_EQ(rows, 16);
    }
    return choice.cluster > 0 ? 20.0 : 10.0;
  }};
  EXPECT_FALSE(search(batch_task(), SearchLimits{}, device.measure()).is_better());
}

TEST(Tune, the_search_of_a_shape_ends_when_its_time_is_over) {
  FakeDevice device{
      .us = [](const MatrixChoice& choice, int64_t) { return choice.cluster == 2 ? 5.0 : 10.0; },
      .seconds_of_a_sample = 1};
  SearchLimits limits;
  limits.is_late = [&] { return device.clock_seconds > 15; };
  const auto result = search(batch_task(), limits, device.measure());
  EXPECT_TRUE(result.was_late);
  EXPECT_FALSE(result.is_better());
  EXPECT_LT(device.num_samples, 30);
}

TEST(Tune, entries_of_the_rule_stay_beside_others_of_their_class_alone) {
  const MatrixChoice large{.kernel = MatrixKernel::kTiled, .tile = tuned::Tile::kLarge};
  const auto kept = without_idle_classes(
      kMatrix, std::vector<tuned::Entry<MatrixChoice>>{
                   {.rows = 512}, {.rows = 8}, {.rows = 256, .choice = large}});
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].rows, 256);
  EXPECT_EQ(kept[1].rows, 512);
}

TEST(TuneCandidates, tasks_are_the_classes_of_rows) {
  const auto tasks = matrix_tasks(kMatrix, {1, 8, 16, 128, 256, 512}, {.has_library = true});
  ASSERT_EQ(tasks.size(), 4U);
  EXPECT_THAT(tasks[0].rows, testing::ElementsAre(1, 8));
  EXPECT_THAT(tasks[1].rows, testing::ElementsAre(16, 128));
  EXPECT_THAT(tasks[2].rows, testing::ElementsAre(256));
  EXPECT_THAT(tasks[3].rows, testing::ElementsAre(512));
  for (const auto& task : tasks)
    for (const auto& candidate : task.candidates)
      for (const int64_t rows : task.rows)
        EXPECT_EQ(tuned::why_not(kMatrix, rows, candidate.choice), "");
  const auto has_library = [](const SearchTask<MatrixChoice>& task) {
    for (const auto& candidate : task.candidates)
      if (candidate.choice.kernel == MatrixKernel::kLibrary) return true;
    return false;
  };
  EXPECT_TRUE(has_library(tasks[2]));
  EXPECT_FALSE(has_library(matrix_tasks(kMatrix, {256}, {}).front()));
}

// SGLang's tuner times 1,920 of them for a number of rows.
TEST(TuneCandidates, few_are_left_for_the_device) {
  const SearchLimits limits;
  for (const MatrixShape& shape :
       {kMatrix, MatrixShape{DType::kF8E4M3, 36864, 7168}, MatrixShape{DType::kBf16, 576, 2048}})
    for (const auto& task : matrix_tasks(shape, {1, 8, 64, 1024}, {.has_library = true})) {
      EXPECT_GE(pruned(task, limits).size(), 1U);
      EXPECT_LE(pruned(task, limits).size(), limits.most_candidates);
    }
  const ExpertTask experts{
      .shape = {DType::kF8E4M3, 256, 256}, .hidden_size = 7168, .num_experts_per_tok = 8};
  for (const auto& task : expert_tasks(experts, {1, 8, 128, 4096}, {}))
    EXPECT_LE(pruned(task, limits).size(), limits.most_candidates);
}

TEST(TuneCandidates, pairs_of_many_tokens_are_dropped) {
  const ExpertTask experts{
      .shape = {DType::kF8E4M3, 256, 512}, .hidden_size = 7168, .num_experts_per_tok = 8};
  const auto tasks = expert_tasks(experts, {1, 128}, {});
  const auto has_pairs = [](const std::vector<ExpertChoice>& choices) {
    for (const ExpertChoice& choice : choices)
      if (choice.kernel == ExpertKernel::kPairs) return true;
    return false;
  };
  EXPECT_TRUE(has_pairs(pruned(tasks[0], SearchLimits{})));
  EXPECT_FALSE(has_pairs(pruned(tasks[1], SearchLimits{})));
}

tuned::MatrixChoices some_choices() {
  return {.device = "NVIDIA_H200",
          .shape = kMatrix,
          .entries = {{.rows = 64, .choice = batch(4)}},
          .from = {}};
}

TEST(TuneJournal, what_was_finished_is_found_again) {
  const ScratchDirectory directory;
  const std::string path = directory / "progress.jsonl", name = tuned::file_name(some_choices());
  {
    Journal journal(path, /*resumes=*/false);
    EXPECT_FALSE(journal.find<tuned::MatrixChoices>(name, {16, 64}));
    journal.add(some_choices(), {16, 64});
  }
  const Journal journal(path, /*resumes=*/true);
  const auto found = journal.find<tuned::MatrixChoices>(name, {64});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->shape, kMatrix);
  ASSERT_EQ(found->entries.size(), 1U);
  EXPECT_EQ(found->entries[0].choice, batch(4));
  EXPECT_FALSE(journal.find<tuned::MatrixChoices>(name, {64, 128})) << "128 rows were not tuned";
  EXPECT_FALSE(journal.find<tuned::MatrixChoices>("another", {64}));
  EXPECT_EQ(Journal(path, /*resumes=*/false).size(), 0U);
  EXPECT_EQ(Journal(path, /*resumes=*/true).size(), 0U) << "a run that does not resume begins anew";
}

TEST(TuneJournal, a_line_that_was_cut_off_is_done_again) {
  const ScratchDirectory directory;
  const std::string path = directory / "progress.jsonl";
  Journal(path, false).add(some_choices(), {64});
  std::ofstream(path, std::ios::app) << R"({"file": "N=15)";
  EXPECT_EQ(Journal(path, true).size(), 1U);
}

TEST(TuneJournal, lines_of_others_are_refused_by_name) {
  const ScratchDirectory directory;
  const std::string path = directory / "progress.jsonl";
  std::ofstream(path) << "{\"shape\": 1}\n";
  EXPECT_THAT(
      [&] { const Journal journal(path, true); },
      ThrowsMessage<StartupError>(HasSubstr("progress.jsonl: a line is not of `fathom tune`")));
}

}  // namespace
}  // namespace fathom::apps
