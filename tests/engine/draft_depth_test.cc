// DraftDepth against synthetic machines: what a step costs and how often drafts are right are given, and what it
// chooses is compared with always deep and never.

#include "engine/draft_depth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace fathom::engine {
namespace {

// Seconds of a step with `rows` query tokens and this many drafts asked of each of num_running sequences.
using StepCost = std::function<double(int num_running, double rows, int num_asked)>;

double flat_then_linear(int, double rows, int num_asked) {
  return 0.01 * std::max(1.0, rows / 32) + 0.0004 * num_asked;
}

double linear(int, double rows, int num_asked) { return 0.001 * rows + 0.0001 * num_asked; }

struct Machine {
  StepCost cost = flat_then_linear;
  double acceptance = 0.8;
  int num_running = 4, max_drafts = 3;
  bool prompts_in_every_step = false;
  // How much longer a step is measured than it takes: others use the machine, too.
  std::function<double()> noise = [] { return 1.0; };
};

// What a run came to. Plain seconds: of the same tokens without drafts.
struct Record {
  double seconds = 0, plain_seconds = 0;
  std::vector<int> asked;  // per step
  double relative() const { return seconds / plain_seconds; }
  int most_asked_since(size_t step) const {
    std::vector<int> counts(64);
    for (size_t i = step; i < asked.size(); ++i) ++counts[static_cast<size_t>(asked[i])];
    return static_cast<int>(std::max_element(counts.begin(), counts.end()) - counts.begin());
  }
  // How often it began to ask for drafts in steps [begin, end).
  int num_looks(size_t begin, size_t end) const {
    int num_looks = 0;
    for (size_t i = std::max<size_t>(begin, 1); i < end; ++i)
      num_looks += asked[i - 1] == 0 && asked[i] > 0 ? 1 : 0;
    return num_looks;
  }
  int num_asked_since(size_t step, int depth) const {
    return static_cast<int>(
        std::count(asked.begin() + static_cast<std::ptrdiff_t>(step), asked.end(), depth));
  }
};

// Steps with one more in flight, as the step loop has them: a choice is made before the outcome of the step before
// is known.
class Driver {
 public:
  explicit Driver(const Machine& machine)
      : machine_(machine),
        depth_({.max_drafts = machine.max_drafts,
                .num_positions = machine.max_drafts,
                .is_chain = true}) {}

  Machine& machine() { return machine_; }
  const Record& run() const { return run_; }

  void steps(int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      const int asked = depth_.choose(machine_.num_running);
      in_flight_.push_back(step(std::exchange(num_proposed_, asked), asked));
      if (in_flight_.size() < 2) continue;
      depth_.observe(in_flight_.front());
      in_flight_.pop_front();
    }
  }

 private:
  DraftOutcome step(int num_verified, int num_asked) {
    DraftOutcome outcome;
    outcome.clear(machine_.max_drafts);
    for (int i = 0; i < machine_.num_running; ++i) {
      int num_accepted = 0;
      while (num_accepted < num_verified && uniform_(random_) < machine_.acceptance) ++num_accepted;
      outcome.add(num_verified, num_asked, num_accepted);
    }
    const double n = machine_.num_running;
    const double seconds = machine_.cost(machine_.num_running, n * (1 + num_verified), num_asked);
    outcome.seconds = seconds * machine_.noise();
    outcome.has_prompts = machine_.prompts_in_every_step;
    run_.seconds += seconds;
    run_.plain_seconds +=
        static_cast<double>(outcome.num_tokens) / n * machine_.cost(machine_.num_running, n, 0);
    run_.asked.push_back(num_asked);
    return outcome;
  }

  Machine machine_;
  DraftDepth depth_;
  Record run_;
  std::deque<DraftOutcome> in_flight_;
  int num_proposed_ = 0;
  std::mt19937 random_{7};
  std::uniform_real_distribution<double> uniform_{0, 1};
};

Record run(const Machine& machine, int num_steps = 3000) {
  Driver driver(machine);
  driver.steps(num_steps);
  return driver.run();
}

