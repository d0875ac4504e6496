#pragma once
// DeviceBuffer: a piece of a backend's memory, freed by its destructor.
//
//   DeviceBuffer buffer = DeviceBuffer::allocate_for_step(backend, bytes, "the inputs of a step");
//   std::optional<DeviceBuffer> other = DeviceBuffer::allocate(backend, bytes);     // none: no room
//   tensor::Arena arena = buffer.arena();
//
// Move-only. The backend outlives it (backends are static). Not synchronised: free it only when no
// work that uses it is queued.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "ops/backend.h"
#include "tensor/arena.h"

namespace fathom::ops {

// A StartupError with what can be lowered, where memory whose size follows from the largest step has no room.
[[noreturn]] void throw_no_room_for_step(const Backend& backend, int64_t bytes,
                                         const std::string& what);

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // None when there is no room. Zero bytes give a buffer that holds nothing.
  static std::optional<DeviceBuffer> allocate(const Backend& backend, int64_t bytes) {
    DeviceBuffer buffer;
    buffer.backend_ = &backend;
    buffer.num_bytes_ = bytes;
    if (bytes > 0) {
      buffer.data_ = backend.allocate(bytes);
      if (buffer.data_ == nullptr) return std::nullopt;
    }
    return buffer;
  }
  // The same, or throw_no_room_for_step().
  static DeviceBuffer allocate_for_step(const Backend& backend, int64_t bytes,
                                        const std::string& what);
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
    return *this;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    if (data_ != nullptr) backend_->deallocate(data_);
  }

  void* data() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }
  // REQUIRES: num_bytes() > 0.
  tensor::Arena arena() const { return tensor::Arena(data_, num_bytes_); }

 private:
  const Backend* backend_ = nullptr;
  void* data_ = nullptr;
  int64_t num_bytes_ = 0;
};

}  // namespace fathom::ops
