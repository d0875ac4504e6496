#pragma once
// What a step loop over SimRunner must answer, computed without step loop, cache or runner: the chain of
// expected_next over the tokens so far, ended by the same rules.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/token_mask.h"
#include "engine/output_collector.h"
#include "engine/step_loop.h"
#include "runner/sim/sim_runner.h"

namespace fathom::engine::testing {

// The constraint of the request, if any, must not have accepted anything yet.
inline core::RequestOutput expected_output(const core::Request& request, uint64_t seed,
                                           const std::vector<int32_t>& eos_token_ids,
                                           int vocab_size) {
  const core::SamplingParams& sampling = request.sampling;
  const auto constraint = request.constraint == nullptr ? nullptr : request.constraint->clone();
  std::vector<int32_t> stops = sampling.stop_token_ids;
  if (!sampling.ignore_eos || constraint != nullptr)
    stops.insert(stops.end(), eos_token_ids.begin(), eos_token_ids.end());
  const bool sampled = sampling.temperature > 0 && sampling.top_k != 1;
  std::vector<int32_t> tokens = request.prompt;
  std::vector<uint64_t> mask;
  core::RequestOutput output{.id = request.id, .finish_reason = core::FinishReason::kLength};
  for (int i = 0; i < sampling.max_new_tokens; ++i) {
    const bool ban = i < sampling.min_new_tokens;
    if (constraint != nullptr) {
      mask.resize(static_cast<size_t>(num_mask_words(vocab_size)));
      constraint->fill_mask(mask);
    }
    const int32_t token = runner::SimRunner::expected_next(
        tokens, {.vocab_size = vocab_size,
                 .seed = sampled ? seed : 0,
                 .banned = ban ? std::span<const int32_t>(stops) : std::span<const int32_t>(),
                 .mask = mask});
    if (token < 0) {
      output.finish_reason = core::FinishReason::kFailed;
      break;
    }
    tokens.push_back(token);
    output.tokens.push_back({.token = token});
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      output.finish_reason = core::FinishReason::kStop;
      output.matched_stop_token = token;
      break;
    }
    if (constraint == nullptr) continue;
    EXPECT_TRUE(constraint->accept(token));
  }
  return output;
}

inline std::vector<int32_t> ids_of(const std::vector<core::SampledToken>& tokens) {
  std::vector<int32_t> ids;
  for (const core::SampledToken& token : tokens) ids.push_back(token.token);
  return ids;
}

// Runs a loop, collects what comes out and fails on what may not happen.
class Recorder {
 public:
  explicit Recorder(StepLoop& loop) : loop_(loop) {
    collector_.on_tokens = [this](core::RequestId id, std::span<const core::SampledToken> tokens) {
      EXPECT_EQ(finished.count(id), 0u) << "request " << id << ": tokens after the end";
      for (const core::SampledToken& token : tokens) streamed[id].push_back(token.token);
    };
    collector_.on_finish = [this](core::RequestOutput output) {
      EXPECT_EQ(streamed[output.id], ids_of(output.tokens)) << "request " << output.id;
      const core::RequestId id = output.id;
      if (output.matched_stop_token >= 0) ++num_stop_token_ends;
      EXPECT_TRUE(finished.emplace(id, std::move(output)).second) << id << " finished twice";
    };
  }
  bool step() { return collector_.step(loop_); }
  void run() { collector_.run(loop_); }

  std::map<core::RequestId, std::vector<int32_t>> streamed;
  std::map<core::RequestId, core::RequestOutput> finished;
  int64_t num_stop_token_ends = 0;  // of these, requests that a stop token ended

 private:
  StepLoop& loop_;
  OutputCollector collector_;
};

// Slots and blocks are as they were before the first request, but for what the prefix cache keeps.
inline void expect_everything_returned(const StepLoop& loop, const runner::RunnerInfo& info) {
  EXPECT_EQ(loop.num_running(), 0);
  EXPECT_EQ(loop.num_waiting(), 0);
  EXPECT_EQ(loop.scheduler().num_free_slots(), info.max_slots);
  const sched::KvUsage usage = loop.scheduler().kv_usage();
  EXPECT_EQ(usage.num_leased, 0);
  EXPECT_EQ(usage.num_evictable, usage.num_cached);
  for (size_t i = 0; i < info.kv_groups.size(); ++i) {
    int num_free = 0;
    for (int lane = 0; lane < info.num_lanes; ++lane)
      num_free += loop.scheduler().pool(static_cast<int>(i), lane).num_free();
    EXPECT_EQ(num_free + usage.num_cached, info.num_lanes * info.kv_groups[i].num_blocks);
  }
}

}  // namespace fathom::engine::testing