TEST(DraftDepth, few_sequences_draft_deep_and_many_do_not_draft) {
  for (const int num_running : {1, 2, 4, 8}) {
    const Record done = run({.num_running = num_running});
    EXPECT_EQ(done.most_asked_since(200), 3) << num_running;
    EXPECT_LT(done.relative(), 0.45) << num_running;  // 2.95 tokens for 1.12 of the time
  }
  for (const int num_running : {64, 128, 256}) {
    const Record done = run({.acceptance = 0.6, .num_running = num_running});
    EXPECT_EQ(done.most_asked_since(200), 0) << num_running;
    EXPECT_GT(done.num_asked_since(0, 0), 2900) << num_running;
  }
}

TEST(DraftDepth, a_depth_between_is_found_where_it_pays_most) {
  // 16 sequences: one draft each is free, more cost by the row.
  const Record done = run({.acceptance = 0.6, .num_running = 16});
  EXPECT_EQ(done.most_asked_since(200), 1);
  // 1.6 tokens for 1.04 of the time, if it were always one.
  EXPECT_LT(done.relative(), 1.02 * 1.04 / 1.6);
}

TEST(DraftDepth, is_never_worse_than_plain_decoding_by_more_than_three_percent) {
  for (const StepCost& cost : {StepCost(flat_then_linear), StepCost(linear)})
    for (const double acceptance : {0.0, 0.2, 0.5, 0.9, 1.0})
      for (const int num_running : {1, 3, 7, 16, 33, 64, 256}) {
        const Record done =
            run({.cost = cost, .acceptance = acceptance, .num_running = num_running});
        EXPECT_LE(done.relative(), 1.03) << acceptance << " accepted, " << num_running;
      }
}

TEST(DraftDepth, goes_to_none_when_few_drafts_are_right_and_comes_back_when_they_are) {
  // A step of four sequences costs by the row, a draft nearly half of it.
  const auto cost = [](int, double rows, int num_asked) {
    return 0.006 + 0.001 * rows + 0.0005 * num_asked;
  };
  Driver driver({.cost = cost, .acceptance = 0.9});
  driver.steps(600);
  EXPECT_GE(driver.run().most_asked_since(100), 2);
  driver.machine().acceptance = 0.2;
  driver.steps(1400);
  EXPECT_EQ(driver.run().most_asked_since(700), 0);
  EXPECT_GT(driver.run().num_asked_since(700, 0), 1200);
  driver.machine().acceptance = 0.9;
  driver.steps(2000);
  EXPECT_GE(driver.run().most_asked_since(3000), 2);
}

