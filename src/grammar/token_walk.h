#pragma once
// TokenWalk: which tokens fit after a set of items, by walking the vocabulary's tree and the automaton
// together. A prefix that fits nowhere cuts off all tokens that begin with it.
//
//   TokenWalk walk(automaton, vocabulary);
//   LocalMask mask = walk.short_mask(state);
//
// Used by one thread. Automaton and vocabulary must outlive it.

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/stepper.h"
#include "grammar/vocabulary.h"

namespace fathom::grammar {

// Tokens that a state's own rule allows; the same wherever the rule was called from.
struct LocalMask {
  std::vector<uint64_t> words;  // bit per token; empty where `tokens` is shorter
  std::vector<int32_t> tokens;  // the same as ids
  std::vector<int32_t>
      end_nodes;         // prefixes (nodes of the tree that was walked, not its root) after
                         // which the rule may end, and that longer tokens begin with
  bool may_end = false;  // the rule may end before anything is read

  int64_t memory_bytes() const {
    return static_cast<int64_t>(sizeof(LocalMask) + words.size() * 8 +
                                (tokens.size() + end_nodes.size()) * 4);
  }
};

// All of a state's mask: the tokens with few bytes, shared by the states of its class, and the long ones.
struct StateMask {
  std::shared_ptr<const LocalMask> short_tokens;  // its end_nodes: of the vocabulary's tree()
  LocalMask long_tokens;                          // of the vocabulary's long_tree()

  int64_t own_bytes() const {
    return static_cast<int64_t>(sizeof(StateMask)) + long_tokens.memory_bytes();
  }
};

class TokenWalk {
 public:
  TokenWalk(const Automaton& automaton, const Vocabulary& vocabulary)
      : automaton_(automaton), vocabulary_(vocabulary) {}

  LocalMask short_mask(int32_t state) const;
  LocalMask long_mask(int32_t state) const;

  // Sets the bits of the tokens that begin with the prefix of one of `tree_nodes` and go on with what fits
  // after `frame`, whose items start behind the prefix. Stops early once the stepper's work passes max_work.
  struct Continuation {
    const TokenTree& tree;
    std::span<const int32_t> tree_nodes;
    int64_t max_work;
  };
  void continue_from(Stepper& stepper, Stepper::Frame frame, const Continuation& continuation,
                     std::span<uint64_t> words) const;

 private:
  // What is walked, and how far.
  struct Scope {
    const TokenTree& tree;
    int min_end_depth, max_depth;  // ends before that, and nodes behind that, are not looked at
    int64_t max_work;
  };
  LocalMask local_mask(int32_t state, const Scope& scope) const;
  // The part of the tree below a node, as long as one plain state is all there is to follow; the rest is
  // handed to walk(). Much faster, and most of the work.
  template <class Report>
  void walk_plain(Stepper& stepper, Stepper::Item item, int32_t tree_node, const Scope& scope,
                  const Report& report) const;
  template <class Report>
  void walk(Stepper& stepper, std::vector<Stepper::Frame>& frames, int32_t tree_node,
            const Scope& scope, const Report& report) const;

  // Only the bottom node may be left: its end is noted, not followed.
  bool follows_plainly(const Stepper::Item& item) const {
    const Automaton::State& state = automaton_.state(item.state);
    return state.plain && (!state.accepting || item.node == Stepper::kBottom);
  }

  const Automaton& automaton_;
  const Vocabulary& vocabulary_;
};

// Local masks of one grammar and one vocabulary, computed on first use. Thread-safe; bounded by bytes.
class LocalMaskCache {
 public:
  LocalMaskCache(const Automaton& automaton, std::shared_ptr<const Vocabulary> vocabulary,
                 int64_t max_bytes)
      : automaton_(automaton),
        vocabulary_(std::move(vocabulary)),
        walk_(automaton, *vocabulary_),
        max_bytes_(max_bytes) {}

  std::shared_ptr<const StateMask> get(int32_t state);
  const std::shared_ptr<const Vocabulary>& vocabulary() const { return vocabulary_; }
  const TokenWalk& walk() const { return walk_; }

 private:
  std::shared_ptr<const LocalMask> short_mask(int32_t state);
  void make_room(int64_t num_bytes);

  const Automaton& automaton_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const TokenWalk walk_;
  const int64_t max_bytes_;
  std::mutex mutex_;
  std::unordered_map<int32_t, std::shared_ptr<const StateMask>> masks_;        // by state
  std::unordered_map<int32_t, std::shared_ptr<const LocalMask>> short_masks_;  // by class
  int64_t bytes_ = 0;
};

}  // namespace fathom::grammar
