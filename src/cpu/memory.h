#pragma once
// Memory of the CPU backends: the entries of ops::Backend that have nothing to do with computing.
//
//   backend.allocate = cpu::allocate;
//
// All functions are thread-safe. allocate() hands over ownership; deallocate() takes it back.

#include <cstdint>
#include <string>

#include "ops/backend.h"

namespace fathom::cpu {

// 256-byte aligned, uninitialised; null when the machine or the cgroup has no room for it. Zero
// bytes give a valid pointer.
void* allocate(int64_t bytes);
void deallocate(void* data);
// Writes to every page, so that the kernel has handed it out. Destroys the contents.
void touch_pages(void* data, int64_t bytes);

// What may be allocated without swapping: MemAvailable, less where a cgroup limits this process.
int64_t free_memory_bytes();
// The same with other mount points, for tests.
int64_t free_memory_bytes(const std::string& proc_path, const std::string& cgroup_path);

void copy_to_device(void* device, const void* host, int64_t bytes, ops::Stream& stream);
void copy_to_host(void* host, const void* device, int64_t bytes, ops::Stream& stream);

}  // namespace fathom::cpu
