#pragma once
// ModelRunner: the runner over a model. The rank's thread owns the stream and enqueues submitted steps in order, so
// the caller plans the next step while one computes. On a stream that runs ahead of its work a second thread
// collects results, so a step is enqueued while the one before computes.
//
//   std::unique_ptr<ModelRunner> runner = ModelRunner::create(*model, {.max_slots = 64});
//   std::puts(runner->plan().describe().c_str());
//   runner->submit(batch);  core::StepResult result = runner->wait();
//
// It comes to be in two phases, both on the rank's thread. A collective waits for all ranks of its group, so ranks that
// were created one after another would wait for ever:
//
//   for (...) runners[i] = ModelRunner::allocate(*models[i], config, std::move(threads[i]));   // one may throw
//   for (...) started[i] = runners[i]->start();                                                // all, then
//   for (...) started[i].get();
//
// Ranks that hold the same rows take the first phase in three parts, since each must know what is left when all have
// their step's memory, and the smallest cache is everybody's (rank_group.h).
//
// The model (loaded, finish_loading() called) outlives the runner. One thread submits and one, perhaps another, waits;
// any thread sets masks. Contract: runner.h and docs/contracts/runner.md.

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "model/model.h"
#include "runner/mask_mailbox.h"
#include "runner/memory_plan.h"
#include "runner/rank_thread.h"
#include "runner/runner.h"
#include "runner/step_executor.h"

namespace fathom::runner {

struct RunnerConfig {
  int max_slots = 64;           // running sequences, of each lane
  int max_batch_tokens = 2048;  // query tokens of one step of all lanes; at least a slot's each
  // Longest sequence. None = the model's max_position_embeddings, or what the cache holds if that is less.
  std::optional<int64_t> context_length{};
  // Part of the memory that is free after weights and the largest step which the cache may take. None =
  // 0.25 on a CPU, whose memory others use too, and 0.9 elsewhere. The cache never takes more than
  // max_slots sequences of the context can fill.
  std::optional<double> mem_fraction_static{};
  std::optional<int64_t> max_total_tokens{};  // size of the cache instead of a fraction
  int num_threads = 0;                        // of a CPU backend; 0 = its default
  // Numbers of requests for which a step of decodes is captured as a graph, rising, none above max_slots. Empty =
  // steps are never captured.
  std::vector<int> graph_batch_sizes{};
  // What the model's MTP layer proposes; num_steps 0: it is not used.
  DrafterInfo drafter{};
  // Accept drafts with this probability each, whatever the model says: for measurements with random weights only.
  std::optional<float> simulated_agreement{};
  // On a device that runs behind the host the parts of one step in so many are measured, and those of every step that
  // waits for masks: the two events between launches cost some 20 us of V2-Lite's 2.8 ms for one sequence on an H200.
  int steps_per_timing = 16;
  // Asked while no step is in flight: what was captured with other kernels is captured again then. Null = they stay as
  // they are. Only a rank that computes alone does so: another one could wait for it in a step.
  GetCodeVersion code_version{};
};

class ModelRunner : public Runner {
 public:
  // Both phases, for a rank that waits for no other. thread: null = one of its own.
  static std::unique_ptr<ModelRunner> create(const model::Model& model, const RunnerConfig& config,
                                             std::unique_ptr<RankThread> thread = nullptr);
  // The first phase: measures, and allocates everything that a step needs. Meets no other rank. Throws StartupError
  // when a setting is out of range or memory does not suffice.
  static std::unique_ptr<ModelRunner> allocate(const model::Model& model,
                                               const RunnerConfig& config,
                                               std::unique_ptr<RankThread> thread);
  // Its parts. make() checks the settings; allocate_step() measures and allocates all but the cache, on the rank's
  // thread, and returns at once; plan_cache() says how large a cache may be, of memory that num_sharers ranks have in
  // common; allocate_cache() takes it. get() and the others throw StartupError.
  static std::unique_ptr<ModelRunner> make(const model::Model& model, const RunnerConfig& config,
                                           std::unique_ptr<RankThread> thread);
  std::future<void> allocate_step();
  MemoryPlan plan_cache(int num_sharers);
  std::future<void> allocate_cache(const MemoryPlan& plan);
  // The second phase, once: waits for the other ranks and captures, which runs collectives. Returns at once. After it
  // steps may be submitted; the first one waits for it.
  std::future<void> start();
  // Finishes the steps in flight; those whose masks have not come by then, without masks. Of ranks that compute
  // together all are told to finish() before one is destroyed: it may wait for them in a collective.
  ~ModelRunner() override;
  void finish() override;
  void give_up() override;

  const RunnerInfo& info() const override { return info_; }
  const MemoryPlan& plan() const { return plan_; }
  void submit(const core::Batch& batch) override;
  core::StepResult wait() override;
  void share_masks(SharedMasks masks) override { masks_.put(std::move(masks)); }
  core::SliceWork slice_work(int num_tokens, int64_t kv_begin) const override;
  int in_flight() const override { return in_flight_; }
  int64_t next_step_id() const override { return next_step_id_; }

 private:
  ModelRunner(const model::Model& model, const RunnerConfig& config,
              std::unique_ptr<RankThread> thread);
  int64_t context_tokens() const;
  void work();
  // Steps are captured again one by one while nothing is to be done, for as long as there may be some.
  bool may_renew_graphs() const;
  bool renew_a_graph();
  void collect_results();
  void publish(core::StepResult result);

  const model::Model& model_;
  const RunnerConfig config_;
  std::unique_ptr<ops::Stream> stream_;
  std::unique_ptr<StepExecutor> executor_;  // used by the rank's thread
  MemoryPlan plan_;
  RunnerInfo info_;
  MaskMailbox masks_;
  std::atomic<int> in_flight_ = 0;  // by the threads that submit and wait
  int64_t next_step_id_ = 0;        // caller's side
  bool started_ = false;            // caller's side
  bool all_is_renewed_ = false;     // by the rank's thread: no kernel is to come

  Mutex mutex_;
  CondVar submitted_, enqueued_, finished_;
  std::deque<core::Batch> batches_ FATHOM_GUARDED_BY(mutex_);
  std::deque<int> frames_ FATHOM_GUARDED_BY(mutex_);  // enqueued, not collected
  std::deque<core::StepResult> results_ FATHOM_GUARDED_BY(mutex_);
  bool stopping_ FATHOM_GUARDED_BY(mutex_) = false;
  bool given_up_ FATHOM_GUARDED_BY(mutex_) = false;
  bool worker_done_ FATHOM_GUARDED_BY(mutex_) = false;
  std::thread collector_;  // these last: they use everything above
  std::unique_ptr<RankThread> thread_;
};

}  // namespace fathom::runner
