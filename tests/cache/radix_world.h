#pragma once
// RadixWorld: a few sequences over a radix tree and its pools, and the same again over PlainPrefixCache. Every
// operation is done to both and must have the same outcome.
//
//   RadixWorld world({.num_groups = 1, .block_tokens = 2, .num_blocks = 12});
//   std::string problem = world.run(ops, /*integrity_interval=*/16);   // "" = they agree
//
// Operations are four bytes; what they name is taken modulo what there is, so every list of operations is
// valid, and so is what is left when some are dropped (shrink_ops). Random lists and fuzzers' bytes both do.

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/radix_tree.h"
#include "tests/cache/named_blocks.h"
#include "tests/cache/plain_prefix_cache.h"

namespace fathom::cache::testing {

struct RadixOp {
  uint8_t kind = 0, a = 0, b = 0, c = 0;
};

inline constexpr const char* kRadixOpNames[] = {
    "match",   "match", "lease", "lease",  "publish", "publish",    "publish", "end",
    "rematch", "evict", "clear", "submit", "done",    "ask length", "longer",  "drop lease"};
inline constexpr size_t kNumRadixOps = std::size(kRadixOpNames);

struct RadixWorldConfig {
  int num_groups = 1, block_tokens = 2, num_blocks = 12;
  uint64_t hash_mask = ~uint64_t{0};
};

// What the operations came to, so that a test can see that they did something.
struct RadixWorldCounts {
  int64_t hit_blocks = 0, published_blocks = 0, evicted_blocks = 0, refused_leases = 0;
};

class RadixWorld {
 public:
  explicit RadixWorld(const RadixWorldConfig& config)
      : config_(config), model_(config.num_groups, config.num_blocks) {
    std::vector<BlockPool*> pools;
    for (int group = 0; group < config.num_groups; ++group) {
      pools_.push_back(std::make_unique<BlockPool>(BlockPoolConfig{config.num_blocks}));
      pools.push_back(pools_.back().get());
    }
    tree_ = std::make_unique<RadixTree>(pools, RadixTreeConfig{.block_tokens = config.block_tokens,
                                                               .hash_mask = config.hash_mask,
                                                               .listener = &named_});
  }
  // Sequences hold pins, so they go before the tree.
  ~RadixWorld() { sequences_.clear(); }

  // "" = tree and model agree after every operation, and everything comes back at the end.
  std::string run(std::span<const RadixOp> ops, int integrity_interval) {
    for (size_t i = 0; i < ops.size(); ++i) {
      apply(ops[i]);
      compare();
      if (i % static_cast<size_t>(integrity_interval) == 0) check_integrity();
      if (!problem_.empty()) return "operation " + std::to_string(i) + ": " + problem_;
    }
    end_all();
    return problem_.empty() ? "" : "at the end: " + problem_;
  }

  const RadixWorldCounts& counts() const { return counts_; }

 private:
  struct Sequence {
    char salt = 'x';
    std::string blocks;  // one character per block of tokens
    std::vector<int32_t> tokens;
    RadixTree::Pin pin;
    std::vector<BlockPool::Lease> leases;
    // The model's.
    std::vector<std::string> path;
    std::vector<std::vector<int32_t>> leased;
  };
  static constexpr size_t kMaxSequences = 6;

  void expect(bool holds, const std::string& what) {
    if (!holds && problem_.empty()) problem_ = what;
  }

  // Blocks of different characters differ in one token.
  void append_block(Sequence& sequence, char block) const {
    const auto index = static_cast<size_t>(block - 'a');
    const size_t begin = sequence.tokens.size();
    sequence.blocks += block;
    sequence.tokens.resize(begin + static_cast<size_t>(config_.block_tokens), 7);
    sequence.tokens[begin + index % static_cast<size_t>(config_.block_tokens)] = block;
  }

  Sequence make_sequence(const RadixOp& op) const {
    Sequence sequence;
    // Few salts and few different blocks, so that prefixes meet.
    sequence.salt = "xxxxxyyz"[op.c % 8];
    int choices = op.b;
    for (int i = op.a % 7; i > 0; --i, choices /= 2)
      append_block(sequence, "aaabaabc"[choices % 8]);
    const size_t groups = pools_.size();
    sequence.leases.resize(groups);
    sequence.leased.resize(groups);
    return sequence;
  }
  static std::string salt_of(const Sequence& sequence) {
    return {PlainPrefixCache::owner_of(sequence.salt), '\n', sequence.salt};
  }
  // The sequence's tokens and some of a block that is not whole.
  std::vector<int32_t> tokens_and_tail(const Sequence& sequence, uint8_t choice) const {
    std::vector<int32_t> tokens = sequence.tokens;
    tokens.resize(tokens.size() + choice % static_cast<size_t>(config_.block_tokens), 7);
    return tokens;
  }
  Sequence* sequence_at(uint8_t index) {
    return sequences_.empty() ? nullptr : &sequences_[index % sequences_.size()];
  }

