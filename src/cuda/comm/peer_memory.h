#pragma once
// PeerMemory: memory of one device that other devices of the process read and write as their own.
//
//   PeerMemory inbox(bytes, /*owner=*/0, /*users=*/{0, 1});        // StartupError where a device cannot reach it
//   launch(kernel, ..., inbox.data());                             // on either device: the same address
//
// It is mapped with the driver's virtual memory functions and not by cudaDeviceEnablePeerAccess, which maps all that a
// device has and will ever allocate, and makes each allocation ten times slower. Every byte is 0xff at first. Owns the
// memory. The destructor waits for nobody: no kernel may use the memory any more.

#include <cstdint>
#include <vector>

namespace fathom::cuda {

class PeerMemory {
 public:
  PeerMemory(int64_t bytes, int owner, const std::vector<int>& users);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  char* data() const { return reinterpret_cast<char*>(address_); }
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }

 private:
  void map(int owner, const std::vector<int>& users);
  void release();

  uint64_t address_ = 0;  // CUdeviceptr; 0 = not reserved
  uint64_t handle_ = 0;   // CUmemGenericAllocationHandle; 0 = none
  uint64_t bytes_ = 0;
  bool is_mapped_ = false;
};

}  // namespace fathom::cuda
