#pragma once
// DeviceArena: cuts the scratch of an operator into typed, 256-byte aligned pieces. Without memory it measures,
// so that the same code says what the operator needs and finds its pieces.
//
//   struct Scratch { float* partials; int32_t* offsets; };
//   Scratch carve(const Args& args, DeviceArena& arena) {
//     return {.partials = arena.take<float>(n), .offsets = arena.take<int32_t>(m)};
//   }
//   int64_t some_scratch(const Args& args, const ops::Stream&) {
//     DeviceArena arena;  carve(args, arena);  return arena.bytes();
//   }
//   ... DeviceArena arena(stream.scratch());  const Scratch scratch = carve(args, arena);
//
// Views of memory that the stream owns.

#include <cstdint>

namespace fathom::cuda {

class DeviceArena {
 public:
  DeviceArena() = default;
  explicit DeviceArena(void* data) : data_(static_cast<char*>(data)) {}

  // Null when measuring.
  template <class T>
  T* take(int64_t count) {
    char* const piece = data_ == nullptr ? nullptr : data_ + bytes_;
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return reinterpret_cast<T*>(piece);
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace fathom::cuda