  void apply(const RadixOp& op) {
    Sequence* const sequence = sequence_at(op.a);
    const std::string name = kRadixOpNames[op.kind % kNumRadixOps];
    if (name == "match") return start(op);
    if (name == "evict") return evict(op.a % 5);
    if (name == "clear") return op.b < 8 ? evict_all() : void();
    if (name == "submit") return submit_step();
    if (name == "done") return finish_step();
    if (name == "ask length") return ask_length(op);
    if (sequence == nullptr) return;
    if (name == "lease") return lease(*sequence, op.b % 6);
    if (name == "publish") return publish(*sequence, op.b, op.c);
    if (name == "end") return end(op.a % sequences_.size());
    if (name == "rematch") return rematch(*sequence, op.b);
    if (name == "drop lease") return op.b < 64 ? drop_leases(*sequence) : void();
    if (sequence->blocks.size() < 8) append_block(*sequence, static_cast<char>('a' + op.b % 3));
  }

  void start(const RadixOp& op) {
    if (sequences_.size() == kMaxSequences) end(op.b % kMaxSequences);
    Sequence sequence = make_sequence(op);
    const std::vector<int32_t> tokens = tokens_and_tail(sequence, op.c);
    const int64_t max_tokens = std::ssize(tokens) - (op.c >> 6) % 3;
    sequence.pin = tree_->match(salt_of(sequence), tokens, max_tokens);
    sequence.path =
        model_.match(sequence.salt, sequence.blocks,
                     static_cast<size_t>(std::max<int64_t>(max_tokens, 0) / config_.block_tokens));
    counts_.hit_blocks += std::ssize(sequence.path);
    sequences_.push_back(std::move(sequence));
  }

  void ask_length(const RadixOp& op) {
    const Sequence sequence = make_sequence(op);
    const int64_t length = tree_->match_length(salt_of(sequence), tokens_and_tail(sequence, op.c));
    expect(length == static_cast<int64_t>(model_.match_length(sequence.salt, sequence.blocks)) *
                         config_.block_tokens,
           "match_length is " + std::to_string(length));
  }

  void lease(Sequence& sequence, int num_blocks) {
    for (size_t group = 0; group < pools_.size(); ++group) {
      Result<BlockPool::Lease> lease = pools_[group]->lease(num_blocks);
      const bool fits = num_blocks <= static_cast<int>(model_.pool(group).free.size());
      expect(lease.has_value() == fits, "lease of " + std::to_string(num_blocks) + " blocks");
      if (!lease) {
        ++counts_.refused_leases;
        continue;
      }
      expect(model_.take(group, lease->ids()), "a block was leased that is not free");
      std::vector<int32_t>& leased = sequence.leased[group];
      leased.insert(leased.end(), lease->ids().begin(), lease->ids().end());
      sequence.leases[group].merge(std::move(*lease));
    }
  }

  // As many whole blocks as there are leases for, or fewer.
  void publish(Sequence& sequence, uint8_t fewer, uint8_t tail) {
    size_t num_leased = sequence.leased[0].size();
    for (const std::vector<int32_t>& leased : sequence.leased)
      num_leased = std::min(num_leased, leased.size());
    size_t num_blocks = std::min(sequence.path.size() + num_leased, sequence.blocks.size());
    if (fewer % 4 == 0) num_blocks -= std::min<size_t>(num_blocks, fewer % 3);
    std::vector<int32_t> tokens = tokens_and_tail(sequence, tail);
    const auto block_tokens = static_cast<size_t>(config_.block_tokens);
    tokens.resize(std::min(tokens.size(), num_blocks * block_tokens + tail % block_tokens));
    const int num_added = tree_->publish(sequence.pin, salt_of(sequence), tokens, sequence.leases);
    expect(num_added == model_.publish(sequence.salt, sequence.blocks.substr(0, num_blocks),
                                       sequence.path, sequence.leased),
           std::to_string(num_added) + " blocks published");
    counts_.published_blocks += num_added;
  }

  void rematch(Sequence& sequence, uint8_t max_blocks) {
    const int64_t max_tokens = int64_t{max_blocks % 8} * config_.block_tokens;
    sequence.pin = tree_->match(salt_of(sequence), sequence.tokens, max_tokens);
    const std::vector<std::string> old = sequence.path;
    sequence.path = model_.match(sequence.salt, sequence.blocks, max_blocks % 8);
    model_.unpin(old);
    // Blocks after another path would be others' rows.
    drop_leases(sequence);
  }