TEST(DraftDepth, looks_more_seldom_where_drafts_have_not_paid) {
  const Record done = run({.acceptance = 0.3, .num_running = 64}, 10'000);
  EXPECT_GE(done.num_looks(0, 3000), 3);
  EXPECT_GE(done.num_looks(3000, 10'000), 7000 / DraftDepth::kMaxProbeSteps - 1);
  EXPECT_LE(done.num_looks(3000, 10'000), 7000 / DraftDepth::kMaxProbeSteps + 1);
  EXPECT_LT(done.relative(), 1.005);
}

TEST(DraftDepth, sees_soon_that_drafts_pay_however_long_they_did_not) {
  const int running_dry = 10'000;
  // Better drafts at the same load: with the next look, which is at most kMaxProbeSteps away.
  Driver better({.acceptance = 0.1, .num_running = 4});
  better.machine().cost = linear;
  better.steps(running_dry);
  better.machine().cost = flat_then_linear;
  better.machine().acceptance = 0.9;
  better.steps(DraftDepth::kMaxProbeSteps + 300);
  EXPECT_EQ(better.run().most_asked_since(better.run().asked.size() - 100), 3);
  // Another load where only a look tells: as if nobody had looked before.
  Driver fewer({.cost = linear, .acceptance = 0.3, .num_running = 128});
  fewer.steps(running_dry);
  fewer.machine().num_running = 24;
  fewer.steps(3 * DraftDepth::kProbeSteps);
  EXPECT_GE(fewer.run().num_looks(running_dry, fewer.run().asked.size()), 2);
}

TEST(DraftDepth, follows_the_number_of_running_sequences) {
  Driver driver({.acceptance = 0.7});
  for (int round = 0; round < 3; ++round) {
    driver.machine().num_running = 256;
    driver.steps(300);
    EXPECT_EQ(driver.run().most_asked_since(driver.run().asked.size() - 100), 0) << round;
    driver.machine().num_running = 2;
    driver.steps(300);
    EXPECT_EQ(driver.run().most_asked_since(driver.run().asked.size() - 100), 3) << round;
  }
}

TEST(DraftDepth, notices_that_plain_decoding_has_become_cheaper) {
  double draft_seconds = 0.0001;
  const auto cost = [&](int, double, int num_asked) { return 0.01 + draft_seconds * num_asked; };
  Driver driver({.cost = cost, .acceptance = 0.6, .num_running = 2});
  driver.steps(800);
  EXPECT_EQ(driver.run().most_asked_since(400), 3);
  draft_seconds = 0.02;
  driver.steps(1500);
  EXPECT_EQ(driver.run().most_asked_since(1500), 0);
}

TEST(DraftDepth, without_a_step_to_measure_the_rows_decide) {
  EXPECT_EQ(run({.num_running = 4, .prompts_in_every_step = true}).most_asked_since(100), 3);
  EXPECT_EQ(run({.num_running = 200, .prompts_in_every_step = true}).most_asked_since(100), 0);
}

TEST(DraftDepth, a_step_that_the_system_held_up_does_not_decide) {
  int num_steps = 0;
  const auto cost = [&](int num_running, double rows, int num_asked) {
    const double held_up = ++num_steps % 97 == 0 ? 20 : 1;
    return held_up * flat_then_linear(num_running, rows, num_asked);
  };
  EXPECT_GT(run({.cost = cost, .num_running = 4}).num_asked_since(0, 3), 2500);
}

TEST(DraftDepth, first_steps_with_drafts_that_the_system_held_up_are_forgotten) {
  for (const int num_running : {1, 4}) {
    int num_steps = 0;
    const auto cost = [&](int running, double rows, int num_asked) {
      const double held_up = ++num_steps < 40 && rows > running ? 20 : 1;
      return held_up * flat_then_linear(running, rows, num_asked);
    };
    const Record done = run({.cost = cost, .num_running = num_running}, 10'000);
    EXPECT_GT(done.num_asked_since(8000, 3), 1800) << num_running;
  }
}

// Where two depths cost nearly the same, noise decides between them; what that loses is a part of the difference.
TEST(DraftDepth, a_noisy_clock_costs_no_more_than_five_percent) {
  for (const double acceptance : {0.0, 0.3, 0.9}) {
    for (const int num_running : {1, 8, 32, 128}) {
      std::mt19937 random{11};
      std::exponential_distribution<double> delay{3};
      // Judged by what steps cost, chosen by what was measured.
      Machine machine{.acceptance = acceptance, .num_running = num_running};
      machine.noise = [&] { return 1 + delay(random); };
      EXPECT_LE(run(machine, 6000).relative(), 1.05) << acceptance << ", " << num_running;
    }
  }
}

TEST(DraftDepth, the_same_measurements_give_the_same_choices) {
  const Machine machine{.acceptance = 0.5, .num_running = 12};
  EXPECT_EQ(run(machine).asked, run(machine).asked);
}

TEST(DraftDepth, a_tree_is_drafted_whole_or_not_at_all) {
  DraftDepth depth({.max_drafts = 7, .num_positions = 3, .is_chain = false});
  std::vector<int> asked;
  int num_proposed = 0;
  for (int i = 0; i < 600; ++i) {
    asked.push_back(depth.choose(2));
    DraftOutcome outcome;
    outcome.clear(7);
    const int num_verified = std::exchange(num_proposed, asked.back());
    for (int k = 0; k < 2; ++k) outcome.add(num_verified, asked.back(), num_verified > 0 ? 2 : 0);
    outcome.seconds = 0.01 * (1 + 0.1 * num_verified);
    depth.observe(outcome);
  }
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 0) + std::count(asked.begin(), asked.end(), 7),
            600);
  EXPECT_GT(std::count(asked.begin() + 100, asked.end(), 7), 480);  // 3 tokens for 1.7 of the time
  EXPECT_GT(depth.acceptance(1), 0.95);
  EXPECT_LT(depth.acceptance(2), 0.1);
}

}  // namespace
}  // namespace fathom::engine
