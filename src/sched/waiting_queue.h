#pragma once
// WaitingQueue: the requests that wait for admission, and which of them is next.
//
//   WaitingQueue queue(SchedulePolicy::kLpm, lanes);
//   queue.add(sequence);
//   Sequence* next = queue.next(plan_idx, prefilling);     // null: none waits, or all are deferred
//   queue.admitted(*next);
//
// Higher priorities first. Within one: retracted sequences, then by arrival (kFcfs), or the longest cached
// prefix first (kLpm) of the kWindow oldest. Two bounds keep both fair:
//  - a request that kMaxOvertaken later ones have gone before is next (of its priority);
//  - a request is deferred while a running sequence computes a prefix that it can use, in a lane that it might go to,
//    at most kMaxDeferredSteps steps. Others go before it meanwhile.
// One thread uses it. The sequences belong to the caller.

#include <set>
#include <span>

#include "sched/lanes.h"
#include "sched/sequence.h"

namespace fathom::sched {

enum class SchedulePolicy : uint8_t { kLpm, kFcfs };

class WaitingQueue {
 public:
  static constexpr int kWindow = 32;
  static constexpr int kMaxOvertaken = 64;
  static constexpr int kMaxDeferredSteps = 64;

  WaitingQueue(SchedulePolicy policy, Lanes& lanes) : policy_(policy), lanes_(lanes) {}

  void add(Sequence& sequence) { waiting_.insert(&sequence); }
  void remove(Sequence& sequence) { waiting_.erase(&sequence); }
  // `publishing` are the running sequences whose prompts are not all computed. plan_idx is another one for every plan;
  // while it is the same, sequences only join `publishing` at its end.
  Sequence* next(int64_t plan_idx, std::span<Sequence* const> publishing);
  // It leaves the queue; those that it overtook remember.
  void admitted(Sequence& sequence);

  bool empty() const { return waiting_.empty(); }
  int size() const { return static_cast<int>(waiting_.size()); }
  auto begin() const { return waiting_.begin(); }
  auto end() const { return waiting_.end(); }

 private:
  struct GoesBefore {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  void look_up(Sequence& sequence, int64_t plan_idx);
  bool is_deferred(Sequence& sequence, int64_t plan_idx,
                   std::span<Sequence* const> publishing) const;
  bool gains_from(const Sequence& sequence, const Sequence& running) const;

  SchedulePolicy policy_;
  Lanes& lanes_;
  std::set<Sequence*, GoesBefore> waiting_;
};

}  // namespace fathom::sched
