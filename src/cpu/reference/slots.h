#pragma once
// Reading the int32 arrays that say which slot a slice of a step goes on from.

#include <cstdint>

#include "base/check.h"
#include "tensor/tensor.h"

namespace fathom::cpu::reference {

inline int32_t& at(const tensor::Tensor& tensor, int64_t i) { return *tensor.row<int32_t>(i); }

// slice_slot[slice]: -1 (padding) or a slot. Anything else is a programmer error.
inline int32_t checked_slot(const tensor::Tensor& slice_slot, int64_t slice, int64_t num_slots) {
  const int32_t slot = at(slice_slot, slice);
  FATHOM_CHECK(slot >= -1 && slot < num_slots,
               "slice_slot[" << slice << "] is " << slot << " of " << num_slots);
  return slot;
}

}  // namespace fathom::cpu::reference
