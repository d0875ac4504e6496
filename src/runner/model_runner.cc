#include "runner/model_runner.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/startup_error.h"
#include "base/trace.h"
#include "ops/mla.h"

namespace fathom::runner {
namespace {

// How often a runner with nothing to do asks whether its operators have other kernels by now.
constexpr std::chrono::milliseconds kRenewInterval{100};

void check_config(const RunnerConfig& config, const config::ModelConfig& model, int num_lanes) {
  const auto require = [](bool ok, const std::string& message) {
    if (!ok) throw StartupError(message);
  };
  require(config.max_slots >= 1,
          "max_slots is " + std::to_string(config.max_slots) + ", must be >= 1");
  const int64_t all_slots = int64_t{num_lanes} * config.max_slots;
  require(config.max_batch_tokens >= all_slots,
          "max_batch_tokens is " + std::to_string(config.max_batch_tokens) +
              ", must be >= the running requests, " + std::to_string(all_slots) +
              ", so that all can decode in one step");
  int before = 0;
  for (const int size : config.graph_batch_sizes) {
    require(size > before && size <= config.max_slots,
            "graph_batch_sizes has " + std::to_string(size) + " after " + std::to_string(before) +
                ", must rise and end at most at the running requests, " +
                std::to_string(config.max_slots));
    before = size;
  }
  if (config.context_length.has_value())
    require(*config.context_length >= 1 && *config.context_length <= model.max_position_embeddings,
            "context_length is " + std::to_string(*config.context_length) + ", must be in [1, " +
                std::to_string(model.max_position_embeddings) +
                "], the model's "
                "max_position_embeddings");
}

void check_drafting_operators(const ops::Backend& backend) {
  std::vector<ops::Requirement> needs;
  for (const std::string_view op : {"draft_inputs", "draft_rows", "accept_drafts", "move_rows",
                                    "top_k", "grow_drafts", "select_rows"})
    needs.push_back({op, backend.act});
  std::string message;
  for (const std::string& line : ops::missing_operators(backend, needs))
    message += (message.empty() ? "" : "\n") + line;
  if (!message.empty()) throw StartupError(message);
}

void check_drafter(const RunnerConfig& config, const model::Model& model) {
  const DrafterInfo& drafter = config.drafter;
  if (drafter.num_steps == 0) return;
  check_drafting_operators(model.backend());
  const auto require = [&](bool ok, const std::string& what) {
    if (!ok)
      throw StartupError("a drafter of " + std::to_string(drafter.num_steps) + " steps, top " +
                         std::to_string(drafter.top_k) + ", " +
                         std::to_string(drafter.num_draft_tokens) + " draft tokens " + what);
  };
  require(model.has_mtp(), "needs the model's draft layer, which was not loaded");
  require(model.options().attention_form != model::AttentionForm::kExpanded,
          "needs absorbed attention");
  const bool is_chain = drafter.top_k == 1;
  require(drafter.num_steps > 0 && drafter.top_k >= 1 && drafter.num_draft_tokens >= 2 &&
              drafter.num_draft_tokens <= ops::kMaxTreeTokens &&
              (!is_chain || drafter.num_draft_tokens == drafter.num_steps + 1),
          "does not make sense");
  require(drafter.top_k < model.config().vocab_size, "has a larger top than the vocabulary");
  // All nodes but those of the last step are query tokens of one pass.
  require(is_chain || drafter.top_k * (drafter.num_steps - 1) <= ops::kMaxTreeTokens,
          "looks at more than " + std::to_string(ops::kMaxTreeTokens) +
              " nodes: lower the steps or the top");
}

// Rows that a drafter looks ahead with, behind the blocks of its layer.
int num_spare_blocks(const RunnerConfig& config) {
  return config.drafter.num_steps >= 2 ? config.max_slots : 0;
}

}  // namespace

ModelRunner::ModelRunner(const model::Model& model, const RunnerConfig& config,
                         std::unique_ptr<RankThread> thread)
    : model_(model), config_(config), thread_(std::move(thread)) {
  if (thread_ == nullptr) thread_ = std::make_unique<RankThread>(model.rank(), model.backend());
}

std::unique_ptr<ModelRunner> ModelRunner::create(const model::Model& model,
                                                 const RunnerConfig& config,
                                                 std::unique_ptr<RankThread> thread) {
  std::unique_ptr<ModelRunner> runner = allocate(model, config, std::move(thread));
  runner->start().get();
  return runner;
}

std::unique_ptr<ModelRunner> ModelRunner::make(const model::Model& model,
                                               const RunnerConfig& config,
                                               std::unique_ptr<RankThread> thread) {
  const int num_lanes = model.rank().dp->size();
  check_config(config, model.config(), num_lanes);
  check_drafter(config, model);
  return std::unique_ptr<ModelRunner>(new ModelRunner(model, config, std::move(thread)));
}

std::unique_ptr<ModelRunner> ModelRunner::allocate(const model::Model& model,
                                                   const RunnerConfig& config,
                                                   std::unique_ptr<RankThread> thread) {
  std::unique_ptr<ModelRunner> runner = make(model, config, std::move(thread));
  runner->allocate_step().get();
  runner->allocate_cache(runner->plan_cache(/*num_sharers=*/1)).get();
  FATHOM_LOG(kInfo, "runner", "memory planned", {{"plan", runner->plan_.describe()}});
  return runner;
}

std::future<void> ModelRunner::allocate_step() {
  return thread_->run([this] {
    stream_ = model_.backend().make_stream({.num_threads = config_.num_threads});
    executor_ = std::make_unique<StepExecutor>(
        model_,
        StepExecutorConfig{.max_slots = config_.max_slots,
                           .max_batch_tokens = config_.max_batch_tokens,
                           .max_context_tokens = context_tokens(),
                           .graph_batch_sizes = config_.graph_batch_sizes,
                           .drafter = config_.drafter,
                           .simulated_agreement = config_.simulated_agreement,
                           .steps_per_timing = config_.steps_per_timing,
                           .code_version = config_.code_version},
        *stream_);
    executor_->plan_scratch();
  });
}

int64_t ModelRunner::context_tokens() const {
  return config_.context_length.value_or(model_.config().max_position_embeddings);
}

MemoryPlan ModelRunner::plan_cache(int num_sharers) {
  const ops::Backend& backend = model_.backend();
  const model::KvGroupSpec group = model_.kv_groups().at(0);
  const int64_t spare_bytes = num_spare_blocks(config_) * group.layer_block_bytes();
  int64_t free_bytes = 0;
  thread_->run([&] { free_bytes = backend.free_memory_bytes(); }).get();
  return plan_kv_pool({.weight_bytes = model_.weight_bytes(),
                       .step = executor_->memory(),
                       .free_bytes = free_bytes - num_sharers * spare_bytes,
                       .block_bytes = group.block_bytes(),
                       .block_tokens = group.block_tokens,
                       .num_sharers = num_sharers},
                      {.mem_fraction_static = config_.mem_fraction_static.value_or(
                           backend.defaults.mem_fraction_static),
                       .max_total_tokens = config_.max_total_tokens,
                       .context_tokens = context_tokens(),
                       .context_required = config_.context_length.has_value(),
                       .max_slots = config_.max_slots});
}

std::future<void> ModelRunner::allocate_cache(const MemoryPlan& plan) {
  plan_ = plan;
  const model::KvGroupSpec group = model_.kv_groups().at(0);
  info_ = {.vocab_size = model_.config().vocab_size,
           .max_context_tokens = plan_.max_context_tokens,
           .max_slots = config_.max_slots,
           .max_batch_tokens = config_.max_batch_tokens,
           .step_start_tokens = model_.backend().defaults.step_start_tokens,
           .kv_groups = {{.name = group.name,
                          .num_blocks = plan_.num_blocks,
                          .block_tokens = group.block_tokens,
                          .block_bytes = group.block_bytes(),
                          .lookahead_tokens = config_.drafter.num_steps > 0 ? 1 : 0}},
           .drafter = config_.drafter};
  return thread_->run([this, group] {
    executor_->set_kv(model::KvStorage::allocate(group, plan_.num_blocks, model_.backend(),
                                                 num_spare_blocks(config_)));
  });
}

std::future<void> ModelRunner::start() {
  FATHOM_CHECK(!started_, "the runner was started before");
  started_ = true;
  std::future<void> started = thread_->run([this] {
    for (comm::Communicator* group : {model_.rank().tp, model_.rank().dp, model_.rank().ep})
      group->barrier();
    executor_->capture_graphs();
    if (stream_->runs_ahead()) collector_ = std::thread([this] { collect_results(); });
  });
  thread_->run([this] { work(); });
  return started;
}

void ModelRunner::finish() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  masks_.close();
  submitted_.notify_one();
}

