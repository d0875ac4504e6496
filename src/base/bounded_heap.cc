#include "base/bounded_heap.h"

#include <malloc.h>

#include <cstdlib>
#include <utility>

#if defined(__clang_analyzer__)
// The linter would take every function that allocates for one that throws.
#define FATHOM_OTHER_ALLOCATOR
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FATHOM_OTHER_ALLOCATOR
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FATHOM_OTHER_ALLOCATOR
#endif

namespace fathom::memory {
namespace {

constexpr int64_t kBytesPerQuestion = int64_t{1} << 20;

thread_local BoundedHeap* t_bound = nullptr;

}  // namespace

#ifdef FATHOM_OTHER_ALLOCATOR
const bool kIsHeapBounded = false;
#else
const bool kIsHeapBounded = true;
#endif

BoundedHeap::BoundedHeap(int64_t max_bytes, std::function<bool()> goes_on)
    : max_bytes_(max_bytes), goes_on_(std::move(goes_on)), outer_(std::exchange(t_bound, nullptr)) {
  t_bound = this;  // last: the members are not counted
}

BoundedHeap::~BoundedHeap() { t_bound = outer_; }

void BoundedHeap::before(int64_t num_bytes) {
  if (num_bytes > max_bytes_ - num_bytes_) throw BeyondBound();
  num_since_asked_ += num_bytes;
  if (num_since_asked_ < kBytesPerQuestion) return;
  num_since_asked_ = 0;
  t_bound = nullptr;
  const bool goes_on = goes_on_();
  t_bound = this;
  if (!goes_on) throw BeyondBound();
}

}  // namespace fathom::memory

#ifndef FATHOM_OTHER_ALLOCATOR

// The other forms of new and delete come down to these two. Weak, so that a program may bring its own.

__attribute__((weak)) void* operator new(size_t num_bytes) {
  using fathom::memory::t_bound;
  if (t_bound != nullptr) t_bound->before(static_cast<int64_t>(num_bytes));
  void* block = std::malloc(num_bytes > 0 ? num_bytes : 1);
  while (block == nullptr) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    block = std::malloc(num_bytes > 0 ? num_bytes : 1);
  }
  if (t_bound != nullptr) t_bound->after(static_cast<int64_t>(malloc_usable_size(block)));
  return block;
}

__attribute__((weak)) void operator delete(void* block) noexcept {
  using fathom::memory::t_bound;
  if (t_bound != nullptr) t_bound->after(-static_cast<int64_t>(malloc_usable_size(block)));
  std::free(block);
}

__attribute__((weak)) void operator delete(void* block, size_t /*num_bytes*/) noexcept {
  operator delete(block);
}

#endif
