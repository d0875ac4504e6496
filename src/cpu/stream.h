#pragma once
// CpuStream: the stream of the CPU backends. Every operator has run to its end when it returns, so
// synchronize() has nothing to wait for. A backend that needs more (a thread pool) derives from it.
//
//   std::unique_ptr<ops::Stream> stream = std::make_unique<CpuStream>(reference_backend());
//
// Owns its scratch memory. One thread at a time.

#include "ops/stream.h"

namespace fathom::cpu {

class CpuStream : public ops::Stream {
 public:
  using ops::Stream::Stream;
  ~CpuStream() override;

  void synchronize() override {}
  void touch(void* data, int64_t bytes) override;

 protected:
  void* allocate_scratch(int64_t bytes) override;

 private:
  void* memory_ = nullptr;
};

// Cuts the scratch of an operator into typed, 64-byte aligned pieces. Without memory it measures: the same
// code says what the operator needs and finds its pieces, so the two cannot differ.
//
//   struct Rows { float* values; int32_t* ids; };
//   Rows carve(const Args& args, ScratchArena& arena) {
//     return {.values = arena.take<float>(n), .ids = arena.take<int32_t>(n)};
//   }
//   int64_t some_operator_scratch(const Args& args, const ops::Stream&) {
//     ScratchArena arena;
//     carve(args, arena);
//     return arena.bytes();
//   }
//   ... ScratchArena arena(stream.scratch());  const Rows rows = carve(args, arena);
class ScratchArena {
 public:
  ScratchArena() = default;
  explicit ScratchArena(void* data) : data_(static_cast<char*>(data)) {}

  // Null when measuring.
  template <class T>
  T* take(int64_t count) {
    char* const piece = data_ == nullptr ? nullptr : data_ + bytes_;
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(piece);
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace fathom::cpu