void ModelRunner::give_up() {
  {
    const MutexLock lock(mutex_);
    given_up_ = true;
  }
  finished_.notify_one();
}

ModelRunner::~ModelRunner() {
  finish();
  thread_.reset();
  {
    const MutexLock lock(mutex_);
    worker_done_ = true;
  }
  enqueued_.notify_one();
  if (collector_.joinable()) collector_.join();
}

void ModelRunner::submit(const core::Batch& batch) {
  FATHOM_CHECK(started_, "the runner was not started");
  FATHOM_CHECK(in_flight_ < kMaxInFlight, in_flight_ << " steps in flight");
  FATHOM_CHECK(batch.step_id == next_step_id_,
               "step " << batch.step_id << ", expected " << next_step_id_);
  ++next_step_id_;
  ++in_flight_;
  {
    const MutexLock lock(mutex_);
    batches_.push_back(batch);
  }
  submitted_.notify_one();
}

core::StepResult ModelRunner::wait() {
  FATHOM_CHECK(in_flight_ > 0, "no step in flight");
  MutexLock lock(mutex_);
  finished_.wait(lock, [&]() FATHOM_REQUIRES(mutex_) { return given_up_ || !results_.empty(); });
  if (results_.empty()) return {};
  core::StepResult result = std::move(results_.front());
  results_.pop_front();
  --in_flight_;
  return result;
}

