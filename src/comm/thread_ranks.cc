#include "comm/thread_ranks.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "comm/host_rows.h"
#include "comm/tree_sum.h"

namespace fathom::comm {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::Tensor;

bool same_shape(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.rank() != b.rank()) return false;
  for (int axis = 0; axis < a.rank(); ++axis)
    if (a.dim(axis) != b.dim(axis)) return false;
  return true;
}

bool same_rows(std::span<const int64_t> a, std::span<const int64_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// ", rows from 0, 3, 5"; empty for equal pieces.
std::string rows_text(std::span<const int64_t> starts) {
  std::string text;
  for (const int64_t start : starts)
    text += (text.empty() ? ", rows from " : ", ") + std::to_string(start);
  return text;
}

}  // namespace

ThreadRanks::ThreadRanks(std::string name, int size, ThreadRanksConfig config)
    : name_(std::move(name)),
      config_(std::move(config)),
      spins_(static_cast<unsigned>(size) <= std::thread::hardware_concurrency()),
      places_(static_cast<size_t>(size)) {
  FATHOM_CHECK(size >= 1, name_ << " has " << size << " ranks");
  for (int rank = 0; rank < size; ++rank) {
    all_.push_back(rank);
    members_.emplace_back(*this, rank);
  }
}

std::string ThreadRanks::who(int rank) const {
  const int all = config_.num_ranks == 0 ? size() : config_.num_ranks;
  return "rank " + std::to_string(config_.first_rank + rank) + " of " + std::to_string(all) +
         " in " + name_;
}

std::string ThreadRanks::doing(int rank) const {
  const Place& place = places_[static_cast<size_t>(rank)];
  return std::string(place.collective.load()) + " (number " +
         std::to_string(place.num_collectives.load()) + ")";
}

// The last to come lets the others go. They look for a moment first, which is quicker than to sleep and be woken.
void ThreadRanks::meet(int rank) {
  clockid_t clock = kNoClock;
  if (pthread_getcpuclockid(pthread_self(), &clock) == 0) at(rank).clock = clock;
  at(rank).num_meetings.fetch_add(1, std::memory_order_relaxed);
  const int64_t meeting = num_meetings_.load(std::memory_order_acquire);
  if (num_here_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    num_here_.store(0, std::memory_order_relaxed);
    {
      const MutexLock lock(mutex_);
      num_meetings_.store(meeting + 1, std::memory_order_release);
    }
    all_here_.notify_all();
    return;
  }
  if (wait_briefly(meeting)) return;
  wait_in_pieces(rank, meeting);
}

// A process that was stopped, as by SIGSTOP, goes on with at most one piece lost. Each takes time of a processor, so a
// rank that waits for others does not count as standing still where others wait for it.
void ThreadRanks::wait_in_pieces(int rank, int64_t meeting) {
  using std::chrono::milliseconds;
  constexpr int kPieces = 64;
  const auto piece =
      std::max(std::min(config_.standstill, config_.deadline) / kPieces, milliseconds(1));
  milliseconds waited(0), still(0);
  int64_t computed = -1;
  MutexLock lock(mutex_);
  while (waited < config_.deadline && still < config_.standstill) {
    if (all_here_.wait_for(
            lock, piece, [&]() FATHOM_REQUIRES(mutex_) { return num_meetings_.load() != meeting; }))
      return;
    const int64_t now = time_of_missing(rank);
    still = now >= 0 && now == computed ? still + piece : milliseconds(0);
    computed = now;
    waited += piece;
  }
  lock.unlock();
  fail_without(rank, waited, still >= config_.standstill);
}

