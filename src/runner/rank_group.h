#pragma once
// RankGroup: the ranks of one model in this process, for each a thread, its place in the groups and its part of the
// model, and in the end one Runner over all of them.
//
//   RankGroup ranks({.tp = 2, .dp = 2, .ep = 4}, backend);       // two lanes of two
//   ranks.create_models(config, options);                        // all at once, each on its rank's thread
//   weights::load_parameters_of_ranks(checkpoint, ranks.parameters(), ...);   ranks.finish_loading(threads);
//   ranks.start(runner_config);                                  // step memory, the cache that all can have, graphs
//   engine::StepLoop loop(ranks.runner(), ...);
//
// One rank is a group of one: its runner is a ModelRunner without anything around it.
// Everything throws StartupError where a rank cannot be had, once all ranks have ended what they were told to do.
// One thread calls. Owns all of it.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/group.h"
#include "model/model.h"
#include "runner/model_runner.h"
#include "runner/rank_thread.h"
#include "runner/ranked_runner.h"

namespace fathom::runner {

struct RankSizes {
  int tp = 1;  // ranks of a lane, which hold heads and vocabulary in parts
  int dp = 1;  // lanes, each with sequences of its own
  int ep = 1;  // ranks that hold whole experts in parts: 1 or all
  int count() const { return tp * dp; }
};

class RankGroup {
 public:
  static constexpr int kPatience = 60;
  // Rank i computes on device i of a backend that has several, all ranks on the only one of others. make_group: of the
  // groups that ranks meet in; without it they are threads that meet in host memory, and standstill is for how long
  // others wait for one that does nothing (comm/thread_ranks.h); one that computes may take kPatience as long. Throws
  // StartupError where the backend cannot have several ranks.
  RankGroup(const RankSizes& sizes, const ops::Backend& backend,
            const comm::MakeGroup& make_group = {},
            std::chrono::milliseconds standstill = std::chrono::seconds(5));
  ~RankGroup();

  int size() const { return static_cast<int>(ranks_.size()); }
  const comm::RankContext& context(int rank) const { return at(rank).context; }
  // Runs it on the thread of every rank, all at once, and returns when all have ended.
  void on_every_rank(const std::function<void(int rank)>& task);

  void create_models(const config::ModelConfig& config, const model::ModelOptions& options);
  model::Model& model(int rank = 0) { return *at(rank).model; }
  const model::Model& model(int rank = 0) const { return *at(rank).model; }
  // Of every rank, in the order of ranks.
  std::vector<const std::vector<weights::Parameter>*> parameters() const;
  int64_t weight_bytes() const;  // of all ranks together
  void finish_loading(int num_threads);

  // Both phases of every rank's creation (model_runner.h). REQUIRES: models are loaded; called once.
  void start(const RunnerConfig& config);
  Runner& runner() { return *runner_; }
  // Of rank 0, as those of all others but for their weights.
  const MemoryPlan& plan() const { return plan_; }

 private:
  struct Rank {
    comm::RankContext context;
    std::unique_ptr<RankThread> thread;  // until start()
    std::unique_ptr<model::Model> model;
  };
  const Rank& at(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  void make_groups(const RankSizes& sizes, const comm::MakeGroup& make_group);
  void take_cache(std::vector<std::unique_ptr<ModelRunner>>& runners);
  // Of a group that goes on without the one that is missing.
  std::string group_failure() const;
  // By a rank's thread: a collective does not end. Before there is a runner that ends the process.
  void fail(const std::string& why);
  // Looks for group_failure() until the ranks end: the thread of the rank that is missing may never come back from its
  // step, and the runner waits for it.
  void watch();

  const ops::Backend& backend_;
  int num_lanes_;
  std::vector<std::unique_ptr<comm::Group>> tp_;  // [lane]; none = ranks compute alone
  std::vector<std::unique_ptr<comm::Group>> dp_;  // [place in a lane]
  std::unique_ptr<comm::Group> ep_;
  std::vector<Rank> ranks_;
  MemoryPlan plan_;
  std::mutex mutex_;
  RankedRunner* ranked_ = nullptr;  // guarded by mutex_; of several ranks, once it is there
  std::condition_variable ends_;
  bool is_ending_ = false;          // guarded by mutex_
  std::unique_ptr<Runner> runner_;  // it ends before what its ranks use
  std::thread watcher_;  // of groups that tell nobody of their failure; last: it ends first
};

}  // namespace fathom::runner
