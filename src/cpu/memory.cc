#include "cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

namespace fathom::cpu {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;
// Below this size an allocation is not worth reading the kernel's figures for.
constexpr int64_t kCheckedBytes = int64_t{64} << 20;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number after `key` in a file of "key number" lines, in the file's unit.
std::optional<int64_t> read_keyed(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if (word == key && file >> value) return value;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Room under one cgroup directory. Page cache that nobody uses counts as room: the kernel drops it
// first.
int64_t cgroup_room(const std::string& directory, const char* limit_name, const char* usage_name) {
  const std::optional<int64_t> limit = read_number(directory + "/" + limit_name);
  const std::optional<int64_t> usage = read_number(directory + "/" + usage_name);
  if (!limit || !usage) return kUnlimited;  // "max", or no such controller
  const int64_t reclaimable = read_keyed(directory + "/memory.stat", "inactive_file").value_or(0);
  return std::max<int64_t>(*limit - *usage + std::min(reclaimable, *usage), 0);
}

// A limit may sit on any ancestor, so every directory from the process's own up to the root counts.
int64_t cgroup_room_upwards(const std::string& root, std::string path, const char* limit_name,
                            const char* usage_name) {
  int64_t room = kUnlimited;
  while (true) {
    room = std::min(room, cgroup_room(root + path, limit_name, usage_name));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return room;
    path.resize(slash);
  }
}

}  // namespace

void* allocate(int64_t bytes) {
  FATHOM_CHECK(bytes >= 0, "bytes is " << bytes);
  // Linux hands out memory that it does not have and kills the process when it is touched.
  if (bytes >= kCheckedBytes && bytes > free_memory_bytes()) return nullptr;
  const int64_t alignment = bytes >= kCheckedBytes ? kHugePageBytes : kAlignment;
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* const data =
      std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded));
  // Weights are streamed once per step: small pages stop the hardware prefetcher every 4 KiB and cost a
  // TLB miss each. Only a hint; where the kernel refuses, small pages do.
  if (data != nullptr && alignment == kHugePageBytes) {
    static_cast<void>(madvise(data, static_cast<size_t>(rounded), MADV_HUGEPAGE));
  }
  return data;
}

void deallocate(void* data) { std::free(data); }

void touch_pages(void* data, int64_t bytes) {
  constexpr int64_t kSmallestPageBytes = 4096;
  volatile char* const pages = static_cast<char*>(data);
  for (int64_t at = 0; at < bytes; at += kSmallestPageBytes) pages[at] = 0;
  if (bytes > 0) pages[bytes - 1] = 0;
}

int64_t free_memory_bytes() { return free_memory_bytes("/proc", "/sys/fs/cgroup"); }

int64_t free_memory_bytes(const std::string& proc_path, const std::string& cgroup_path) {
  int64_t room = kUnlimited;
  if (const auto kib = read_keyed(proc_path + "/meminfo", "MemAvailable:")) room = *kib * 1024;
  std::ifstream groups(proc_path + "/self/cgroup");  // lines "number:controllers:path"
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {
      room = std::min(room, cgroup_room_upwards(cgroup_path, path, "memory.max", "memory.current"));
    } else if (controllers.find("memory") != std::string::npos) {
      room = std::min(room, cgroup_room_upwards(cgroup_path + "/memory", path,
                                                "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return room;
}

void copy_to_device(void* device, const void* host, int64_t bytes, ops::Stream&) {
  if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
}

void copy_to_host(void* host, const void* device, int64_t bytes, ops::Stream&) {
  if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
}

}  // namespace fathom::cpu
