#pragma once
// RankGroup: the ranks of one model in this process, for each a thread, its place in the groups and its part of the
// model, and in the end one Runner over all ranks of the model.
//
//   RankGroup ranks({.tp = 2, .dp = 2, .ep = 4}, backend);       // two lanes of two
//   ranks.create_models(config, options);                        // all at once, each on its rank's thread
//   weights::load_parameters_of_ranks(checkpoint, ranks.parameters(), ...);   ranks.finish_loading(threads);
//   ranks.start(runner_config);                                  // step memory, the cache that all can have, graphs
//   engine::StepLoop loop(ranks.runner(), ...);
//
// One rank is a group of one: its runner is a ModelRunner without anything around it.
//
// The ranks of a model may be shared out equally among nodes, of which this process is one. Each has a RankGroup of the
// same sizes with links to all others; they measure, agree on a cache and start together. Node 0 has the runner, over
// its own ranks and the others' nodes; the others follow:
//
//   RankGroup ranks(sizes, backend, {}, standstill, {.node = 1, .links = {&to_node_0, nullptr}});
//   ...  ranks.start(runner_config);                             // as on node 0
//   if (std::string why = ranks.follow(); !why.empty()) ...      // until node 0 ends or a node has failed
//
// A link that fails is a failure of the runner on node 0 and ends follow() on the others, within a second.
// Everything throws StartupError where a rank cannot be had, once all ranks have ended what they were told to do.
// One thread calls. Owns all of it.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "comm/group.h"
#include "comm/link.h"
#include "comm/node_ranks.h"
#include "comm/thread_ranks.h"
#include "model/model.h"
#include "runner/model_runner.h"
#include "runner/rank_thread.h"
#include "runner/ranks/follower.h"
#include "runner/ranks/ranked_runner.h"

namespace fathom::runner {

struct RankSizes {
  int tp = 1;         // ranks of a lane, which hold heads and vocabulary in parts
  int dp = 1;         // lanes, each with sequences of its own
  int ep = 1;         // ranks that hold whole experts in parts: 1 or all
  int sum_parts = 1;  // of sums over ranks (comm::RankContext::sum_parts)
  int count() const { return tp * dp; }
};

// Where this process is among the nodes of a model.
struct NodePlace {
  int node = 0;
  // [node]; null for this one, none for a model on one node. They outlive the RankGroup, which uses all channels.
  std::vector<comm::Link*> links{};
  // Of groups over several nodes; null = they meet in host memory.
  comm::MakeNodeGroup make_group{};
  int num_nodes() const { return links.empty() ? 1 : static_cast<int>(links.size()); }
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
            std::chrono::milliseconds standstill = std::chrono::seconds(5), NodePlace place = {});
  // Where ranks may wait for ever, that ends the process.
  ~RankGroup();

  // Ranks in this process; [0, size()) below are these. Of all ranks of the model they are those from first_rank() on.
  int size() const { return static_cast<int>(ranks_.size()); }
  int first_rank() const { return place_.node * sizes_.count() / place_.num_nodes(); }
  const comm::RankContext& context(int rank) const { return at(rank).context; }
  // Runs it on the thread of every rank, all at once, and returns when all have ended.
  void on_every_rank(const std::function<void(int rank)>& task);

  void create_models(const config::ModelConfig& config, const model::ModelOptions& options);
  model::Model& model(int rank = 0) { return *at(rank).model; }
  const model::Model& model(int rank = 0) const { return *at(rank).model; }
  // Of every rank, in the order of ranks.
  std::vector<const std::vector<weights::Parameter>*> parameters() const;
  int64_t weight_bytes() const;  // of these ranks together
  void finish_loading(int num_threads);

  // Both phases of every rank's creation (model_runner.h). REQUIRES: models are loaded; called once.
  void start(const RunnerConfig& config);
  // REQUIRES: node 0.
  Runner& runner();
  // On every other node: computes what node 0's runner submits. Returns why nothing can be computed any more, and then
  // ranks here may wait for ever; empty = node 0's RankGroup has ended.
  std::string follow();
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
  void check_place() const;
  void make_groups(const comm::MakeGroup& make_group);
  // Every step'th rank of the model from `first` on; null where none is here.
  struct Members {
    std::string name;
    int first = 0, count = 1, step = 1;
    uint32_t channel = 0;  // of a group over several nodes
  };
  std::unique_ptr<comm::Group> make_group_of(const Members& members,
                                             const comm::MakeGroup& make_group);
  int node_of(int rank) const { return rank * place_.num_nodes() / sizes_.count(); }
  comm::ThreadRanksConfig threads_config();
  // The fewest blocks that any node's ranks can have.
  int agreed_blocks(int blocks) const;
  std::vector<RankedMember> members_of_all_nodes();
  void make_runner();
  void make_follower();
  void take_cache(std::vector<std::unique_ptr<ModelRunner>>& runners);
  // Of a group that goes on without the one that is missing.
  std::string group_failure() const;
  // By a rank's thread: a collective does not end. Before there is a runner that ends the process, or, of several
  // nodes, start().
  void fail(const std::string& why);
  void fail_with_lock(const std::string& why) FATHOM_REQUIRES(mutex_);
  // Looks for a failure of a group or a link until the ranks end: the thread of the rank that is missing may never come
  // back from its step, and the runner waits for it.
  void watch();

  const RankSizes sizes_;
  const ops::Backend& backend_;
  const NodePlace place_;
  const std::chrono::milliseconds standstill_;
  std::vector<std::unique_ptr<comm::Group>> tp_;  // [lane]; none = ranks compute alone
  std::vector<std::unique_ptr<comm::Group>> dp_;  // [place in a lane]
  std::unique_ptr<comm::Group> ep_;
  std::vector<Rank> ranks_;
  MemoryPlan plan_;
  Mutex mutex_;
  RankedRunner* ranked_ FATHOM_GUARDED_BY(mutex_) = nullptr;  // of several ranks, once it is there
  Follower* followed_ FATHOM_GUARDED_BY(mutex_) = nullptr;    // on nodes but 0, once it is there
  std::string failure_ FATHOM_GUARDED_BY(mutex_);             // why follow() ended
  CondVar ends_;
  bool is_ending_ FATHOM_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Runner>> runners_;  // of these ranks; node 0's are runner_'s
  std::unique_ptr<Follower> follower_;
  std::unique_ptr<Runner> runner_;  // it ends before what its ranks use
  std::thread watcher_;  // of groups that tell nobody of their failure; last: it ends first
};

}  // namespace fathom::runner
