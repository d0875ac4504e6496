#pragma once
// ThreadRanks: a group whose ranks are threads of this process that compute in host memory. Each reads and writes the
// others' tensors where they lie, so a collective allocates nothing and has no memory of its own.
//
//   comm::ThreadRanks tp("tp", /*size=*/2);
//   std::thread other([&] { tp.of(1).all_reduce(b, stream_b); });
//   tp.of(0).all_reduce(a, stream_a);              // a and b hold the same bits: a + b, in the order of ranks
//
// Sums are of f32, bf16 (added in f32, rounded once) and i32, in the order of ranks, so all members have the same bits
// in every run. Gathers are of any type. Tensors may have any rank and be strided.
//
// All members of a collective bring the same one: its name, type and shape are compared in each. A member that is
// missing while others wait is given up once its thread has stood still (used no time of a processor) for a while, and
// whatever it does after the deadline. Either is a failure of the group, told in a sentence with the ranks and the
// collective. The time in which the process as a whole stood still does not count.
//
// of(i) is for the thread of rank i. The group outlives its members' use. REQUIRES: streams that do not run ahead.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "comm/group.h"

namespace fathom::comm {

struct ThreadRanksConfig {
  // Longer than anything that a rank's thread waits for without a look at the clock between two collectives.
  std::chrono::milliseconds standstill = std::chrono::seconds(5);
  // Long enough for the longest step of a CPU whose ranks share its cores.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
  // Told of a failure by the thread of a member, which then waits for ever; perhaps by several. Null = a failure ends
  // the process.
  std::function<void(const std::string& why)> on_failure{};
  // For messages: the members are so many ranks from first_rank on of a group of num_ranks; 0 = they are all.
  int first_rank = 0, num_ranks = 0;
};

class ThreadRanks : public Group {
 public:
  // name: of the group, for messages.
  ThreadRanks(std::string name, int size, ThreadRanksConfig config = {});

  Communicator& of(int rank) override { return members_[static_cast<size_t>(rank)]; }
  int size() const override { return static_cast<int>(members_.size()); }

  // What a group needs whose other ranks are elsewhere (node_ranks.h).
  struct Call {
    const char* collective = "";
    tensor::Tensor tensor{};
    int axis = 0;
    std::span<const int64_t> starts{};  // empty = equal pieces
  };
  // call: what all are in, in words. tensors: of all members. Returns why it failed; empty = it did not.
  using Exchange = std::function<std::string(const std::string& call,
                                             const std::vector<tensor::Tensor>& tensors)>;
  // By each member: returns when all have come with the same call and rank 0's thread has run its exchange.
  void together(int rank, const Call& call, const Exchange& exchange);
  // Whether there is something to do: a stream that measures sends nothing.
  bool sends(int rank, const ops::Stream& stream) const;
  // "rank 1 of 2 in tp"
  std::string who(int rank) const;

 private:
  using Tensor = tensor::Tensor;
  static constexpr clockid_t kNoClock = -1;  // it has not come yet

  // What a member does at present. `tensor` is read by others between the two meetings of a collective only.
  struct Place {
    Tensor tensor{};
    int axis = 0;
    std::span<const int64_t> starts{};  // empty = equal pieces
    std::atomic<const char*> collective = "nothing yet";
    std::atomic<int64_t> num_collectives = 0, num_meetings = 0;
    std::atomic<clockid_t> clock = kNoClock;  // of its thread's time on a processor
  };

  class Member : public Communicator {
   public:
    Member(ThreadRanks& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return group_.size(); }
    void all_reduce(const Tensor& t, ops::Stream& stream) override;
    void all_gather(const Tensor& whole, int axis, ops::Stream& stream) override;
    void all_gather_rows(const Tensor& whole, std::span<const int64_t> starts,
                         ops::Stream& stream) override;
    void reduce_scatter_rows(const Tensor& whole, std::span<const int64_t> starts,
                             ops::Stream& stream) override;
    void barrier() override;

    // Everybody has come with the same collective; their tensors may be read.
    void begin(const char* collective, const Tensor& t, int axis,
               std::span<const int64_t> starts = {});
    // Everybody has read.
    void end() { group_.meet(rank_); }

   private:
    ThreadRanks& group_;
    int rank_;
  };

  Place& at(int rank) { return places_[static_cast<size_t>(rank)]; }
  // Returns when all members have called it as often.
  void meet(int rank);
  bool wait_briefly(int64_t meeting) const;
  void wait_in_pieces(int rank, int64_t meeting);
  void check_same(int rank);
  bool is_missing(int other, int rank) { return at(other).num_meetings < at(rank).num_meetings; }
  // Nanoseconds that the threads of those for whom the rank waits have computed; -1 = not known.
  int64_t time_of_missing(int rank);
  [[noreturn]] void fail_without(int rank, std::chrono::milliseconds waited, bool stands_still);
  [[noreturn]] void fail(const std::string& why);
  std::string doing(int rank) const;
  std::string call_text(int rank) const;
  // Elements [begin, end) of all members' tensors, row by row, into those of `to`.
  struct SumRange {
    int64_t begin = 0, end = 0;
    std::span<const int> to;
  };
  void sum(int rank, const SumRange& range);
  template <class T>
  void sum_as(const SumRange& range);

  const std::string name_;
  const ThreadRanksConfig config_;
  bool spins_ = false;    // there is a core for every member
  std::vector<int> all_;  // 0, 1, ... size() - 1
  std::deque<Member> members_;
  std::deque<Place> places_;
  std::atomic<int> num_here_ = 0;
  std::atomic<int64_t> num_meetings_ = 0;
  Mutex mutex_;
  CondVar all_here_;
};

}  // namespace fathom::comm
