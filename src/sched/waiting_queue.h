#pragma once
// WaitingQueue: the requests that wait for admission, and which of them is next.
//
//   WaitingQueue queue({.policy = SchedulePolicy::kLpm, .turn_tokens = 2048, .most_running = 64}, lanes);
//   queue.add(sequence);
//   Sequence* next = queue.next(plan_idx, prefilling);     // null: none waits, or all are deferred
//   queue.admitted(*next);
//
// Higher priorities first. Within one: retracted sequences, then by turn (kFcfs), or the longest cached
// prefix first (kLpm) of the kWindow that wait longest. Two bounds keep both fair:
//  - a request that kMaxOvertaken later ones have gone before is next (of its priority);
//  - a request is deferred while a running sequence computes a prefix that it can use, in a lane that it might go to,
//    at most kMaxDeferredSteps steps. Others go before it meanwhile.
// A turn is an arrival, but for fan-outs, the sequences of one body: they come to the end of the line one after the
// other, the next when those before have less than turn_tokens of their prompts left to compute. While others wait,
// a fan-out has at most half of what may run, and those that give way have nothing. While sequences of other owners
// wait, so has an owner.
// One thread uses it. The sequences belong to the caller.

#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "sched/lanes.h"
#include "sched/sequence.h"

namespace fathom::sched {

enum class SchedulePolicy : uint8_t { kLpm, kFcfs };

class WaitingQueue {
 public:
  static constexpr int kWindow = 32;
  static constexpr int kMaxOvertaken = 64;
  static constexpr int kMaxDeferredSteps = 64;

  struct Config {
    SchedulePolicy policy = SchedulePolicy::kLpm;
    int turn_tokens = 1;   // of prompts, that a fan-out has in line and in work at once
    int most_running = 1;  // sequences, of all
  };
  static constexpr int kMostInLine = 8;  // of a fan-out

  WaitingQueue(const Config& config, Lanes& lanes) : config_(config), lanes_(lanes) {}

  // One that is new, or was retracted.
  void add(Sequence& sequence);
  void remove(Sequence& sequence);
  // `publishing` are the running sequences whose prompts are not all computed. plan_idx is another one for every plan;
  // while it is the same, sequences only join `publishing` at its end.
  Sequence* next(int64_t plan_idx, std::span<Sequence* const> publishing);
  // It leaves the queue and runs; those that it overtook remember.
  void admitted(Sequence& sequence);
  // There are no blocks for it: where others of its fan-out run, it waits until one of them gives some back and holds
  // nobody up. False = there are none.
  bool set_aside(Sequence& sequence);
  // Of one that runs: what is left of its prompt, and that it runs no more.
  void owes(Sequence& sequence, int num_tokens);
  void stopped_running(Sequence& sequence);

  // For whom a sequence that runs should give its slot back, if it is one that has to: the first in line that has not,
  // and that the plan before did not defer. Null: nobody.
  const Sequence* first_unyielding(int64_t plan_idx) const;
  // Whether there is a fan-out with more than half of what may run, or an owner while others wait, and whether it
  // is the sequence's.
  bool has_crowd() const;
  bool is_of_crowd(const Sequence& sequence) const;

  bool empty() const { return line_.empty() && num_behind_ == 0; }
  int size() const { return static_cast<int>(line_.size()) + num_behind_; }
  // Empty = fan-outs are what lines and lanes say.
  std::string check_integrity() const;

 private:
  struct GoesBefore {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  struct ArrivesBefore {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->arrival < b->arrival; }
  };
  struct FanOut {
    int64_t num_owed_tokens = 0;  // of those in line and running
    int num_in_line = 0, num_running = 0;
    bool waits_for_room = false;  // that its own give back
    std::set<Sequence*, ArrivesBefore> behind{};
    bool operator==(const FanOut&) const = default;
  };
  using FanOutMap = std::unordered_map<int64_t, FanOut>;
  struct Owner {
    int num_waiting = 0, num_running = 0;
    bool operator==(const Owner&) const = default;
  };
  using OwnerMap = std::unordered_map<uint64_t, Owner>;

  void enter_line(Sequence& sequence);
  void leave_line(Sequence& sequence);
  void bring_up(FanOut& fan_out);
  void forget_if_over(FanOutMap::iterator it);
  void count_running(FanOut& fan_out, int change);
  // With one alone nobody is better off who takes its place.
  bool is_crowd(int num_running) const {
    return num_running > 1 && 2 * num_running > config_.most_running;
  }
  // With one more it would be.
  bool would_be_crowd(int num_running) const { return is_crowd(num_running + 1); }
  bool others_wait(const Owner& owner) const {
    return num_waiting_owners_ > (owner.num_waiting > 0 ? 1 : 0);
  }
  void count_owner(const Sequence& sequence, int waiting, int running);
  bool yields(const Sequence& sequence) const;
  // Of those that wait, whichever has a sequence in line; then every sequence yields.
  bool do_all_owners_yield() const;
  bool needs_look_up(std::span<Sequence* const> publishing) const;
  int64_t attraction(const Sequence& sequence) const;
  void look_up(Sequence& sequence, int64_t plan_idx);
  bool is_deferred(Sequence& sequence, int64_t plan_idx,
                   std::span<Sequence* const> publishing) const;
  bool gains_from(const Sequence& sequence, const Sequence& running) const;

  const Config config_;
  Lanes& lanes_;
  std::set<Sequence*, GoesBefore> line_;
  FanOutMap fan_outs_;
  int num_behind_ = 0;  // of all fan-outs
  int num_crowds_ = 0;  // fan-outs
  OwnerMap owners_;     // those with sequences here
  int num_waiting_owners_ = 0;
  int64_t next_turn_ = 0;
};

}  // namespace fathom::sched
