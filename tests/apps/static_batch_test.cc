#include "apps/bench/static_batch.h"

#include <gtest/gtest.h>

#include "apps/bench/decode_floor.h"
#include "base/startup_error.h"
#include "runner/sim/sim_runner.h"

namespace fathom::apps {
namespace {

// Passes everything on and keeps what came and went.
class Recorder : public runner::Runner {
 public:
  explicit Recorder(runner::Runner& inner) : inner_(inner) {}
  const runner::RunnerInfo& info() const override { return inner_.info(); }
  void submit(const core::Batch& batch) override {
    batches.push_back(batch);
    inner_.submit(batch);
    num_ahead += inner_.in_flight() == 2 ? 1 : 0;
  }
  core::StepResult wait() override {
    results.push_back(inner_.wait());
    return results.back();
  }
  void share_masks(runner::SharedMasks masks) override { inner_.share_masks(std::move(masks)); }
  core::SliceWork slice_work(int num_tokens, int64_t kv_begin) const override {
    return inner_.slice_work(num_tokens, kv_begin);
  }
  int in_flight() const override { return inner_.in_flight(); }
  int64_t next_step_id() const override { return inner_.next_step_id(); }

  std::vector<core::Batch> batches;
  std::vector<core::StepResult> results;
  int num_ahead = 0;  // submitted while another step was in flight

 private:
  runner::Runner& inner_;
};

TEST(StaticBatch, prefills_in_steps_that_fit_and_decodes_what_follows_its_prompts) {
  runner::SimRunner sim({.num_blocks = 16, .max_slots = 3, .max_batch_tokens = 100});
  Recorder recorder(sim);
  {
    StaticBatch batch(recorder, {.batch_size = 3, .input_len = 70, .output_len = 3});
    batch.prefill();
    batch.decode();
    batch.decode();
    EXPECT_TRUE(batch.done());
  }
  ASSERT_EQ(recorder.batches.size(), 6u);  // 210 tokens in three steps, two decodes, the release
  EXPECT_EQ(recorder.num_ahead, 3);        // all but the first of the prompts and of the decodes
  EXPECT_EQ(recorder.batches[5].releases.size(), 3u);

  // Every sequence continues as its prompt alone determines: no blocks were mixed up.
  std::vector<std::vector<int32_t>> sequences;
  for (const core::SlotAdmission& admission : recorder.batches[0].admissions) {
    sequences.push_back(admission.prompt);
  }
  ASSERT_EQ(sequences.size(), 3u);
  EXPECT_NE(sequences[0], sequences[1]);
  int num_checked = 0;
  for (const core::StepResult& result : recorder.results) {
    for (const core::SliceResult& slice : result.slices) {
      std::vector<int32_t>& sequence = sequences[static_cast<size_t>(slice.slot)];
      for (const core::SampledToken& token : slice.tokens) {
        EXPECT_EQ(token.token, runner::SimRunner::expected_next(sequence, {.vocab_size = 1000}));
        sequence.push_back(token.token);
        ++num_checked;
      }
    }
  }
  EXPECT_EQ(num_checked, 9);
}

TEST(StaticBatch, verifies_drafts_and_stops_each_sequence_at_its_length) {
  for (const bool is_tree : {false, true}) {
    runner::DrafterInfo shape{.num_steps = 3, .top_k = 1, .num_draft_tokens = 4};
    if (is_tree) shape = {.num_steps = 3, .top_k = 2, .num_draft_tokens = 7};
    runner::SimRunner sim(
        {.num_blocks = 16, .max_slots = 3, .drafter = {.shape = shape, .agreement = 0.8}});
    Recorder recorder(sim);
    core::SpeculationCounts counts;
    int64_t num_tokens = 3;  // of the prefill
    {
      StaticBatch batch(
          recorder,
          {.batch_size = 3, .input_len = 70, .output_len = 40, .num_drafts = shape.max_drafts()});
      batch.prefill();
      while (!batch.done()) num_tokens += batch.decode().num_tokens;
      counts = batch.speculation();
    }
    EXPECT_EQ(num_tokens, 3 * 40);
    EXPECT_GT(counts.num_drafts_accepted, counts.num_verify_steps);
    EXPECT_LE(counts.num_drafts_accepted + counts.num_verify_steps, 3 * 39);
    EXPECT_LT(recorder.batches.size(), 1 + 39 + 1u);
    EXPECT_GT(recorder.num_ahead, 5);
    std::vector<std::vector<int32_t>> sequences;
    for (const core::SlotAdmission& admission : recorder.batches[0].admissions) {
      sequences.push_back(admission.prompt);
    }
    for (const core::StepResult& result : recorder.results) {
      for (const core::SliceResult& slice : result.slices) {
        std::vector<int32_t>& sequence = sequences[static_cast<size_t>(slice.slot)];
        for (const core::SampledToken& token : slice.tokens) {
          EXPECT_EQ(token.token, runner::SimRunner::expected_next(sequence, {.vocab_size = 1000}));
          sequence.push_back(token.token);
        }
      }
    }
    for (const std::vector<int32_t>& sequence : sequences) EXPECT_EQ(sequence.size(), 110u);
  }
}

TEST(StaticBatch, waits_for_each_step_when_told) {
  runner::SimRunner sim({.num_blocks = 16, .max_slots = 3, .max_batch_tokens = 100});
  Recorder recorder(sim);
  {
    StaticBatch batch(recorder,
                      {.batch_size = 3, .input_len = 70, .output_len = 3, .overlap = false});
    batch.prefill();
    while (!batch.done()) batch.decode();
  }
  EXPECT_EQ(recorder.batches.size(), 6u);
  EXPECT_EQ(recorder.num_ahead, 0);
}

TEST(StaticBatch, slots_and_blocks_can_be_used_again) {
  runner::SimRunner sim({.num_blocks = 4, .max_slots = 2});
  for (int i = 0; i < 3; ++i) {
    StaticBatch batch(sim, {.batch_size = 2, .input_len = 100, .output_len = 2});
    EXPECT_GE(batch.prefill(), 0.0);
    EXPECT_GE(batch.decode().seconds, 0.0);
    EXPECT_TRUE(batch.done());
  }
}

TEST(StaticBatch, what_does_not_fit_is_refused_by_the_flag_to_change) {
  const runner::SimRunner sim({.num_blocks = 4, .max_slots = 2, .max_batch_tokens = 8});
  const auto message = [&](const StaticBatchShape& shape) -> std::string {
    try {
      check_fits(shape, sim.info());
    } catch (const StartupError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.batch_size = 2, .input_len = 100, .output_len = 28}), "");
  EXPECT_NE(message({.batch_size = 3}).find("--max-running-requests is 2"), std::string::npos);
  EXPECT_NE(message({.batch_size = 2, .input_len = 128}).find("--max-total-tokens"),
            std::string::npos);
  EXPECT_NE(message({.batch_size = 2, .num_drafts = 4}).find("a decode step needs 10"),
            std::string::npos);
  EXPECT_NE(message({.input_len = 1000}).find("at most 256 tokens"), std::string::npos);
}

TEST(DecodeFloor, counts_the_experts_that_a_batch_reads) {
  EXPECT_DOUBLE_EQ(expected_experts(64, 6, 1), 6.0);
  EXPECT_DOUBLE_EQ(expected_experts(0, 0, 8), 0.0);
  EXPECT_NEAR(expected_experts(64, 6, 2), 11.4375, 1e-9);
  EXPECT_NEAR(expected_experts(16, 4, 1000), 16.0, 1e-9);
}

}  // namespace
}  // namespace fathom::apps
