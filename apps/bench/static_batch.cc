#include "apps/bench/static_batch.h"

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/rng.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

constexpr int kBlockTokens = 64, kMaxPromptId = 10'000;

int blocks_of(const StaticBatchShape& shape, int block_tokens) {
  return (shape.input_len + shape.output_len + block_tokens - 1) / block_tokens;
}

}  // namespace

int64_t StaticBatchShape::cache_tokens(int num_lanes) const {
  return int64_t{lane_sequences(num_lanes)} * blocks_of(*this, kBlockTokens) * kBlockTokens;
}

void check_fits(const StaticBatchShape& shape, const runner::RunnerInfo& info) {
  const std::string size = std::to_string(shape.batch_size) + " sequences of " +
                           std::to_string(shape.input_len) + " + " +
                           std::to_string(shape.output_len) + " tokens";
  if (shape.batch_size > info.max_slots) {
    throw StartupError(size + ": --max-running-requests is " + std::to_string(info.max_slots));
  }
  const int64_t step_tokens = int64_t{shape.batch_size} * (1 + shape.num_drafts);
  if (step_tokens > info.max_batch_tokens) {
    throw StartupError(size + ": --chunked-prefill-size is " +
                       std::to_string(info.max_batch_tokens) + ", a decode step needs " +
                       std::to_string(step_tokens));
  }
  if (shape.input_len + shape.output_len > info.max_context_tokens) {
    throw StartupError(size + ": a sequence holds at most " +
                       std::to_string(info.max_context_tokens) + " tokens");
  }
  for (const runner::KvGroupInfo& group : info.kv_groups) {
    const int64_t need =
        int64_t{shape.lane_sequences(info.num_lanes)} * blocks_of(shape, group.block_tokens);
    if (need > group.num_blocks) {
      throw StartupError(size + ": the cache has " + std::to_string(group.num_blocks) +
                         " blocks of " + std::to_string(group.block_tokens) + " tokens, needs " +
                         std::to_string(need) + "; raise --max-total-tokens");
    }
  }
}

std::vector<int32_t> random_prompt(uint64_t seed, int number, int length, int vocab_size) {
  const auto limit = static_cast<uint32_t>(std::min(kMaxPromptId, vocab_size));
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i) {
    const uint32_t bits = philox(seed, static_cast<uint64_t>(number), static_cast<uint64_t>(i))[0];
    prompt.push_back(static_cast<int32_t>(bits % limit));
  }
  return prompt;
}

StaticBatch::StaticBatch(runner::Runner& runner, const StaticBatchShape& shape)
    : runner_(runner), shape_(shape) {
  for (int sequence = 0; sequence < shape.batch_size; ++sequence)
    sequences_.push_back(
        {.prompt = random_prompt(shape.seed, sequence, shape.input_len, runner.info().vocab_size)});
}

StaticBatch::~StaticBatch() {
  while (runner_.in_flight() > 0) runner_.wait();  // behind an error
  core::Batch batch{.step_id = runner_.next_step_id()};
  for (int i = 0; i < shape_.batch_size; ++i) batch.releases.push_back(slot_of(i));
  // Not wait(): a release has nothing to fail, and a destructor must not throw.
  runner_.submit(batch);
  runner_.wait();
}

int32_t StaticBatch::slot_of(int sequence) const {
  const runner::RunnerInfo& info = runner_.info();
  return sequence % info.num_lanes * info.slots_per_lane() + sequence / info.num_lanes;
}

StaticBatch::Sequence& StaticBatch::sequence_in(int32_t slot) {
  const runner::RunnerInfo& info = runner_.info();
  const int lane = slot / info.slots_per_lane(), place = slot % info.slots_per_lane();
  const int sequence = place * info.num_lanes + lane;
  return sequences_[static_cast<size_t>(sequence)];
}

double StaticBatch::prefill() {
  const Stopwatch watch;
  std::vector<int> done(sequences_.size(), 0);
  size_t first = 0;
  bool admitted = false;
  while (first < sequences_.size()) {
    core::Batch batch{.step_id = runner_.next_step_id()};
    if (!admitted) admit(batch);
    admitted = true;
    int room = runner_.info().max_batch_tokens;
    for (size_t s = first; s < sequences_.size() && room > 0; ++s) {
      const int tokens = std::min(room, shape_.input_len - done[s]);
      const auto begin = sequences_[s].prompt.begin() + done[s];
      done[s] += tokens;
      room -= tokens;
      const bool last = done[s] == shape_.input_len;
      const int num_drafts = last ? num_drafts_to_ask(shape_.output_len - 1) : 0;
      batch.slices.push_back({.slot = slot_of(static_cast<int>(s)),
                              .num_tokens = tokens,
                              .tokens = std::vector<int32_t>(begin, begin + tokens),
                              .outputs = last ? core::Outputs::kLast : core::Outputs::kNone,
                              .num_drafts_to_propose = num_drafts});
      if (!last) continue;
      sequences_[s].num_awaited = 1;
      ++first;
    }
    submit(batch);
    while (runner_.in_flight() > (shape_.overlap ? 1 : 0)) wait();
  }
  while (runner_.in_flight() > 0) wait();
  return watch.seconds();
}

