// The rows of the ablation, how they are judged, and what is written of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "apps/bench/ablation/report.h"
#include "apps/bench/ablation/rows.h"

namespace fathom::apps {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const AblationRow& ablation_row(std::string_view name) {
  for (const AblationRow& row : ablation_rows())
    if (row.name == name) return row;
  ADD_FAILURE() << name;
  return ablation_rows().front();
}

std::vector<std::string> flags_of_row(std::string_view name) {
  return flags_of(ablation_row(name), {.tp_size = 2, .on_cpu = true, .max_clients = 16});
}

json::Value measured_with(json::Value tokens, double accuracy) {
  return {{"query", {{"tokens_per_second", 37.04}}},
          {"questions", {{"accuracy", accuracy}, {"tokens", std::move(tokens)}}},
          {"settings", {{"max_running_requests", 16}}},
          {"batches",
           {{{"clients", 4},
             {"requests", 8},
             {"tokens_per_second", 100.25},
             {"tokens_per_second_of_request", 9.125}},
            {{"clients", 16},
             {"requests", 32},
             {"tokens_per_second", 200.25},
             {"tokens_per_second_of_request", 4.5}}}}};
}

AblationOutcome outcome_of(std::string_view name, json::Value measured,
                           const std::string& why_failed = "") {
  AblationOutcome outcome;
  outcome.row = &ablation_row(name);
  outcome.why_failed = why_failed;
  outcome.measured = std::move(measured);
  return outcome;
}

const json::Value kTokens = {{1, 2, 3}, {4}}, kOtherTokens = {{1, 2, 3}, {5}};

TEST(Ablation, has_the_published_rows_and_others_under_names_of_their_own) {
  std::set<std::string_view> names;
  int counts[5] = {};
  for (const AblationRow& row : ablation_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    ++counts[static_cast<int>(row.table)];
  }
  EXPECT_EQ(counts[static_cast<int>(AblationTable::kSingle)], 16);
  EXPECT_EQ(counts[static_cast<int>(AblationTable::kBatch)], 15);
  EXPECT_EQ(counts[static_cast<int>(AblationTable::kExcluded)], 7);
  EXPECT_EQ(counts[static_cast<int>(AblationTable::kOwn)], 7);
  EXPECT_EQ(counts[static_cast<int>(AblationTable::kExtra)], 28);
  EXPECT_TRUE(ablation_row("B1").same_work(ablation_row("2")));
  EXPECT_TRUE(ablation_row("F1").same_work(ablation_row("2")));
  EXPECT_FALSE(ablation_row("F2").same_work(ablation_row("2")));
  EXPECT_FALSE(ablation_row("15").same_work(ablation_row("B14")));
  EXPECT_FALSE(ablation_row("X1").same_work(ablation_row("2")));
}

// X1 to X6, X7 to X12 and X13 to X18 are the same choices of three columns, by the form of the weights.
TEST(Ablation, what_is_compiled_tuned_and_quantised_comes_in_every_combination) {
  for (int i = 0; i < 18; ++i) {
    const AblationExtras wanted{.chains = i % 3 == 2,
                                .jit = i % 3 > 0,
                                .tuned = i / 3 % 2 == 1,
                                .weights = static_cast<AblationWeights>(i / 6)};
    EXPECT_EQ(ablation_row("X" + std::to_string(i + 1)).extras, wanted) << i + 1;
  }
  EXPECT_EQ(ablation_row("X23").columns, ablation_row("K7").columns);
  EXPECT_EQ(ablation_row("X28").extras, ablation_row("X18").extras);
}

TEST(Ablation, a_column_is_a_flag_that_is_given_or_not) {
  EXPECT_EQ(flags_of_row("1"), (std::vector<std::string>{"--tp-size=2", "--cuda-graph-max-bs=16",
                                                         "--attention-backend=generic"}));
  EXPECT_EQ(flags_of_row("16"),
            (std::vector<std::string>{"--tp-size=2", "--disable-fusion", "--disable-cuda-graph",
                                      "--disable-radix-cache", "--attention-backend=generic",
                                      "--speculative-algorithm=NEXTN", "--enable-dp-attention",
                                      "--dp-size=2"}));
  EXPECT_THAT(flags_of_row("8"), Contains("--enable-ep-moe"));
  EXPECT_THAT(flags_of_row("F2"), Contains("--kv-cache-dtype=fp8_e4m3"));
  // A GPU captures without being told.
  EXPECT_THAT(flags_of(ablation_row("1"), {.tp_size = 1, .on_cpu = false, .max_clients = 16}),
              Not(Contains(HasSubstr("cuda-graph"))));
}

TEST(Ablation, extra_columns_are_flags_that_replace_those_of_all_rows) {
  const AblationMachine machine{.tp_size = 1, .on_cpu = false, .int8_model = "/int8"};
  const std::vector<std::string> shared = {"--model-path=/demo", "--dequantize",
                                           "--tuned-dir=/mine", "--jit-cache-dir=/cache"};
  EXPECT_EQ(
      flags_of(ablation_row("X9"), machine),
      (std::vector<std::string>{"--tp-size=1", "--attention-backend=auto", "--jit=wait",
                                "--enable-fusion", "--tuned-dir=none", "--model-path=/int8"}));
  EXPECT_EQ(shared_flags_of(ablation_row("X9"), machine, shared),
            (std::vector<std::string>{"--jit-cache-dir=/cache"}));
  EXPECT_THAT(flags_of(ablation_row("X4"), machine), Contains("--jit=off"));
  EXPECT_EQ(shared_flags_of(ablation_row("X4"), machine, shared), shared);
  EXPECT_FALSE(is_exact(ablation_row("X9")));
  EXPECT_TRUE(is_exact(ablation_row("X4")));
}

TEST(Ablation, rows_that_lack_a_gpu_or_a_model_say_so_and_are_left_out) {
  const AblationMachine cpu{.on_cpu = true, .int8_model = "/int8"};
  EXPECT_EQ(why_not(ablation_row("X1"), cpu), "");
  EXPECT_EQ(why_not(ablation_row("X2"), cpu), "JIT needs a GPU");
  EXPECT_EQ(why_not(ablation_row("X3"), cpu), "fusion by NVRTC needs a GPU");
  EXPECT_EQ(why_not(ablation_row("X4"), cpu), "a tuned file needs a GPU");
  EXPECT_EQ(why_not(ablation_row("X7"), cpu), "");
  EXPECT_EQ(why_not(ablation_row("X13"), cpu), "W4 needs --int4-model-path");
  EXPECT_TRUE(is_left_out(ablation_row("X13"), cpu));
  EXPECT_FALSE(is_left_out(ablation_row("X7"), cpu));
  // What needs ranks counts as failed, as in the other tables.
  EXPECT_FALSE(is_left_out(ablation_row("3"), {.tp_size = 1}));
}

TEST(Ablation, rows_of_several_ranks_say_so_where_there_is_one) {
  EXPECT_EQ(why_not(ablation_row("1"), {.tp_size = 1}), "");
  EXPECT_EQ(why_not(ablation_row("5"), {.tp_size = 1}), "EP-MoE needs --tp-size 2 or more");
  EXPECT_EQ(why_not(ablation_row("3"), {.tp_size = 1}), "DP-Attention needs --tp-size 2 or more");
  EXPECT_EQ(why_not(ablation_row("3"), {.tp_size = 2}), "");
}

TEST(Ablation, other_tokens_are_a_fault_where_sums_are_exact) {
  std::vector<AblationOutcome> outcomes = {outcome_of("1", measured_with(kTokens, 1)),
                                           outcome_of("2", measured_with(kTokens, 1)),
                                           outcome_of("3", measured_with(kOtherTokens, 1)),
                                           outcome_of("F2", measured_with(kOtherTokens, 1))};
  judge(outcomes, /*is_exact=*/true);
  EXPECT_TRUE(outcomes[0].runs());
  EXPECT_TRUE(outcomes[1].runs());
  EXPECT_EQ(outcomes[2].why_failed, "other tokens than row 1 in 1 of 2 answers");
  EXPECT_TRUE(outcomes[3].runs());
  EXPECT_EQ(outcomes[3].num_equal, 1);
}

TEST(Ablation, fewer_right_answers_are_a_fault_where_sums_are_not_exact) {
  std::vector<AblationOutcome> outcomes = {outcome_of("1", measured_with(kTokens, 0.9)),
                                           outcome_of("2", measured_with(kOtherTokens, 0.86)),
                                           outcome_of("3", measured_with(kOtherTokens, 0.8))};
  judge(outcomes, /*is_exact=*/false);
  EXPECT_TRUE(outcomes[1].runs());
  EXPECT_EQ(outcomes[2].why_failed, "accuracy 0.800, row 1 has 0.900");
}

TEST(Ablation, without_a_first_row_nothing_counts_as_right) {
  std::vector<AblationOutcome> outcomes = {outcome_of("1", nullptr, "exit status 1"),
                                           outcome_of("2", measured_with(kTokens, 1))};
  judge(outcomes, true);
  EXPECT_EQ(outcomes[0].why_failed, "exit status 1");
  EXPECT_EQ(outcomes[1].why_failed, "row 1 did not run: nothing to compare with");
}

TEST(Ablation, tables_have_a_cell_for_each_column_and_a_line_for_each_number_of_clients) {
  std::vector<AblationOutcome> outcomes = {
      outcome_of("1", measured_with(kTokens, 1)),  outcome_of("5", nullptr, "took longer than 5 s"),
      outcome_of("B1", measured_with(kTokens, 1)), outcome_of("B3", nullptr, "exit status 1"),
      outcome_of("K1", measured_with(kTokens, 1)), outcome_of("F2", nullptr, "exit status 1"),
      outcome_of("X9", measured_with(kTokens, 1)), outcome_of("X13", nullptr, "exit status 1")};
  judge(outcomes, true);
  const std::string text =
      ablation_markdown({.model = "demo", .device = "a CPU", .commit = "4f2c91d"}, outcomes);
  EXPECT_THAT(text, HasSubstr("8 rows, 4 of them ❌"));
  EXPECT_THAT(text,
              HasSubstr("| 1 | ✅ | 37.0 | ✅ | ✅ | ✅ | ➖ | ➖ | ➖ | ➖ | 2 of 2 | 1.000 | 37.0 |\n"));
  EXPECT_THAT(text, HasSubstr("| 5 | ❌ took longer than 5 s | N/A | "));
  EXPECT_THAT(text, HasSubstr("| 4<br>16 | 100.2<br>200.2 | 9.12<br>4.50 | 8<br>32 | 16 | "));
  EXPECT_THAT(text, HasSubstr("| X9 | ✅ | 37.0 | ✅ | ✅ | ➖ | ✅ | ➖ | ✅ | ✅ | ✅ | ✅ | ➖ | "));
  // Every line of a table has as many cells as its first.
  size_t num_cells = 0;
  std::string line;
  for (const char c : text) {
    line += c;
    if (c != '\n') continue;
    const auto cells = static_cast<size_t>(std::count(line.begin(), line.end(), '|'));
    if (cells == 0) num_cells = 0;
    if (num_cells == 0) num_cells = cells;
    EXPECT_EQ(cells, num_cells) << line;
    line.clear();
  }
}

TEST(Ablation, the_picture_and_the_file_say_what_failed_and_why) {
  const std::vector<AblationOutcome> outcomes = {
      outcome_of("1", measured_with(kTokens, 1)),
      outcome_of("5", nullptr, "ended by signal <Aborted> & gone"),
      outcome_of("X18", measured_with(kTokens, 1))};
  const std::string svg = ablation_svg({.model = "demo"}, outcomes);
  EXPECT_THAT(svg, HasSubstr("ended by signal &lt;Aborted&gt; &amp; gone"));
  EXPECT_THAT(svg, HasSubstr(">200.2<"));
  const json::Value file = ablation_json({.model = "demo"}, outcomes);
  EXPECT_TRUE(file["rows"][0]["runs"].get<bool>());
  EXPECT_FALSE(file["rows"][0]["measured"]["questions"].contains("tokens"));
  EXPECT_EQ(file["rows"][1]["why_failed"], "ended by signal <Aborted> & gone");
  EXPECT_TRUE(file["rows"][1]["measured"].is_null());
  EXPECT_EQ(file["rows"][1]["columns"]["ep_moe"], true);
  EXPECT_FALSE(file["rows"][1]["columns"].contains("jit"));
  EXPECT_EQ(file["rows"][2]["columns"]["int4"], true);
  EXPECT_THAT(svg, HasSubstr(">X18 TC CG RC FI NVRTC JIT tuned W4<"));
}

}  // namespace
}  // namespace fathom::apps