core::SliceWork ModelRunner::slice_work(int num_tokens, int64_t kv_begin) const {
  const model::AttentionForm form = model_.attention_form(num_tokens, kv_begin);
  core::SliceWork work{.linear = num_tokens * model_.linear_macs_per_token()};
  const double attention = model_.attention_macs(form, num_tokens, kv_begin);
  (form == model::AttentionForm::kAbsorbed ? work.absorbed : work.expanded) = attention;
  return work;
}

bool ModelRunner::may_renew_graphs() const {
  return config_.code_version && !config_.graph_batch_sizes.empty() && model_.rank().count() == 1 &&
         !all_is_renewed_;
}

bool ModelRunner::renew_a_graph() {
  // In this order: what comes after the answer is looked for again.
  const bool is_final = config_.code_version().is_final;
  if (executor_->renew_graph()) return true;
  all_is_renewed_ = is_final;
  return false;
}

void ModelRunner::work() {
  MutexLock lock(mutex_);
  const auto is_called = [&]() FATHOM_REQUIRES(mutex_) { return stopping_ || !batches_.empty(); };
  while (true) {
    while (!is_called() && may_renew_graphs()) {
      bool renewed = false;
      if (in_flight_ == 0) {
        lock.unlock();
        renewed = renew_a_graph();
        lock.lock();
      }
      if (!renewed) submitted_.wait_for(lock, kRenewInterval, is_called);
    }
    submitted_.wait(lock, is_called);
    if (batches_.empty()) return;
    const core::Batch batch = std::move(batches_.front());
    batches_.pop_front();
    lock.unlock();
    // At most two steps are between submit() and wait(), so the frame has been collected.
    const int frame = static_cast<int>(batch.step_id % StepExecutor::kNumFrames);
    executor_->enqueue(batch, masks_, frame);
    if (!stream_->runs_ahead()) publish(executor_->collect(frame));
    lock.lock();
    if (!stream_->runs_ahead()) continue;
    frames_.push_back(frame);
    enqueued_.notify_one();
  }
}

void ModelRunner::collect_results() {
  const memory::MustSucceed scope;
  join_rank(model_.rank(), model_.backend(), "results");
  MutexLock lock(mutex_);
  while (true) {
    enqueued_.wait(lock,
                   [&]() FATHOM_REQUIRES(mutex_) { return worker_done_ || !frames_.empty(); });
    if (frames_.empty()) return;
    const int frame = frames_.front();
    frames_.pop_front();
    lock.unlock();
    publish(executor_->collect(frame));
    lock.lock();
  }
}

void ModelRunner::publish(core::StepResult result) {
  {
    const MutexLock lock(mutex_);
    results_.push_back(std::move(result));
  }
  finished_.notify_one();
}

}  // namespace fathom::runner
