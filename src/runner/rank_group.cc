#include "runner/rank_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "comm/thread_ranks.h"

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
                     const comm::MakeGroup& make_group, std::chrono::milliseconds standstill)
    : backend_(backend), num_lanes_(sizes.dp) {
  if (sizes.count() > 1 && backend.device_memory && !make_group)
    throw StartupError(std::to_string(sizes.count()) +
                       " ranks need a CPU: their collectives work in host memory, and " +
                       std::string(backend.name) + " has memory of its own");
  const auto thread_ranks = [&](const std::string& name, const std::vector<int>& devices) {
    return std::make_unique<comm::ThreadRanks>(
        name, static_cast<int>(devices.size()),
        comm::ThreadRanksConfig{.standstill = standstill,
                                .deadline = kPatience * standstill,
                                .on_failure = [this](const std::string& why) { fail(why); }});
  };
  make_groups(sizes, make_group ? make_group : thread_ranks);
  for (int i = 0; i < sizes.count(); ++i) {
    Rank rank;
    const int lane = i / sizes.tp, place = i % sizes.tp;
    if (backend.use_device != nullptr) rank.context.device = i;
    if (!tp_.empty()) rank.context.tp = &tp_[static_cast<size_t>(lane)]->of(place);
    if (!dp_.empty()) rank.context.dp = &dp_[static_cast<size_t>(place)]->of(lane);
    if (ep_ != nullptr) rank.context.ep = &ep_->of(i);
    rank.thread = std::make_unique<RankThread>(rank.context, backend);
    ranks_.push_back(std::move(rank));
  }
}

void RankGroup::make_groups(const RankSizes& sizes, const comm::MakeGroup& make_group) {
  // Every `step`-th rank from `first` on; rank i is on device i where the backend has several.
  const auto group_of = [&](const std::string& name, int first, int count, int step) {
    std::vector<int> devices;
    for (int i = 0; i < count; ++i)
      devices.push_back(backend_.use_device == nullptr ? 0 : first + i * step);
    return make_group(name, devices);
  };
  for (int lane = 0; sizes.tp > 1 && lane < sizes.dp; ++lane)
    tp_.push_back(group_of(sizes.dp == 1 ? "tp" : "tp of lane " + std::to_string(lane),
                           lane * sizes.tp, sizes.tp, 1));
  for (int place = 0; sizes.dp > 1 && place < sizes.tp; ++place)
    dp_.push_back(group_of(sizes.tp == 1 ? "dp" : "dp of place " + std::to_string(place), place,
                           sizes.dp, sizes.tp));
  if (sizes.ep > 1) ep_ = group_of("ep", 0, sizes.ep, 1);
}

RankGroup::~RankGroup() {
  {
    const std::lock_guard lock(mutex_);
    ranked_ = nullptr;
    is_ending_ = true;
  }
  ends_.notify_one();
  if (watcher_.joinable()) watcher_.join();
}

void RankGroup::watch() {
  constexpr auto kPause = std::chrono::milliseconds(100);
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kPause, [&] { return is_ending_; })) {
    const std::string why = group_failure();
    if (!why.empty()) return ranked_->fail(why);
  }
}

void RankGroup::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  FATHOM_CHECK(ranked_ != nullptr, why);
  ranked_->fail(why);
}

std::string RankGroup::group_failure() const {
  std::string why;
  for (const auto* groups : {&tp_, &dp_})
    for (const auto& group : *groups)
      if (why.empty()) why = group->failure();
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
  const int blocks = std::min_element(plans.begin(), plans.end(), by_blocks)->num_blocks;
  std::vector<std::future<void>> done;
  for (size_t i = 0; i < runners.size(); ++i)
    done.push_back(runners[i]->allocate_cache(plans[i].with_blocks(blocks)));
  wait_for_all(done);
  plan_ = runners[0]->plan();
  FATHOM_LOG(kInfo, "runner", "memory planned", {{"plan", plan_.describe()}, {"ranks", size()}});
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
  if (size() == 1) {
    runner_ = std::move(runners[0]);
    return;
  }
  auto ranked = std::make_unique<RankedRunner>(
      std::vector<std::unique_ptr<Runner>>(std::make_move_iterator(runners.begin()),
                                           std::make_move_iterator(runners.end())),
      num_lanes_, [this] { return group_failure(); });
  const std::lock_guard lock(mutex_);
  ranked_ = ranked.get();
  runner_ = std::move(ranked);
  if (backend_.device_memory) watcher_ = std::thread([this] { watch(); });
}

}  // namespace fathom::runner
