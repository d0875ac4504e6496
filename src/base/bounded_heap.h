#pragma once
// BoundedHeap: while it lives, what its thread allocates may come to so many bytes at once. For work whose cost a
// client chooses and whose loops are many: no loop has to be written with the bound in mind.
//
//   try {
//     const memory::BoundedHeap scope(64 << 20, [&] { return !is_time_up(); });
//     compile();
//   } catch (const memory::BeyondBound&) {       // what had been made is freed
//     ... too large, or out of time ...
//   }
//
// Counted are blocks of operator new and delete, with what the allocator adds to them; not those of an alignment of
// their own. What was there before and is freed within makes room. Objects of one thread nest, the innermost counts.
// Programs with an allocator of their own, sanitizers' among them, are not held to it: kIsHeapBounded.

#include <cstdint>
#include <functional>
#include <new>

namespace fathom::memory {

extern const bool kIsHeapBounded;

class BeyondBound : public std::bad_alloc {};

class BoundedHeap {
 public:
  // `goes_on` is asked about every MiB that is allocated, whether or not it was freed since; when it returns false, the
  // allocation throws BeyondBound too. It may allocate; it must not throw.
  BoundedHeap(int64_t max_bytes, std::function<bool()> goes_on);
  ~BoundedHeap();
  BoundedHeap(const BoundedHeap&) = delete;
  BoundedHeap& operator=(const BoundedHeap&) = delete;

  // For operator new and delete.
  void before(int64_t num_bytes);
  void after(int64_t num_bytes) { num_bytes_ += num_bytes; }

 private:
  const int64_t max_bytes_;
  const std::function<bool()> goes_on_;
  BoundedHeap* const outer_;
  int64_t num_bytes_ = 0, num_since_asked_ = 0;
};

}  // namespace fathom::memory
