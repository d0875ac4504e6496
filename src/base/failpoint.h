#pragma once
// Named places where a test can make the program fail: read errors, empty pools, broken steps.
// Costs one relaxed load while no failpoint is armed.
//
//   if (failpoint("weights.read")) return Error{ErrorCode::kInternal, "injected"};
//   test: arm_failpoint("weights.read", /*nth=*/3);      // the third hit fails, once
//
// Thread-safe.

#include <atomic>
#include <string_view>

namespace fathom {

namespace detail {
extern std::atomic<int> num_armed_failpoints;
bool failpoint_hit(std::string_view name);
}  // namespace detail

// True when an armed test wants this place to fail now.
inline bool failpoint(std::string_view name) {
  return detail::num_armed_failpoints.load(std::memory_order_relaxed) > 0 &&
         detail::failpoint_hit(name);
}

// Whether a test has armed any: what must then take the path where it is planted.
inline bool any_failpoint_armed() {
  return detail::num_armed_failpoints.load(std::memory_order_relaxed) > 0;
}

// The nth hit from now (1 = the next) returns true, once.
void arm_failpoint(std::string_view name, int nth);
void disarm_failpoints();

}  // namespace fathom
