#pragma once
// DeviceWrites: words of device memory that change now and then, state of slots for instance. They are collected on the
// host and sent together: one copy and one operator, however many arrays they lie in.
//
//   DeviceWrites writes(backend, /*num_frames=*/2);      // StartupError when there is no room
//   writes.put(length, slot, int32_t{0});
//   writes.put(seed, slot, uint64_t{7});
//   writes.send(frame, stream);                          // nothing when nothing was put
//
// REQUIRES: no element is put twice before it is sent; send() only when what the frame sent last has arrived. More
// than kWordsAtOnce words go in several parts, between which send() waits for the stream. Not synchronised.

#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "ops/staged_buffer.h"
#include "tensor/tensor.h"

namespace fathom::ops {

class DeviceWrites {
 public:
  static constexpr int64_t kWordsAtOnce = 1 << 14;

  DeviceWrites(const Backend& backend, int num_frames);

  // Element `index` of a contiguous array.
  template <class T>
  void put(const tensor::Tensor& array, int64_t index, T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    FATHOM_CHECK(array.is_contiguous() && index >= 0 && index < array.num_elements(),
                 "element " << index << " of " << array.describe());
    const auto address = reinterpret_cast<uint64_t>(array.as<T>() + index);
    if constexpr (sizeof(T) == 4) {
      put_word(address, std::bit_cast<int32_t>(value));
    } else {
      const auto bits = std::bit_cast<uint64_t>(value);
      put_word(address, static_cast<int32_t>(bits & 0xffffffff));
      put_word(address + 4, static_cast<int32_t>(bits >> 32));
    }
  }
  void send(int frame, Stream& stream);

  // Device memory, for the memory plan.
  int64_t num_bytes() const { return staged_.num_bytes(); }

 private:
  void put_word(uint64_t address, int32_t bits) {
    addresses_.push_back(address);
    values_.push_back(bits);
  }

  std::vector<uint64_t> addresses_;
  std::vector<int32_t> values_;
  StagedBuffer staged_;
};

}  // namespace fathom::ops
