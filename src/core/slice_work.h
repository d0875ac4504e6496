#pragma once
// SliceWork: how much a slice makes a runner compute, for whoever estimates what a step will cost.
//
//   core::SliceWork work = runner.slice_work(/*num_tokens=*/512, /*kv_begin=*/4096);
//
// In multiply-adds, so that the parts can be compared before anything has been measured; what one of them costs is
// another for each part and machine. Plain data.

namespace fathom::core {

// What computing prompts at all costs a runner that says nothing else, in tokens of them: a first guess.
inline constexpr int kStepStartTokens = 8;

struct SliceWork {
  double linear = 0;    // projections and experts: the same for every token
  double absorbed = 0;  // attention over what the cache holds
  double expanded = 0;  // attention that expands the rows of the cache first
  bool operator==(const SliceWork&) const = default;
  SliceWork& operator+=(const SliceWork& other) {
    linear += other.linear;
    absorbed += other.absorbed;
    expanded += other.expanded;
    return *this;
  }
};

}  // namespace fathom::core
