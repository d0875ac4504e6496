#pragma once
// Whether two tensors of checkpoints are the same, read piece by piece from their files.
//
//   Result<bool> same = same_tensor(*a.find("lm_head.weight"), *b.find("lm_head.weight"));
//
// Thread-safe. Errors: a file cannot be read or is shorter than its header says.

#include "base/result.h"
#include "weights/safetensors.h"

namespace fathom::weights {

// Of the same dtype and shape, with the same bytes.
Result<bool> same_tensor(const TensorInfo& a, const TensorInfo& b);

}  // namespace fathom::weights
