// Sampling, one row per task: a few vectorised passes over the row and no sort. What top_k and top_p keep is
// found by counting: a histogram over the weights, then over the bits of the logits of the one bin in
// which the limit falls.
#include "ops/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "cpu/fast/fast_stream.h"
#include "cpu/fast/logits_row.h"
#include "cpu/fast/ops.h"
#include "cpu/fast/weight_rows.h"
#include "cpu/sample_row.h"
#include "ops/sample_weight.h"

namespace fathom::cpu::fast {
namespace {

constexpr int kKeyBits = 11;  // of a logit that one pass of the search looks at
constexpr int64_t kNumBins = std::max(int64_t{1} << kKeyBits, int64_t{kNumSampleBins} + 1);

struct Bin {
  uint64_t shares = 0;
  int64_t count = 0;
};

// Scratch of one thread.
struct Workspace {
  float* adjusted;       // [vocab_size]
  float* weights;        // [vocab_size]
  int32_t* ids;          // [vocab_size]  bins of all tokens, then the tokens of one bin
  Bin* bins;             // [kNumBins]
  uint64_t* block_sums;  // [blocks of vocab_size]
};

int64_t num_blocks(int64_t vocab_size) { return (vocab_size + kSampleBlock - 1) / kSampleBlock; }

Workspace carve(int64_t vocab_size, ScratchArena& arena) {
  return {.adjusted = arena.take<float>(vocab_size),
          .weights = arena.take<float>(vocab_size),
          .ids = arena.take<int32_t>(vocab_size),
          .bins = arena.take<Bin>(kNumBins),
          .block_sums = arena.take<uint64_t>(num_blocks(vocab_size))};
}

int64_t workspace_bytes(int64_t vocab_size) {
  ScratchArena arena;
  carve(vocab_size, arena);
  return arena.bytes();
}

// Orders floats as unsigned numbers; the two zeros are one.
uint32_t key_of(float logit) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// What top_k and top_p still take, walking down from the best token.
struct Allowance {
  int64_t count = 0;
  uint64_t shares = 0;

  // Whether the limit lies within the bin; otherwise all of it is taken.
  bool ends_in(const Bin& bin) {
    if (bin.count >= count || bin.shares >= shares) return true;
    count -= bin.count;
    shares -= bin.shares;
    return false;
  }
};

// What the limits keep: all logits above the level, and the first `num_ties` of Draw's tied tokens at it.
struct Level {
  float logit = -HUGE_VALF;
  int64_t num_tied = 0, num_kept = 0;  // tokens at the level
};

class Draw {
 public:
  Draw(const SampleRow& row, const KernelTable& kernels, const Workspace& space,
       const float* logits, float largest)
      : row_(row),
        kernels_(kernels),
        space_(space),
        logits_(logits),
        vocab_size_(row.vocab_size()),
        largest_(largest),
        factor_(ops::sample_factor(row.temperature())) {}

  int64_t run() {
    uint64_t total = 0;
    each_block([&](int64_t block, const SampleTile& tile) {
      total += space_.block_sums[block] = kernels_.sample_weights(tile);
    });
    Level level;
    if (row_.top_k() < vocab_size_ || row_.top_p() < 1) level = find_level(total);
    if (level.logit > -HUGE_VALF || row_.min_p() > 0) total = keep(level);
    return pick(scale_bits(row_.bits(), total));
  }

 private:
  template <class F>
  void each_block(const F& f) {
    for (int64_t begin = 0; begin < vocab_size_; begin += kSampleBlock)
      f(begin / kSampleBlock, SampleTile{.logits = logits_ + begin,
                                         .num = std::min(kSampleBlock, vocab_size_ - begin),
                                         .largest = largest_,
                                         .factor = factor_,
                                         .weights = space_.weights + begin});
  }

  uint64_t share(int64_t id) const { return ops::sample_share(space_.weights[id]); }

  void count(int32_t bin, int64_t id) {
    space_.bins[bin].shares += share(id);
    ++space_.bins[bin].count;
  }

  Level find_level(uint64_t total) {
    // A share of at least 1 means at least one token, because the best one has 2^40.
    Allowance left{.count = row_.top_k(),
                   .shares = row_.top_p() < 1 ? std::max<uint64_t>(
                                                    ops::sample_top_p_share(row_.top_p(), total), 1)
                                              : ~uint64_t{0}};
    std::fill_n(space_.bins, kNumSampleBins + 1, Bin());
    each_block([&](int64_t block, const SampleTile& tile) {
      int32_t* const bins = space_.ids + block * kSampleBlock;
      kernels_.sample_bins(tile, bins);
      for (int64_t i = 0; i < tile.num; ++i) count(bins[i], block * kSampleBlock + i);
    });
    int32_t bin = 0;
    while (bin < kNumSampleBins && !left.ends_in(space_.bins[bin])) ++bin;
    if (bin == kNumSampleBins) return {};  // no limit before the tokens that weigh nothing
    int64_t num_left = 0;
    for (int64_t id = 0; id < vocab_size_; ++id)
      if (space_.ids[id] == bin) space_.ids[num_left++] = static_cast<int32_t>(id);
    for (const int shift : {32 - kKeyBits, 32 - 2 * kKeyBits, 0})
      num_left = narrow(num_left, shift, left);
    return level_of(num_left, left);
  }

