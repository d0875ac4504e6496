#include <utility>

#include "base/bounded_heap.h"
#include "base/mutex.h"
#include "grammar/constraint.h"
#include "grammar/grammar.h"
#include "grammar/network.h"

namespace fathom::grammar {
namespace {

class Grammar : public CompiledGrammar, public std::enable_shared_from_this<Grammar> {
 public:
  Grammar(Automaton automaton, int64_t max_mask_cache_bytes)
      : automaton_(std::move(automaton)), max_mask_cache_bytes_(max_mask_cache_bytes) {}

  std::unique_ptr<core::TokenConstraint> new_constraint(
      std::shared_ptr<const Vocabulary> vocabulary) const override {
    return std::make_unique<GrammarConstraint>(shared_from_this(),
                                               masks_for(std::move(vocabulary)));
  }
  int num_states() const override { return automaton_.num_states(); }
  int64_t memory_bytes() const override { return automaton_.memory_bytes(); }
  int64_t mask_bytes() const override {
    const MutexLock lock(mutex_);
    return masks_ == nullptr ? 0 : masks_->memory_bytes();
  }

 private:
  // A process has one vocabulary; should there be another, the masks of the last one are kept.
  std::shared_ptr<MaskSource> masks_for(std::shared_ptr<const Vocabulary> vocabulary) const {
    const MutexLock lock(mutex_);
    if (masks_ == nullptr || masks_->vocabulary() != vocabulary) {
      masks_ =
          std::make_shared<MaskSource>(automaton_, std::move(vocabulary), max_mask_cache_bytes_);
    }
    return masks_;
  }

  const Automaton automaton_;
  const int64_t max_mask_cache_bytes_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<MaskSource> masks_ FATHOM_GUARDED_BY(mutex_);
};

std::shared_ptr<const CompiledGrammar> compile_within(const Expression& expression,
                                                      Budget& budget) {
  RuleSet rules(budget);
  Network network = build_network(expression, rules);
  if (budget.ok()) prune(network, budget);
  if (!budget.ok()) return nullptr;
  Automaton automaton = determinize(network, budget);
  if (!budget.ok()) return nullptr;
  return std::make_shared<Grammar>(std::move(automaton), budget.limits().max_mask_cache_bytes);
}

}  // namespace

Result<std::shared_ptr<const CompiledGrammar>> compile(const Expression& expression,
                                                       const Limits& limits) {
  Budget budget(limits);
  try {
    // The loops ask their budget; this holds for what any of them forgets.
    const memory::BoundedHeap heap(limits.max_memory_bytes, [&] { return budget.look_at_clock(); });
    std::shared_ptr<const CompiledGrammar> grammar = compile_within(expression, budget);
    if (budget.ok()) return grammar;
  } catch (const memory::BeyondBound&) {
    if (budget.ok()) budget.fail_of_memory();
  }
  return budget.error();
}

}  // namespace fathom::grammar