StaticStep StaticBatch::decode() {
  if (runner_.in_flight() == 0) submit_decode();
  if (shape_.overlap && can_plan_ahead()) submit_decode();
  return wait();
}

bool StaticBatch::can_plan_ahead() const {
  return std::all_of(sequences_.begin(), sequences_.end(), [this](const Sequence& sequence) {
    return num_wanted(sequence) <= 0 ||
           num_wanted(sequence) - sequence.num_awaited > shape_.num_drafts;
  });
}

void StaticBatch::submit_decode() {
  core::Batch batch{.step_id = runner_.next_step_id()};
  for (int i = 0; i < shape_.batch_size; ++i) {
    Sequence& sequence = sequences_[static_cast<size_t>(i)];
    if (num_wanted(sequence) <= 0) continue;
    const int wanted = num_wanted(sequence) - sequence.num_awaited;
    const int num_tokens = std::min(1 + sequence.num_drafts, wanted);
    const int num_drafts = num_drafts_to_ask(wanted - 1);
    batch.slices.push_back({.slot = slot_of(i),
                            .num_tokens = num_tokens,
                            .outputs = num_tokens > 1 ? core::Outputs::kAll : core::Outputs::kLast,
                            .num_drafts_to_propose = num_drafts});
    sequence.num_drafts = num_drafts;
    sequence.num_awaited += num_tokens;
  }
  submit(batch);
}

bool StaticBatch::done() const {
  return std::all_of(sequences_.begin(), sequences_.end(),
                     [this](const Sequence& sequence) { return num_wanted(sequence) <= 0; });
}

// The last token wanted needs no draft.
int StaticBatch::num_drafts_to_ask(int num_wanted_after) const {
  return std::clamp(num_wanted_after - 1, 0, shape_.num_drafts);
}

void StaticBatch::admit(core::Batch& batch) const {
  core::SamplingParams greedy;
  greedy.temperature = 0;
  greedy.max_new_tokens = shape_.output_len;
  greedy.ignore_eos = true;
  const std::vector<runner::KvGroupInfo>& groups = runner_.info().kv_groups;
  for (int sequence = 0; sequence < shape_.batch_size; ++sequence) {
    const int32_t slot = slot_of(sequence), place = slot % runner_.info().slots_per_lane();
    batch.admissions.push_back({.slot = slot,
                                .prompt = sequences_[static_cast<size_t>(sequence)].prompt,
                                // A verified row behind the last token wanted has no block.
                                .max_rows = shape_.input_len + shape_.output_len - 1,
                                .sampling = greedy});
    for (size_t g = 0; g < groups.size(); ++g) {
      const int count = blocks_of(shape_, groups[g].block_tokens);
      core::BlockAppend append{.slot = slot, .kv_group = static_cast<int32_t>(g)};
      for (int i = 0; i < count; ++i) append.block_ids.push_back(place * count + i);
      batch.block_appends.push_back(std::move(append));
    }
  }
}

void StaticBatch::submit(const core::Batch& batch) {
  if (runner_.in_flight() == 0) step_watch_.restart();
  runner_.submit(batch);
}

StaticStep StaticBatch::wait() {
  const core::StepResult result = runner_.wait();
  StaticStep step{.seconds = step_watch_.seconds()};
  step_watch_.restart();
  for (const core::SliceResult& slice : result.slices) {
    if (!slice.error.empty()) {
      throw StartupError("step " + std::to_string(result.step_id) + ", slot " +
                         std::to_string(slice.slot) + ": " + slice.error);
    }
    take(slice, step);
  }
  return step;
}

void StaticBatch::take(const core::SliceResult& slice, StaticStep& step) {
  Sequence& sequence = sequence_in(slice.slot);
  const auto num_tokens = static_cast<int>(slice.tokens.size());
  ++step.num_sequences;
  step.num_tokens += num_tokens;
  sequence.num_tokens += num_tokens;
  if (num_tokens > 0) sequence.num_awaited -= 1 + slice.num_verified_drafts;
  if (sequence.num_awaited == 0) sequence.num_drafts = static_cast<int>(slice.drafts.size());
  speculation_.num_drafts_proposed += std::ssize(slice.drafts);
  if (slice.num_verified_drafts > 0) {
    speculation_.add_verified(slice.num_verified_drafts, num_tokens - 1, num_tokens);
  }
}

}  // namespace fathom::apps
