#include "tests/memory/failing_allocator.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace fathom::tests {
namespace {

// Constant initialisation: there are allocations before any constructor has run.
constinit thread_local bool t_is_exempt = false;
constinit std::atomic<bool> g_is_armed{false};
constinit std::atomic<int64_t> g_num_allocations{0}, g_first{0}, g_end{0}, g_num_failed{0};

bool fails_now() {
  if (t_is_exempt || !g_is_armed.load(std::memory_order_relaxed)) return false;
  const int64_t number = g_num_allocations.fetch_add(1) + 1;
  if (number < g_first || number >= g_end) return false;
  ++g_num_failed;
  return true;
}

}  // namespace

void* allocate(size_t num_bytes, size_t alignment) {
  while (true) {
    if (!fails_now()) {
      void* const place =
          alignment <= alignof(std::max_align_t)
              ? std::malloc(num_bytes > 0 ? num_bytes : 1)
              : std::aligned_alloc(alignment, (num_bytes + alignment - 1) / alignment * alignment);
      if (place != nullptr) return place;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* allocate_or_null(size_t num_bytes, size_t alignment) noexcept {
  try {
    return allocate(num_bytes, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

FailingAllocations::FailingAllocations(const FailureRange& range) {
  g_num_allocations = g_num_failed = 0;
  g_first = range.first;
  g_end = range.first + range.count;
  g_is_armed = true;
}

FailingAllocations::~FailingAllocations() { g_is_armed = false; }
bool FailingAllocations::has_failed() const { return g_num_failed > 0; }
void exempt_this_thread() { t_is_exempt = true; }

}  // namespace fathom::tests

void* operator new(size_t num_bytes) { return fathom::tests::allocate(num_bytes, 1); }
void* operator new[](size_t num_bytes) { return fathom::tests::allocate(num_bytes, 1); }
void* operator new(size_t num_bytes, std::align_val_t alignment) {
  return fathom::tests::allocate(num_bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t num_bytes, std::align_val_t alignment) {
  return fathom::tests::allocate(num_bytes, static_cast<size_t>(alignment));
}
// Sanitizers have forms of their own for these, and refuse memory of one kind that is freed as another.
void* operator new(size_t num_bytes, const std::nothrow_t&) noexcept {
  return fathom::tests::allocate_or_null(num_bytes, 1);
}
void* operator new[](size_t num_bytes, const std::nothrow_t&) noexcept {
  return fathom::tests::allocate_or_null(num_bytes, 1);
}
void* operator new(size_t num_bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return fathom::tests::allocate_or_null(num_bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t num_bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return fathom::tests::allocate_or_null(num_bytes, static_cast<size_t>(alignment));
}
void operator delete(void* place) noexcept { std::free(place); }
void operator delete[](void* place) noexcept { std::free(place); }
void operator delete(void* place, size_t) noexcept { std::free(place); }
void operator delete[](void* place, size_t) noexcept { std::free(place); }
void operator delete(void* place, std::align_val_t) noexcept { std::free(place); }
void operator delete[](void* place, std::align_val_t) noexcept { std::free(place); }
void operator delete(void* place, const std::nothrow_t&) noexcept { std::free(place); }
void operator delete[](void* place, const std::nothrow_t&) noexcept { std::free(place); }
void operator delete(void* place, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(place);
}
void operator delete[](void* place, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(place);
}
void operator delete(void* place, size_t, std::align_val_t) noexcept { std::free(place); }
void operator delete[](void* place, size_t, std::align_val_t) noexcept { std::free(place); }

// What nlohmann-json before 3.11.3 had built of a list of values when the next one did not get its memory: its
// constructor does not give that back. Nothing else may leak.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:*basic_json(std::initializer_list*\n";
}