  // Of the first `num` ids, which agree in their key's bits above these, keeps those of the bin in
  // which the limit lies. They stay in order.
  int64_t narrow(int64_t num, int shift, Allowance& left) {
    const auto bin_of = [&](int32_t id) {
      return static_cast<int32_t>(key_of(logits_[id]) >> shift & ((1u << kKeyBits) - 1));
    };
    std::fill_n(space_.bins, int64_t{1} << kKeyBits, Bin());
    for (int64_t i = 0; i < num; ++i) count(bin_of(space_.ids[i]), space_.ids[i]);
    int32_t bin = (1 << kKeyBits) - 1;
    while (!left.ends_in(space_.bins[bin])) --bin;
    int64_t num_left = 0;
    for (int64_t i = 0; i < num; ++i)
      if (bin_of(space_.ids[i]) == bin) space_.ids[num_left++] = space_.ids[i];
    return num_left;
  }

  // All of the first `num` ids have one logit, so one share.
  Level level_of(int64_t num, const Allowance& left) const {
    const uint64_t each = share(space_.ids[0]);
    int64_t kept = std::min(num, left.count);
    // No overflow: the limit lies in this bin, or there is none and then the quotient is large.
    if (each > 0 && left.shares <= each * static_cast<uint64_t>(num))
      kept = std::min(kept, static_cast<int64_t>((left.shares + each - 1) / each));
    return {.logit = logits_[space_.ids[0]], .num_tied = num, .num_kept = kept};
  }

  // Sets the weights of all others to 0 and returns what is left.
  uint64_t keep(const Level& level) {
    uint64_t total = 0;
    each_block([&](int64_t block, const SampleTile& tile) {
      total += space_.block_sums[block] = kernels_.keep_weights(tile, level.logit, row_.min_p());
    });
    for (int64_t i = level.num_kept; i < level.num_tied; ++i) {
      const int32_t id = space_.ids[i];
      space_.block_sums[id / kSampleBlock] -= share(id);
      total -= share(id);
      space_.weights[id] = 0;
    }
    return total;
  }

  // The first token whose running sum exceeds the target.
  int64_t pick(uint64_t target) const {
    int64_t block = 0;
    for (; block < num_blocks(vocab_size_) && space_.block_sums[block] <= target; ++block)
      target -= space_.block_sums[block];
    FATHOM_CHECK(block < num_blocks(vocab_size_), "the draw passed the sum of weights");
    int64_t id = block * kSampleBlock;
    for (; share(id) <= target; ++id) target -= share(id);
    return id;
  }

  const SampleRow& row_;
  const KernelTable& kernels_;
  const Workspace& space_;
  const float* const logits_;
  const int64_t vocab_size_;
  const float largest_, factor_;
};

class RowSampler {
 public:
  RowSampler(const SampleRow& row, const KernelTable& kernels, const Workspace& space)
      : row_(row), kernels_(kernels), space_(space) {}

  void run() {
    const Range range = range_of(row_.logits(), row_.vocab_size(), kernels_);
    if (!range.good || (range.min == -HUGE_VALF && !row_.mask_explains_minus_infinity()))
      return row_.write_failure(SampleRow::kNonFinite);
    const int64_t token = row_.forced() >= 0 ? row_.forced() : choose(range);
    if (token < 0) return row_.write_failure(failed_);
    FATHOM_CHECK(token < row_.vocab_size(), "forced is " << token);
    const float log_total = log_sum_exp(row_.logits(), row_.vocab_size(), range.max, kernels_);
    row_.write(token, row_.logits()[token] - log_total);
    if (row_.num_top() > 0) write_top(log_total);
  }

 private:
  int64_t fail(uint8_t failed) {
    failed_ = failed;
    return -1;
  }

  int64_t choose(const Range& raw) {
    if (row_.is_plain()) return choose(row_.logits(), raw);
    row_.adjust(space_.adjusted);
    return choose(space_.adjusted, range_of(space_.adjusted, row_.vocab_size(), kernels_));
  }

  int64_t choose(const float* logits, const Range& range) {
    if (!range.good) return fail(SampleRow::kNonFinite);
    if (range.max == -HUGE_VALF) return fail(SampleRow::kNothingLeft);
    if (row_.is_greedy()) return range.first_max;
    return Draw(row_, kernels_, space_, logits, range.max).run();
  }

  void write_top(float log_total) const {
    TopTokens top(row_.logits(), row_.top_ids(), row_.num_top());
    add_all(top, row_.logits(), row_.vocab_size(), kernels_);
    top.write_logprobs(log_total, row_.top_logprobs());
  }

  const SampleRow& row_;
  const KernelTable& kernels_;
  const Workspace& space_;
  uint8_t failed_ = 0;
};

}  // namespace

int64_t sample_scratch(const ops::SampleArgs& args, const ops::Stream& stream) {
  return fast_stream(stream).num_threads() * workspace_bytes(args.logits.dim(1));
}

void sample(const ops::SampleArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t rows = args.logits.dim(0), vocab_size = args.logits.dim(1);
  const int64_t bytes = workspace_bytes(vocab_size);
  auto* const scratch = static_cast<char*>(stream.scratch());
  stream.run(rows, rows * vocab_size, [&](int64_t row, int worker) {
    ScratchArena arena(scratch + worker * bytes);
    const Workspace space = carve(vocab_size, arena);
    const SampleRow sampled(args, row);
    RowSampler(sampled, stream.kernels(), space).run();
  });
}

}  // namespace fathom::cpu::fast
