#pragma once
// Memory of the CUDA backend: the entries of ops::Backend that have nothing to do with computing.
//
//   backend.allocate = cuda::allocate;
//
// All functions are thread-safe. allocate() hands over ownership; deallocate() takes it back.

#include <cstdint>

#include "ops/backend.h"

namespace fathom::cuda {

// Device memory, null when there is no room. Zero bytes give a valid pointer.
void* allocate(int64_t bytes);
void deallocate(void* data);
int device_of(const void* data);
int64_t free_memory_bytes();

// Page-locked host memory, null when there is no room.
void* allocate_host(int64_t bytes);
void deallocate_host(void* data);

void copy_to_device(void* device, const void* host, int64_t bytes, ops::Stream& stream);
void copy_to_host(void* host, const void* device, int64_t bytes, ops::Stream& stream);

}  // namespace fathom::cuda
