#include "base/memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "base/startup_error.h"

namespace fathom::memory {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Larger than what the heap asks the system for at once.
constexpr int64_t kPieceBytes = 2 * kMiB;
constexpr size_t kMaxPieces = 16;
constexpr std::chrono::milliseconds kWait{1};
// Blocks from here on come from the system one by one. A fixed threshold: by itself it rises to the largest block
// that was ever freed, and the next such block then stays in the heap.
constexpr int kMappedBlockBytes = 1 << 20;
// What a heap keeps free at its end until give_back(); would follow the threshold above by itself, too.
constexpr int kKeptBytes = 16 << 20;
constexpr int64_t kAddressSpacePerHeap = 512 * kMiB;

thread_local bool t_must_succeed = false;

std::array<std::atomic<void*>, kMaxPieces> g_pieces{};
size_t g_num_pieces = 0;  // written by arm()
std::atomic<int64_t> g_num_failures{0}, g_num_reserve_uses{0}, g_num_waits{0};

void* map_piece() {
  void* const piece =
      mmap(nullptr, kPieceBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return piece == MAP_FAILED ? nullptr : piece;
}

bool use_piece() {
  for (size_t i = 0; i < g_num_pieces; ++i) {
    void* const piece = g_pieces[i].exchange(nullptr);
    if (piece == nullptr) continue;
    munmap(piece, kPieceBytes);
    g_num_reserve_uses.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

// The new-handler: it returns when it is worth trying again.
void on_failure() {
  if (!t_must_succeed) {
    g_num_failures.fetch_add(1, std::memory_order_relaxed);
    throw std::bad_alloc();
  }
  if (use_piece()) return;
  if (g_num_waits.fetch_add(1, std::memory_order_relaxed) % 1000 == 0) {
    static constexpr char kLine[] = "no memory: waiting until requests give theirs back\n";
    // Nothing can be done about a standard error that takes nothing.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kLine, sizeof kLine - 1);
  }
  std::this_thread::sleep_for(kWait);
}

int64_t machine_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// "max" or a file that is not there: no limit.
int64_t limit_in_file(const std::string& path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes && bytes > 0 ? bytes : kNoLimit;
}

// The group of this process and those around it (version 2: one line, "0::/system.slice/fathom.service"), or that of
// a container (version 1).
int64_t control_group_bytes() {
  const std::string root = "/sys/fs/cgroup";
  int64_t least = limit_in_file(root + "/memory/memory.limit_in_bytes");
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    for (std::string group = line.substr(3); !group.empty(); group.resize(group.rfind('/')))
      least = std::min(least, limit_in_file(root + group + "/memory.max"));
  }
  return std::min(least, limit_in_file(root + "/memory.max"));
}

int64_t address_space_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<int64_t>(
      std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
}

}  // namespace

MustSucceed::MustSucceed() : before_(std::exchange(t_must_succeed, true)) {}
MustSucceed::~MustSucceed() { t_must_succeed = before_; }
MayFail::MayFail() : before_(std::exchange(t_must_succeed, false)) {}
MayFail::~MayFail() { t_must_succeed = before_; }

int64_t limit_bytes() {
  return std::min({machine_bytes(), control_group_bytes(), address_space_bytes()});
}

int64_t default_reserve_bytes() {
  return std::clamp(limit_bytes() / 32, kPieceBytes,
                    static_cast<int64_t>(kMaxPieces) * kPieceBytes);
}

void arm(int64_t reserve_bytes) {
  while (use_piece()) {
  }
  g_num_reserve_uses = g_num_failures = g_num_waits = 0;
  const int64_t wanted = (reserve_bytes + kPieceBytes - 1) / kPieceBytes;
  g_num_pieces = static_cast<size_t>(std::clamp<int64_t>(wanted, 0, kMaxPieces));
  for (size_t i = 0; i < g_num_pieces; ++i) {
    g_pieces[i] = map_piece();
    if (g_pieces[i] == nullptr)
      throw StartupError("no room for a reserve of " + std::to_string(reserve_bytes) +
                         " bytes: the limit on memory (ulimit -v) is too low");
  }
  std::set_new_handler(on_failure);
}

void refill() {
  for (size_t i = 0; i < g_num_pieces; ++i) {
    if (g_pieces[i].load(std::memory_order_relaxed) != nullptr) continue;
    void* piece = map_piece();
    if (piece == nullptr) return;
    // Somebody else may have refilled this one.
    void* none = nullptr;
    if (!g_pieces[i].compare_exchange_strong(none, piece)) munmap(piece, kPieceBytes);
  }
}

void configure_heap() {
  mallopt(M_MMAP_THRESHOLD, kMappedBlockBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  // A block that is freed joins its neighbours at once, so that a heap shrinks while millions of values of a long body
  // are freed. Put aside in lists, they would be joined by give_back() in one go, which keeps the heap locked, and with
  // it every thread that frees an answer made there, for a third of a second.
  mallopt(M_MXFAST, 0);
  const int64_t address_space = address_space_bytes();
  if (address_space == kNoLimit) return;
  mallopt(M_ARENA_MAX,
          static_cast<int>(std::clamp<int64_t>(address_space / kAddressSpacePerHeap, 1, 64)));
}

void give_back() { malloc_trim(0); }

Counts counts() {
  return {.num_failures = g_num_failures.load(std::memory_order_relaxed),
          .num_reserve_uses = g_num_reserve_uses.load(std::memory_order_relaxed),
          .num_waits = g_num_waits.load(std::memory_order_relaxed)};
}

}  // namespace fathom::memory
