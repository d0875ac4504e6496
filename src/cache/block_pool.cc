#include "cache/block_pool.h"

#include <utility>

namespace fathom::cache {

BlockPool::Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), ids_(std::exchange(other.ids_, {})) {}

BlockPool::Lease& BlockPool::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  release();
  pool_ = std::exchange(other.pool_, nullptr);
  ids_ = std::exchange(other.ids_, {});
  return *this;
}

BlockPool::Lease::~Lease() { release(); }

void BlockPool::Lease::release() {
  if (pool_ != nullptr) release_as_of(pool_->last_submitted_);
}

void BlockPool::Lease::release_as_of(int64_t step_id) {
  if (pool_ != nullptr) pool_->give_back(ids_, step_id);
  pool_ = nullptr;
  ids_.clear();
}

void BlockPool::Lease::merge(Lease other) {
  if (other.pool_ == nullptr) return;
  FATHOM_CHECK(pool_ == nullptr || pool_ == other.pool_, "leases of two pools");
  pool_ = other.pool_;
  ids_.insert(ids_.end(), other.ids_.begin(), other.ids_.end());
  other.pool_ = nullptr;
  other.ids_.clear();
}

BlockPool::Lease BlockPool::Lease::take_front(int num_blocks) {
  FATHOM_CHECK(num_blocks >= 0 && static_cast<size_t>(num_blocks) <= ids_.size(),
               num_blocks << " blocks to take from a lease of " << ids_.size());
  const auto end = ids_.begin() + num_blocks;
  Lease front(pool_, std::vector<int32_t>(ids_.begin(), end));
  ids_.erase(ids_.begin(), end);
  return front;
}

std::vector<BlockPool::Lease> BlockPool::Lease::split() {
  std::vector<Lease> leases;
  leases.reserve(ids_.size());
  for (const int32_t block_id : ids_) leases.push_back(Lease(pool_, {block_id}));
  ids_.clear();
  return leases;
}

BlockPool::BlockPool(const BlockPoolConfig& config) {
  FATHOM_CHECK(config.num_blocks >= 0, "num_blocks is " << config.num_blocks);
  states_.assign(static_cast<size_t>(config.num_blocks), State::kFree);
  free_.reserve(states_.size());
  // The free list is used from its end, so low ids go out first.
  for (int block_id = config.num_blocks - 1; block_id >= 0; --block_id) free_.push_back(block_id);
}

Result<BlockPool::Lease> BlockPool::lease(int num_blocks) {
  FATHOM_CHECK(num_blocks >= 0, "num_blocks is " << num_blocks);
  if (num_blocks > num_free())
    return Error{ErrorCode::kResourceEmpty, std::to_string(num_blocks) + " blocks wanted, " +
                                                std::to_string(num_free()) + " of " +
                                                std::to_string(this->num_blocks()) + " free"};
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(num_blocks));
  for (int i = 0; i < num_blocks; ++i) {
    const int32_t block_id = free_.back();
    free_.pop_back();
    State& state = states_[static_cast<size_t>(block_id)];
    FATHOM_CHECK(state == State::kFree, "block " << block_id << " is on the free list, not free");
    state = State::kOwned;
    ids.push_back(block_id);
  }
  return Lease(this, std::move(ids));
}

void BlockPool::give_back(const std::vector<int32_t>& ids, int64_t last_step) {
  const bool fence = last_step > last_done_;
  for (int32_t block_id : ids) {
    State& state = states_[static_cast<size_t>(block_id)];
    FATHOM_CHECK(state == State::kOwned, "block " << block_id << " given back, not owned");
    state = fence ? State::kFenced : State::kFree;
    if (fence) {
      fenced_.push_back({block_id, last_submitted_});
    } else {
      free_.push_back(block_id);
    }
  }
}

void BlockPool::step_submitted(int64_t step_id) {
  FATHOM_CHECK(step_id > last_submitted_, "step " << step_id << " after " << last_submitted_);
  last_submitted_ = step_id;
}

void BlockPool::step_done(int64_t step_id) {
  FATHOM_CHECK(step_id > last_done_ && step_id <= last_submitted_,
               "step " << step_id << " done; last done " << last_done_ << ", last submitted "
                       << last_submitted_);
  last_done_ = step_id;
  while (!fenced_.empty() && fenced_.front().step_id <= step_id) {
    const int32_t block_id = fenced_.front().block_id;
    states_[static_cast<size_t>(block_id)] = State::kFree;
    free_.push_back(block_id);
    fenced_.pop_front();
  }
}

std::string BlockPool::check_integrity() const {
  const auto name = [](int32_t block_id) { return "block " + std::to_string(block_id); };
  std::vector<bool> listed(states_.size(), false);
  const auto check_listed = [&](int32_t block_id, State state) -> std::string {
    if (block_id < 0 || block_id >= num_blocks()) return name(block_id) + " does not exist";
    const size_t index = static_cast<size_t>(block_id);
    if (listed[index]) return name(block_id) + " is listed twice";
    listed[index] = true;
    return states_[index] == state ? "" : name(block_id) + " is in a list that is not its state's";
  };
  for (int32_t block_id : free_)
    if (std::string problem = check_listed(block_id, State::kFree); !problem.empty())
      return problem;
  int64_t previous_step = last_done_;
  for (const Fenced& fenced : fenced_) {
    std::string problem = check_listed(fenced.block_id, State::kFenced);
    if (!problem.empty()) return problem;
    if (fenced.step_id < previous_step || fenced.step_id <= last_done_)
      return name(fenced.block_id) + " is fenced by step " + std::to_string(fenced.step_id) +
             ", out of order";
    previous_step = fenced.step_id;
  }
  for (size_t i = 0; i < states_.size(); ++i)
    if (!listed[i] && states_[i] != State::kOwned)
      return name(static_cast<int32_t>(i)) + " is neither owned nor in a list";
  return "";
}

}  // namespace fathom::cache
