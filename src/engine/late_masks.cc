#include "engine/late_masks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/token_mask.h"
#include "engine/request_state.h"

namespace fathom::engine {
namespace {

// A mask takes microseconds to milliseconds; a handful of jobs keeps any pool busy.
constexpr size_t kMaxJobs = 16;

// The masks of one step under way.
struct MaskWork {
  struct Task {
    RequestState* state = nullptr;  // null: its request has ended, everything is allowed
    size_t mask_idx = 0;
  };
  std::vector<Task> tasks;
  size_t row_words = 0;
  core::StepMasks masks;
  std::atomic<size_t> num_jobs_left{0};
};

// Rows 1 and up: what may follow each draft after those above it. A draft that its parent's mask forbids is never
// accepted, so its row and those below stay as they are. Nor is one that allows nothing after it: the runner
// leaves that to the next step, where it is a request's end.
void fill_draft_rows(const RequestState& state, size_t row_words, std::span<uint64_t> words) {
  const size_t num_drafts = std::min(state.drafts.size(), words.size() / row_words - 1);
  const auto row = [&](size_t idx) { return words.subspan(idx * row_words, row_words); };
  const auto parent_row = [&](size_t draft_idx) -> size_t {
    const int32_t parent = state.drafts[draft_idx].parent;
    return parent < 0 ? 0 : static_cast<size_t>(parent) + 1;
  };
  // The last child goes on with its parent's state, so a chain needs one copy.
  std::vector<size_t> last_child(num_drafts + 1, 0);
  for (size_t i = 0; i < num_drafts; ++i) last_child[parent_row(i)] = i + 1;
  std::vector<std::unique_ptr<core::TokenConstraint>> states(num_drafts + 1);
  for (size_t i = 0; i < num_drafts; ++i) {
    const core::Draft& draft = state.drafts[i];
    const size_t parent = parent_row(i);
    if (parent > 0 && states[parent] == nullptr) continue;
    if (!mask_allows(row(parent).data(), draft.token)) continue;
    const core::TokenConstraint& above = parent == 0 ? *state.constraint : *states[parent];
    std::unique_ptr<core::TokenConstraint> next =
        parent > 0 && last_child[parent] == i + 1 ? std::move(states[parent]) : above.clone();
    if (!next->accept(draft.token)) continue;
    std::fill(row(i + 1).begin(), row(i + 1).end(), uint64_t{0});
    next->fill_mask(row(i + 1));
    states[i + 1] = std::move(next);
  }
}

// The last token that the constraint was given tells where in the output it happened.
void end_with(RequestState& state, std::string_view error) {
  state.constraint_error = error;
  const auto num_tokens = static_cast<size_t>(state.num_constrained_tokens);
  FATHOM_LOG(kError, "engine", "a grammar cannot go on",
             {{"why", error},
              {"request", state.id},
              {"token_of_the_answer", state.num_constrained_tokens - state.num_prompt_tokens},
              {"last_token_id", num_tokens > 0 ? state.tokens[num_tokens - 1] : -1}});
}

void fill(RequestState& state, size_t row_words, std::span<uint64_t> words) {
  core::TokenConstraint& constraint = *state.constraint;
  while (state.constraint_error.empty() &&
         state.num_constrained_tokens < state.num_known_tokens()) {
    const auto index = static_cast<size_t>(state.num_constrained_tokens++);
    if (!constraint.accept(state.tokens[index]) || failpoint("late_masks.accept"))
      end_with(state, core::kGrammarRefusal);
  }
  // The request ends with the commit of this step; its token is dropped.
  if (!state.constraint_error.empty()) return;
  const std::span<uint64_t> first = words.first(row_words);
  std::fill(first.begin(), first.end(), uint64_t{0});
  constraint.fill_mask(first);
  if (failpoint("late_masks.fill")) std::fill(first.begin(), first.end(), uint64_t{0});
  if (std::any_of(first.begin(), first.end(), [](uint64_t word) { return word != 0; })) {
    if (words.size() > row_words) fill_draft_rows(state, row_words, words);
    return;
  }
  end_with(state, core::kGrammarDeadEnd);
  std::fill(first.begin(), first.end(), ~uint64_t{0});
}

// A grammar may want any amount of memory for its masks. Without it the request fails, alone.
void fill_guarded(RequestState& state, size_t row_words, std::span<uint64_t> words) {
  try {
    const memory::MayFail scope;
    fill(state, row_words, words);
  } catch (const std::exception&) {
    state.constraint_error = core::kNoMemory;
    std::fill(words.begin(), words.end(), ~uint64_t{0});
  }
}

void run_job(MaskWork& work, size_t first, size_t stride) {
  for (size_t i = first; i < work.tasks.size(); i += stride) {
    const MaskWork::Task& task = work.tasks[i];
    if (task.state != nullptr)
      fill_guarded(*task.state, work.row_words, work.masks.masks[task.mask_idx].words);
  }
}

}  // namespace

LateMasks::LateMasks(runner::Runner& runner, MaskExecutor executor)
    : runner_(runner),
      executor_(std::move(executor)),
      num_pending_steps_(std::make_shared<std::atomic<int>>(0)) {}

LateMasks::~LateMasks() { wait_for_jobs(); }

void LateMasks::wait_for_jobs() const {
  for (int pending = *num_pending_steps_; pending > 0; pending = *num_pending_steps_)
    num_pending_steps_->wait(pending);
}

void LateMasks::start(const sched::PlannedStep& step) {
  std::shared_ptr<MaskWork> work;
  const auto row_words = static_cast<size_t>(num_mask_words(runner_.info().vocab_size));
  for (size_t i = 0; i < step.slices.size(); ++i) {
    if (!step.batch.slices[i].wants_mask) continue;
    if (work == nullptr) {
      work = std::make_shared<MaskWork>();
      work->masks.step_id = step.batch.step_id;
      work->row_words = row_words;
    }
    auto* const state = static_cast<RequestState*>(step.slices[i].sequence);
    if (!state->ended)
      work->tasks.push_back({.state = state, .mask_idx = work->masks.masks.size()});
    const auto num_rows = static_cast<size_t>(step.batch.slices[i].num_sampled_rows());
    work->masks.masks.push_back(
        {.slice_idx = static_cast<int32_t>(i),
         .words = std::vector<uint64_t>(num_rows * row_words, ~uint64_t{0})});
  }
  if (work == nullptr) return;
  const size_t num_jobs = executor_ ? std::clamp<size_t>(work->tasks.size(), 1, kMaxJobs) : 1;
  work->num_jobs_left = num_jobs;
  ++*num_pending_steps_;
  for (size_t job = 0; job < num_jobs; ++job) {
    auto run = [runner = &runner_, pending = num_pending_steps_, work, job, num_jobs] {
      const memory::MustSucceed scope;  // the step waits for its masks
      run_job(*work, job, num_jobs);
      if (--work->num_jobs_left > 0) return;
      runner->set_masks(std::move(work->masks));
      --*pending;
      pending->notify_all();
    };
    if (executor_) {
      executor_(std::move(run));
    } else {
      run();
    }
  }
}

}  // namespace fathom::engine
