#pragma once
// Chains: element-wise operators that follow one another over the same rows, where none reads or writes what another
// one writes. A backend may run a chain as one kernel; the bits are those of its operators one by one.
//
//   set_chain_runner(&runner);                    // at the start of the program; none: nothing changes
//   in_chains(stream, [&] {                       // calls operators of this stream and nothing else
//     ops::rms_norm(...);  ops::kv_append(...);   // held back until the chain ends
//     ops::linear(...);                           // is no link: the chain before it runs first
//   });                                           // and so does the last one
//
// On a stream that measures, the runner is shown the chains and nothing runs: so it learns of them before the first
// step. Thread-safe but for set_chain_runner(), which comes first.

#include <span>
#include <variant>
#include <vector>

#include "ops/kv_cache.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace fathom::ops {

// A call that may be part of a chain. Without its quantised rows rms_norm_quantize is rms_norm.
using ChainLink = std::variant<RmsNormQuantizeArgs, RopeArgs, KvAppendArgs>;

std::string_view link_name(const ChainLink& link);
int64_t link_rows(const ChainLink& link);
// Neither writes what the other one reads or writes, as far as their addresses tell.
bool are_independent(const ChainLink& a, const ChainLink& b);

// The chains of links that were called one behind the other, each as long as it can be, in order; a link that fits
// neither neighbour is a chain of its own.
std::vector<std::span<const ChainLink>> find_chains(std::span<const ChainLink> links);

class ChainRunner {
 public:
  virtual ~ChainRunner() = default;
  // Of a step that is being measured: it will run with these shapes, and other numbers of rows.
  virtual void note(std::span<const ChainLink> chain) = 0;
  // Enqueues the chain as one, or nothing and returns false.
  virtual bool run(std::span<const ChainLink> chain, Stream& stream) = 0;
};

// For the rest of the process. Null: no operator is held back. Called before there are streams.
void set_chain_runner(ChainRunner* runner);

// The calls of a thread between its beginning and its end. An exception drops what is held back.
class ChainScope {
 public:
  explicit ChainScope(Stream& stream);
  ~ChainScope();
  ChainScope(const ChainScope&) = delete;
  ChainScope& operator=(const ChainScope&) = delete;

  // The thread's innermost one, null without a runner.
  static ChainScope* current();

  // For dispatch() (ops/boundary.h). Runs what is held back.
  void end_chain();
  void add(const ChainLink& link) { links_.push_back(link); }

 private:
  Stream& stream_;
  ChainScope* const outer_;
  std::vector<ChainLink> links_;
};

template <class Calls>
void in_chains(Stream& stream, const Calls& calls) {
  ChainScope scope(stream);
  calls();
  scope.end_chain();
}

}  // namespace fathom::ops
