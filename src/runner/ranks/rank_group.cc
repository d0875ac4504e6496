#include "runner/ranks/rank_group.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "comm/node_ranks.h"
#include "comm/thread_ranks.h"
#include "runner/ranks/node_messages.h"
#include "runner/ranks/remote_runner.h"

namespace fathom::runner {
namespace {

// All of them, then the first error.
void wait_for_all(std::vector<std::future<void>>& futures) {
  std::exception_ptr error;
  for (std::future<void>& future : futures) {
    try {
      future.get();
    } catch (const StartupError&) {
      if (error == nullptr) error = std::current_exception();
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace

RankGroup::RankGroup(const RankSizes& sizes, const ops::Backend& backend,
                     const comm::MakeGroup& make_group, std::chrono::milliseconds standstill,
                     NodePlace place)
    : sizes_(sizes), backend_(backend), place_(std::move(place)), standstill_(standstill) {
  check_place();
  if (sizes.count() > 1 && backend.device_memory && !make_group)
    throw StartupError(std::to_string(sizes.count()) +
                       " ranks need a CPU: their collectives work in host memory, and " +
                       std::string(backend.name) + " has memory of its own");
  const auto thread_ranks = [&](const std::string& name, const std::vector<int>& devices) {
    return std::make_unique<comm::ThreadRanks>(name, static_cast<int>(devices.size()),
                                               threads_config());
  };
  make_groups(make_group ? make_group : thread_ranks);
  const int num_here = sizes.count() / place_.num_nodes();
  for (int i = first_rank(); i < first_rank() + num_here; ++i) {
    Rank rank;
    const int lane = i / sizes.tp, of_lane = i % sizes.tp;
    if (backend.use_device != nullptr) rank.context.device = i - first_rank();
    if (!tp_.empty()) rank.context.tp = &tp_[static_cast<size_t>(lane)]->of(of_lane);
    if (!dp_.empty()) rank.context.dp = &dp_[static_cast<size_t>(of_lane)]->of(lane);
    if (ep_ != nullptr) rank.context.ep = &ep_->of(i);
    rank.context.sum_parts = sizes.sum_parts;
    rank.thread = std::make_unique<RankThread>(rank.context, backend);
    ranks_.push_back(std::move(rank));
  }
}

void RankGroup::check_place() const {
  const int num_nodes = place_.num_nodes();
  if (num_nodes == 1) return;
  if (backend_.device_memory && !place_.make_group)
    throw StartupError(
        "several nodes need a CPU: between nodes tensors go through host memory, and " +
        std::string(backend_.name) + " has memory of its own");
  if (sizes_.count() % num_nodes != 0)
    throw StartupError(std::to_string(sizes_.count()) + " ranks on " + std::to_string(num_nodes) +
                       " nodes: each must have as many, at least one");
}

comm::ThreadRanksConfig RankGroup::threads_config() {
  return {.standstill = standstill_,
          .deadline = kPatience * standstill_,
          .on_failure = [this](const std::string& why) { fail(why); }};
}

std::unique_ptr<comm::Group> RankGroup::make_group_of(const Members& members,
                                                      const comm::MakeGroup& make_group) {
  comm::NodeRanksConfig config{.starts = {0}, .channel = comm::Link::kFirstGroup + members.channel};
  bool is_here = false;
  std::vector<int> devices;
  for (int i = 0, node = -1; i < members.count; ++i) {
    const int rank = members.first + i * members.step;
    if (node_of(rank) == place_.node)
      devices.push_back(backend_.use_device == nullptr ? 0 : rank - first_rank());
    if (i > 0 && node_of(rank) == node) {
      ++config.starts.back();
      continue;
    }
    node = node_of(rank);
    if (node == place_.node) config.node = static_cast<int>(config.links.size());
    is_here = is_here || node == place_.node;
    config.links.push_back(place_.links.empty() ? nullptr
                                                : place_.links[static_cast<size_t>(node)]);
    config.starts.push_back(i + 1);
  }
  if (!is_here) return nullptr;
  if (config.links.size() == 1) return make_group(members.name, devices);
  config.threads = threads_config();
  if (place_.make_group) return place_.make_group(members.name, devices, std::move(config));
  return std::make_unique<comm::NodeRanks>(members.name, std::move(config));
}

void RankGroup::make_groups(const comm::MakeGroup& make_group) {
  const int tp = sizes_.tp, dp = sizes_.dp, ep = sizes_.ep;
  for (int lane = 0; tp > 1 && lane < dp; ++lane)
    tp_.push_back(make_group_of({.name = dp == 1 ? "tp" : "tp of lane " + std::to_string(lane),
                                 .first = lane * tp,
                                 .count = tp,
                                 .channel = static_cast<uint32_t>(lane)},
                                make_group));
  for (int of_lane = 0; dp > 1 && of_lane < tp; ++of_lane)
    dp_.push_back(make_group_of({.name = tp == 1 ? "dp" : "dp of place " + std::to_string(of_lane),
                                 .first = of_lane,
                                 .count = dp,
                                 .step = tp,
                                 .channel = static_cast<uint32_t>(dp + of_lane)},
                                make_group));
  if (ep > 1)
    ep_ = make_group_of({.name = "ep", .count = ep, .channel = static_cast<uint32_t>(dp + tp)},
                        make_group);
}

// The others' ranks end when all have done their last step, and then the nodes.
RankGroup::~RankGroup() {
  {
    const MutexLock lock(mutex_);
    FATHOM_CHECK(failure_.empty(), failure_);
    ranked_ = nullptr;
    is_ending_ = true;
  }
  ends_.notify_one();
  if (watcher_.joinable()) watcher_.join();
  const bool had_runner = runner_ != nullptr;
  runner_.reset();
  for (const auto& runner : runners_) runner->finish();
  if (!had_runner) return;
  for (comm::Link* link : place_.links)
    if (link != nullptr)
      link->send(comm::Link::kPlans, encode({.kind = NodeMessageKind::kNodeEnds}));
}

void RankGroup::watch() {
  constexpr auto kPause = std::chrono::milliseconds(100);
  MutexLock lock(mutex_);
  while (!ends_.wait_for(lock, kPause, [&]() FATHOM_REQUIRES(mutex_) { return is_ending_; })) {
    // Links first: they name who has gone, where a group knows only that its own rank waits in vain.
    std::string why;
    for (const comm::Link* link : place_.links)
      if (why.empty() && link != nullptr) why = link->failure();
    if (why.empty()) why = group_failure();
    if (!why.empty()) return fail_with_lock(why);
  }
}

void RankGroup::fail(const std::string& why) {
  const MutexLock lock(mutex_);
  fail_with_lock(why);
}

// All nodes fail. Before they compute that is an error of the start, of each rank's thread that waits for others.
void RankGroup::fail_with_lock(const std::string& why) {
  const bool starts = ranked_ == nullptr && followed_ == nullptr;
  FATHOM_CHECK(!starts || (place_.num_nodes() > 1 && !is_ending_), why);
  for (comm::Link* link : place_.links)
    if (link != nullptr) link->fail(why);
  if (starts) throw StartupError(why);
  if (ranked_ != nullptr) return ranked_->fail(why);
  followed_->fail(why);
}

std::string RankGroup::group_failure() const {
  std::string why;
  for (const auto* groups : {&tp_, &dp_})
    for (const auto& group : *groups)
      if (why.empty() && group != nullptr) why = group->failure();
  return why.empty() && ep_ != nullptr ? ep_->failure() : why;
}

void RankGroup::on_every_rank(const std::function<void(int rank)>& task) {
  std::vector<std::future<void>> done;
  for (int i = 0; i < size(); ++i) done.push_back(at(i).thread->run([&task, i] { task(i); }));
  wait_for_all(done);
}

void RankGroup::create_models(const config::ModelConfig& config,
                              const model::ModelOptions& options) {
  on_every_rank([&](int rank) {
    at(rank).model = model::Model::create(config, options, backend_, at(rank).context);
  });
}

std::vector<const std::vector<weights::Parameter>*> RankGroup::parameters() const {
  std::vector<const std::vector<weights::Parameter>*> lists;
  for (const Rank& rank : ranks_) lists.push_back(&rank.model->parameters());
  return lists;
}

int64_t RankGroup::weight_bytes() const {
  int64_t bytes = 0;
  for (const Rank& rank : ranks_) bytes += rank.model->weight_bytes();
  return bytes;
}

void RankGroup::finish_loading(int num_threads) {
  on_every_rank([&](int rank) {
    const auto stream = backend_.make_stream({.num_threads = num_threads});
    at(rank).model->finish_loading(*stream);
  });
}

// What is free is known when every rank has its step's memory, and the ranks hold the same rows, so all take what the
// one with the least room can.
void RankGroup::take_cache(std::vector<std::unique_ptr<ModelRunner>>& runners) {
  const int num_sharers = backend_.device_memory ? 1 : size();
  std::vector<MemoryPlan> plans;
  for (const auto& runner : runners) plans.push_back(runner->plan_cache(num_sharers));
  const auto by_blocks = [](const MemoryPlan& a, const MemoryPlan& b) {
    return a.num_blocks < b.num_blocks;
  };
  const int blocks =
      agreed_blocks(std::min_element(plans.begin(), plans.end(), by_blocks)->num_blocks);
  std::vector<std::future<void>> done;
  for (size_t i = 0; i < runners.size(); ++i)
    done.push_back(runners[i]->allocate_cache(plans[i].with_blocks(blocks)));
  wait_for_all(done);
  plan_ = runners[0]->plan();
  FATHOM_LOG(kInfo, "runner", "memory planned",
             {{"plan", plan_.describe()}, {"ranks", sizes_.count()}});
}

// Node 0 hears what each can have and tells all.
int RankGroup::agreed_blocks(int blocks) const {
  const auto send = [](comm::Link& link, uint32_t channel, int number) {
    link.send(channel, encode({.kind = NodeMessageKind::kCacheBlocks, .number = number}));
  };
  const auto receive = [](comm::Link& link, uint32_t channel) {
    const NodeMessage message = value_or_throw(decode_node_message(link.receive(channel)));
    if (message.kind != NodeMessageKind::kCacheBlocks || message.number < 0)
      throw StartupError("what came from another node is no size of a cache");
    return static_cast<int>(std::min<int64_t>(message.number, std::numeric_limits<int>::max()));
  };
  try {
    if (place_.node > 0) {
      send(*place_.links[0], comm::Link::kResults, blocks);
      return std::min(blocks, receive(*place_.links[0], comm::Link::kPlans));
    }
    for (comm::Link* link : place_.links)
      if (link != nullptr) blocks = std::min(blocks, receive(*link, comm::Link::kResults));
    for (comm::Link* link : place_.links)
      if (link != nullptr) send(*link, comm::Link::kPlans, blocks);
  } catch (const comm::LinkFailure& failure) {
    throw StartupError(failure.what());
  }
  return blocks;
}

void RankGroup::start(const RunnerConfig& config) {
  std::vector<std::unique_ptr<ModelRunner>> runners;
  std::vector<std::future<void>> done;
  for (Rank& rank : ranks_) {
    runners.push_back(ModelRunner::make(*rank.model, config, std::move(rank.thread)));
    done.push_back(runners.back()->allocate_step());
  }
  wait_for_all(done);
  take_cache(runners);
  done.clear();
  for (const auto& runner : runners) done.push_back(runner->start());
  wait_for_all(done);
  for (auto& runner : runners) runners_.push_back(std::move(runner));
  if (place_.node == 0)
    make_runner();
  else
    make_follower();
  if (sizes_.count() > 1 && (backend_.device_memory || place_.num_nodes() > 1))
    watcher_ = std::thread([this] { watch(); });
}

// In the order of ranks: one for each here, and one for those of a lane on another node.
std::vector<RankedMember> RankGroup::members_of_all_nodes() {
  std::vector<RankedMember> members;
  for (int rank = 0; rank < sizes_.count(); ++rank) {
    const int lane = rank / sizes_.tp, node = node_of(rank);
    if (node == 0) {
      members.push_back(
          {.runner = std::move(runners_[static_cast<size_t>(rank)]), .lane = lane, .rank = rank});
    } else if (rank % sizes_.tp == 0 || node_of(rank - 1) != node) {
      auto remote = std::make_unique<RemoteRunner>(
          *place_.links[static_cast<size_t>(node)],
          RemoteRunner::Place{.lane = lane,
                              .num_lanes = sizes_.dp,
                              .like = members[0].runner.get(),
                              .on_failure = [this](const std::string& why) { fail(why); }});
      members.push_back({.runner = std::move(remote), .lane = lane, .rank = rank});
    }
  }
  runners_.clear();
  return members;
}

void RankGroup::make_runner() {
  if (sizes_.count() == 1) {
    runner_ = std::move(runners_[0]);
    return runners_.clear();
  }
  auto ranked = std::make_unique<RankedRunner>(members_of_all_nodes(), sizes_.dp,
                                               [this] { return group_failure(); });
  const MutexLock lock(mutex_);
  ranked_ = ranked.get();
  runner_ = std::move(ranked);
}

void RankGroup::make_follower() {
  std::vector<FollowedLane> lanes;
  for (int i = 0; i < size(); ++i) {
    const int rank = first_rank() + i, lane = rank / sizes_.tp;
    if (lanes.empty() || lanes.back().lane != lane)
      lanes.push_back({.lane = lane, .first_rank = rank});
    lanes.back().runners.push_back(runners_[static_cast<size_t>(i)].get());
  }
  follower_ = std::make_unique<Follower>(*place_.links[0], lanes, sizes_.dp);
  const MutexLock lock(mutex_);
  followed_ = follower_.get();
}

Runner& RankGroup::runner() {
  FATHOM_CHECK(runner_ != nullptr, "node " << place_.node << " follows node 0");
  return *runner_;
}

std::string RankGroup::follow() {
  FATHOM_CHECK(follower_ != nullptr, "node " << place_.node << " does not follow");
  std::string why = follower_->run();
  const MutexLock lock(mutex_);
  failure_ = why;
  return why;
}

}  // namespace fathom::runner