  void drop_leases(Sequence& sequence) {
    for (size_t group = 0; group < pools_.size(); ++group) {
      sequence.leases[group] = {};
      model_.give_back(group, sequence.leased[group]);
      sequence.leased[group].clear();
    }
  }

  void end(size_t index) {
    Sequence& sequence = sequences_[index];
    drop_leases(sequence);
    model_.unpin(sequence.path);
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void evict(int num_blocks) {
    const int num_evicted = tree_->evict(num_blocks);
    expect(num_evicted == model_.evict(num_blocks),
           std::to_string(num_evicted) + " of " + std::to_string(num_blocks) + " blocks evicted");
    counts_.evicted_blocks += num_evicted;
  }
  void evict_all() {
    tree_->clear();
    model_.evict(config_.num_blocks);
  }

  void submit_step() {
    if (model_.last_submitted() - model_.last_done() >= 2) return;
    model_.submit_step();
    for (const auto& pool : pools_) pool->step_submitted(model_.last_submitted());
  }
  void finish_step() {
    if (model_.last_submitted() == model_.last_done()) return;
    model_.finish_step();
    for (const auto& pool : pools_) pool->step_done(model_.last_done());
  }

  void end_all() {
    while (!sequences_.empty()) end(0);
    evict_all();
    while (model_.last_submitted() > model_.last_done()) finish_step();
    compare();
    check_integrity();
    for (const auto& pool : pools_)
      expect(pool->num_free() == config_.num_blocks, "blocks are missing");
  }

  void compare() {
    expect(tree_->num_blocks() == static_cast<int>(model_.entries().size()),
           std::to_string(tree_->num_blocks()) + " blocks cached, the model has " +
               std::to_string(model_.entries().size()));
    expect(tree_->num_pinned_blocks() == model_.num_pinned(),
           std::to_string(tree_->num_pinned_blocks()) + " pinned, the model has " +
               std::to_string(model_.num_pinned()));
    for (size_t group = 0; group < pools_.size(); ++group) {
      const PlainPool& pool = model_.pool(group);
      size_t num_leased = 0;
      for (const Sequence& sequence : sequences_) {
        num_leased += sequence.leases[group].ids().size();
        expect(sequence.leases[group].ids() == sequence.leased[group], "a lease has other blocks");
        expect(sequence.pin.block_ids(static_cast<int>(group)) ==
                   model_.block_ids(sequence.path, group),
               "a pin has other blocks");
      }
      expect(
          pools_[group]->num_free() == static_cast<int>(pool.free.size()) &&
              pools_[group]->num_fenced() == static_cast<int>(pool.fenced.size()) &&
              pools_[group]->num_owned() == static_cast<int>(model_.entries().size() + num_leased),
          std::to_string(pools_[group]->num_free()) + " blocks free, " +
              std::to_string(pools_[group]->num_fenced()) + " fenced; the model has " +
              std::to_string(pool.free.size()) + " and " + std::to_string(pool.fenced.size()));
    }
  }

  void check_integrity() {
    expect(named_.compare(model_.entries()).empty(), named_.compare(model_.entries()));
    expect(tree_->check_integrity().empty(), tree_->check_integrity());
    for (const auto& pool : pools_)
      expect(pool->check_integrity().empty(), pool->check_integrity());
  }

  RadixWorldConfig config_;
  std::vector<std::unique_ptr<BlockPool>> pools_;
  NamedBlocks named_;
  std::unique_ptr<RadixTree> tree_;
  PlainPrefixCache model_;
  std::vector<Sequence> sequences_;
  std::string problem_;
  RadixWorldCounts counts_;
};

// Drops operations, in ever smaller runs, as long as what is left still fails.
inline std::vector<RadixOp> shrink_ops(std::vector<RadixOp> ops,
                                       const std::function<bool(std::span<const RadixOp>)>& fails) {
  for (size_t run = ops.size(); run > 0; run = run == 1 ? 0 : (run + 1) / 2) {
    for (size_t begin = 0; begin < ops.size();) {
      std::vector<RadixOp> fewer(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(begin));
      const size_t end = std::min(begin + run, ops.size());
      fewer.insert(fewer.end(), ops.begin() + static_cast<std::ptrdiff_t>(end), ops.end());
      if (fails(fewer)) {
        ops = std::move(fewer);
      } else {
        begin += run;
      }
    }
  }
  return ops;
}

inline std::string describe_ops(std::span<const RadixOp> ops) {
  std::string text;
  for (const RadixOp& op : ops)
    text += "  {" + std::to_string(op.kind) + ", " + std::to_string(op.a) + ", " +
            std::to_string(op.b) + ", " + std::to_string(op.c) + "},  // " +
            kRadixOpNames[op.kind % kNumRadixOps] + "\n";
  return text;
}

}  // namespace fathom::cache::testing