// Of a thread that has ended nothing. -1: one has never come, so that nobody knows its thread.
int64_t ThreadRanks::time_of_missing(int rank) {
  int64_t sum = 0;
  for (int other = 0; other < size(); ++other) {
    const clockid_t clock = at(other).clock;
    timespec time{};
    if (!is_missing(other, rank)) continue;
    if (clock == kNoClock) return -1;
    if (clock_gettime(clock, &time) == 0)
      sum += int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  return sum;
}

bool ThreadRanks::wait_briefly(int64_t meeting) const {
  constexpr int kLooks = 4000;  // some 20 us
  for (int i = 0; spins_ && i < kLooks; ++i)
    if (num_meetings_.load(std::memory_order_acquire) != meeting) return true;
  return num_meetings_.load(std::memory_order_acquire) != meeting;
}

void ThreadRanks::fail_without(int rank, std::chrono::milliseconds waited, bool stands_still) {
  std::string missing;
  for (int other = 0; other < size(); ++other)
    if (is_missing(other, rank))
      missing += (missing.empty() ? "" : "; ") + who(other) +
                 (stands_still ? ", which stands still and" : ",") + " whose last is " +
                 doing(other);
  fail(who(rank) + " has waited " + std::to_string(waited.count()) + " ms in " + doing(rank) +
       " for " + missing);
}

void ThreadRanks::fail(const std::string& why) {
  FATHOM_CHECK(config_.on_failure, why);
  config_.on_failure(why);
  // What the others hold and what this one has yet to write are no longer in step.
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

std::string ThreadRanks::call_text(int rank) const {
  const Place& place = places_[static_cast<size_t>(rank)];
  return doing(rank) + " of " + place.tensor.describe() + " along axis " +
         std::to_string(place.axis) + rows_text(place.starts);
}

// Each compares itself with all others: one that went on with some that agree would read what the different one has
// not brought, and could crash before anybody has said why.
void ThreadRanks::check_same(int rank) {
  const Place& mine = at(rank);
  for (int i = 1; i < size(); ++i) {
    const int member = (rank + i) % size();
    const Place& other = at(member);
    if (mine.collective.load() == other.collective.load() && mine.axis == other.axis &&
        same_shape(mine.tensor, other.tensor) && same_rows(mine.starts, other.starts))
      continue;
    fail(who(rank) + " is in " + call_text(rank) + ", " + who(member) + " in " + call_text(member));
  }
}

void ThreadRanks::Member::begin(const char* collective, const Tensor& t, int axis,
                                std::span<const int64_t> starts) {
  Place& mine = group_.at(rank_);
  mine.tensor = t;
  mine.axis = axis;
  mine.starts = starts;
  mine.collective = collective;
  mine.num_collectives.fetch_add(1, std::memory_order_relaxed);
  group_.meet(rank_);
  group_.check_same(rank_);
}

void ThreadRanks::Member::barrier() {
  begin("barrier", {}, 0);
  end();
}

bool ThreadRanks::sends(int rank, const ops::Stream& stream) const {
  FATHOM_CHECK(!stream.runs_ahead(), who(rank) << " is a thread, its stream runs ahead");
  return !stream.is_measuring();
}

void ThreadRanks::together(int rank, const Call& call, const Exchange& exchange) {
  Member& member = members_[static_cast<size_t>(rank)];
  member.begin(call.collective, call.tensor, call.axis, call.starts);
  if (rank == 0) {
    std::vector<Tensor> tensors;
    for (const Place& place : places_) tensors.push_back(place.tensor);
    if (const std::string why = exchange(call_text(0), tensors); !why.empty()) fail(why);
  }
  member.end();
}

template <class T>
void ThreadRanks::sum_as(const SumRange& range) {
  std::array<T, kSumAtOnce> sum;
  const int64_t columns = at(0).tensor.dim(at(0).tensor.rank() - 1);
  for (int64_t begin = range.begin; begin < range.end;) {
    const int64_t row = begin / columns, column = begin % columns;
    const int64_t count = std::min({kSumAtOnce, columns - column, range.end - begin});
    const auto elements_of = [&](int member) {
      return reinterpret_cast<T*>(row_of(at(member).tensor, row)) + column;
    };
    const T* total = sum_in_tree<T>(0, size(), elements_of, sum.data(), count);
    for (const int member : range.to) std::copy_n(total, count, elements_of(member));
    begin += count;
  }
}

void ThreadRanks::sum(int rank, const SumRange& range) {
  switch (at(rank).tensor.dtype()) {
    case DType::kF32:
      return sum_as<float>(range);
    case DType::kBf16:
      return sum_as<Bf16>(range);
    case DType::kI32:
      return sum_as<int32_t>(range);
    default:
      FATHOM_CHECK(false, at(rank).collective.load() << " of " << at(rank).tensor.describe());
  }
}

// A member sums its part of the elements and writes it to all of them: nobody else touches it.
void ThreadRanks::Member::all_reduce(const Tensor& t, ops::Stream& stream) {
  if (!group_.sends(rank_, stream)) return;
  begin("all_reduce", t, 0);
  const int64_t total = num_rows(t) * t.dim(t.rank() - 1);
  group_.sum(
      rank_,
      {.begin = total * rank_ / size(), .end = total * (rank_ + 1) / size(), .to = group_.all_});
  end();
}

void ThreadRanks::Member::all_gather(const Tensor& whole, int axis, ops::Stream& stream) {
  check_pieces(whole, axis, size());
  if (!group_.sends(rank_, stream)) return;
  begin("all_gather", whole, axis);
  for (int from = 0; from < size(); ++from)
    if (from != rank_)
      copy_rows(piece_of(group_.at(from).tensor, axis, from, size()),
                piece_of(whole, axis, from, size()));
  end();
}

void ThreadRanks::Member::all_gather_rows(const Tensor& whole, std::span<const int64_t> starts,
                                          ops::Stream& stream) {
  check_starts(whole, starts, size());
  if (!group_.sends(rank_, stream)) return;
  begin("all_gather_rows", whole, 0, starts);
  for (int from = 0; from < size(); ++from) {
    const auto piece = static_cast<size_t>(from);
    if (from == rank_ || starts[piece] == starts[piece + 1]) continue;
    copy_rows(group_.at(from).tensor.slice(0, starts[piece], starts[piece + 1]),
              whole.slice(0, starts[piece], starts[piece + 1]));
  }
  end();
}

// Nobody else reads or writes a member's own rows of its own tensor, and it reads no others.
void ThreadRanks::Member::reduce_scatter_rows(const Tensor& whole, std::span<const int64_t> starts,
                                              ops::Stream& stream) {
  check_starts(whole, starts, size());
  if (!group_.sends(rank_, stream)) return;
  begin("reduce_scatter_rows", whole, 0, starts);
  const auto piece = static_cast<size_t>(rank_);
  const int64_t row_elements = whole.dim(0) == 0 ? 0 : whole.num_elements() / whole.dim(0);
  group_.sum(rank_, {.begin = starts[piece] * row_elements,
                     .end = starts[piece + 1] * row_elements,
                     .to = std::span<const int>(&rank_, 1)});
  end();
}

}  // namespace fathom::comm
