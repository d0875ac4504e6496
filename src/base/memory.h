#pragma once
// What happens when there is no more memory. Work of one request gets std::bad_alloc, and its boundary makes an
// answer of that. What serves everybody (event loops, the engine, the runner) is not written to be cut anywhere:
// there an allocation takes a piece of a reserve, and waits when that is used up, until requests have given theirs
// back. So no thread is left by an exception, and nothing is half done.
//
//   memory::arm(memory::default_reserve_bytes());     // once, when the program serves
//   void Engine::run() { const memory::MustSucceed everything_here; ... }
//   try { const memory::MayFail scope; parse(body); } catch (const std::bad_alloc&) { ... 503 ... }
//
// A thread without a scope gets std::bad_alloc. Scopes nest, the innermost counts. Thread-safe. What a client can
// make as large as it likes belongs into MayFail: the reserve is for small things.

#include <cstdint>

namespace fathom::memory {

// Of this thread, while it lives.
class MustSucceed {
 public:
  MustSucceed();
  ~MustSucceed();
  MustSucceed(const MustSucceed&) = delete;
  MustSucceed& operator=(const MustSucceed&) = delete;

 private:
  bool before_;
};

class MayFail {
 public:
  MayFail();
  ~MayFail();
  MayFail(const MayFail&) = delete;
  MayFail& operator=(const MayFail&) = delete;

 private:
  bool before_;
};

// What this process may have: the least of the machine's memory, the limit of its control group and that of its
// address space (ulimit -v).
int64_t limit_bytes();

// Sets aside address space, which costs no memory until it is used, and handles failures from here on. Calling it
// again replaces the reserve. Throws StartupError when there is no room.
void arm(int64_t reserve_bytes);
// For limit_bytes(): 32 MiB, less where that is much.
int64_t default_reserve_bytes();
// Takes back what was used of the reserve, as far as it can be had. Called now and then.
void refill();

// Few heaps where the address space is limited (each sets aside 64 MiB of it), and large blocks from the system and
// back to it. At the start of the program, before there are threads.
void configure_heap();
// Gives memory that was freed back to the system. Takes milliseconds when there is much.
void give_back();

// Since arm(), for metrics.
struct Counts {
  int64_t num_failures = 0;      // requests for memory that failed where they may
  int64_t num_reserve_uses = 0;  // pieces taken of the reserve
  int64_t num_waits = 0;         // milliseconds waited with the reserve used up
};
Counts counts();

}  // namespace fathom::memory
