#pragma once
// DraftDepth: chooses how many drafts to ask for, from what steps cost and how many drafts were accepted.
//
//   DraftDepth depth({.max_drafts = 3, .num_positions = 3, .is_chain = true});
//   int num_drafts = depth.choose(num_running);        // before every plan
//   outcome.clear(3); ... outcome.add(verified, asked, accepted) for every decode of the step ...
//   depth.observe(outcome);                            // after every step, in order
//
// It takes the depth with the most tokens per second: tokens of a verifying step by the share of drafts accepted
// at each position, over the step's time at this number of running sequences and depth, measured in steps
// without prompts that verify as many drafts as they ask for. What was not measured near that number is
// estimated: steps cost the same up to 32 rows, then by the row.
// Every kProbeSteps it looks at another depth for some steps, so that it notices when drafts get better or
// plain decoding gets cheaper. While nothing is drafted and looking does not change that, it waits twice as long each
// time, up to kMaxProbeSteps, until the load is another. What looking costs against plain decoding is paid from a
// credit: 16 steps at the start, 0.5% of the steps, and what drafts have gained. A depth that was found too dear is
// looked at all the same once that is long ago: the machine may have been busy. Without credit nothing is drafted, so a
// run of n steps takes about n * 1.005 + 16 steps' time of plain decoding at most, as far as the measured times are
// right. Steps are read late: a choice shows in the outcome of the step after next. The same calls give the same
// choices. One thread uses it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fathom::engine {

struct DraftDepthConfig {
  int max_drafts = 1;     // of a slot, >= 1
  int num_positions = 1;  // drafts that can be accepted after one another: the steps of the drafter
  // A chain may have any depth up to max_drafts; a tree is drafted whole or not at all.
  bool is_chain = true;
};

// What one step did to the sequences that were not in their prompt.
struct DraftOutcome {
  std::vector<int32_t> verified, accepted;  // [d]: how many sequences verified, accepted d drafts
  int num_sequences = 0;
  int64_t num_verified = 0, num_asked = 0, num_tokens = 0;
  bool has_prompts = false;  // the step computed prompt tokens, too
  double seconds = 0;        // of the runner; 0 = not measured

  void clear(int max_drafts);
  void add(int num_drafts_verified, int num_drafts_asked, int num_accepted) {
    ++verified[static_cast<size_t>(num_drafts_verified)];
    ++accepted[static_cast<size_t>(num_accepted)];
    ++num_sequences;
    num_verified += num_drafts_verified;
    num_asked += num_drafts_asked;
    num_tokens += num_accepted + 1;
  }
};

class DraftDepth {
 public:
  static constexpr int kProbeSteps = 256, kMaxProbeSteps = 1024;

  explicit DraftDepth(const DraftDepthConfig& config);

  // Drafts to ask for in the next step with so many sequences running.
  int choose(int num_running);
  void observe(const DraftOutcome& outcome);

  // How likely the first i + 1 drafts of a sequence are all accepted, by what was seen lately.
  double acceptance(int position) const;

 private:
  // Times of steps at one depth and number of sequences, the last few of them.
  struct Cell {
    static constexpr int kRecent = 16;
    std::array<float, kRecent> recent{};
    double seconds = 0;     // their median: steps that the system held up say little
    int64_t num_steps = 0;  // since it was measured anew
    int64_t last_step = -1;
    void add(double step_seconds);
  };
  struct Position {
    double trials = 0, hits = 0;  // decayed
    int64_t last_step = -1;
  };

  void observe_acceptance(const DraftOutcome& outcome);
  void observe_time(const DraftOutcome& outcome);
  Cell& cell(int bucket, int depth);
  const Cell& cell(int bucket, int depth) const;
  bool is_measured(int bucket, int depth) const;
  // A bucket at most two away in which both this depth and plain decoding were measured; -1 = none.
  int measured_bucket(int bucket, int depth) const;
  // Time of a step over that of a plain one.
  double relative_cost(int num_running, int depth) const;
  // Tokens that a sequence gets in a step.
  double expected_tokens(int depth) const;
  double rate(int num_running, int depth) const {
    return expected_tokens(depth) / relative_cost(num_running, depth);
  }
  int next_depth(int depth) const { return config_.is_chain ? depth + 1 : config_.max_drafts; }
  bool wants_plain_measured(int num_running);
  int best_depth(int num_running) const;
  void start_probe_if_due(int num_running);
  int probe_target(int num_running) const;
  int probe_length(int num_running, int target) const;

  DraftDepthConfig config_;
  std::vector<Cell> cells_;          // [bucket][depth]
  std::vector<int> plain_attempts_;  // [bucket]: choices of 0 to have it measured
  std::vector<Position> positions_;
  int64_t step_ = 0, last_probe_step_ = 0;
  int probe_interval_ = kProbeSteps;
  int probed_bucket_ = -1;  // where the last look from a depth of 0 was
  int current_ = 0, probe_depth_ = 0, probe_steps_left_ = 0;
  double credit_;  // in steps of plain decoding
  bool suspended_ = false;
};

}  // namespace fathom::engine
