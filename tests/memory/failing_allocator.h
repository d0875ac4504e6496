#pragma once
// The operator new of this test program, which can be told to fail: the nth allocation of the program from now, and
// those that follow it. As the standard has it, a failure goes to the new-handler first.
//
//   const FailingAllocations failing({.first = 17, .count = 1});    // until it goes out of scope
//   ... run a request ...
//   EXPECT_TRUE(failing.has_failed());
//
// Threads that call exempt_this_thread() are the test's own: they neither fail nor count.

#include <cstdint>

namespace fathom::tests {

struct FailureRange {
  int64_t first = 1, count = 1;
};

class FailingAllocations {
 public:
  explicit FailingAllocations(const FailureRange& range);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  bool has_failed() const;
};

void exempt_this_thread();

}  // namespace fathom::tests
