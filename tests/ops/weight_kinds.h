#pragma once
// Weights as they are stored, for tests that hold for each.
//
//   for (const WeightKind& kind : kWeightKinds) ... random_weight(random, kind, {out, in}) ...

#include <utility>
#include <vector>

#include "tests/ref/oracle.h"

namespace fathom::ops_test {

struct WeightKind {
  const char* name;
  tensor::DType dtype;
  ops::ScaleForm form = ops::ScaleForm::kNone;  // of i8
};
inline constexpr WeightKind kWeightKinds[] = {
    {"bf16", tensor::DType::kBf16},
    {"f8", tensor::DType::kF8E4M3},
    {"i4", tensor::DType::kI4x2},
    {"i8 of blocks", tensor::DType::kI8, ops::ScaleForm::kBlocks},
    {"i8 of channels", tensor::DType::kI8, ops::ScaleForm::kChannels},
    {"u4", tensor::DType::kU4x2}};
// Whether there are such weights of `in` channels: pairs, and zero points of kZeroPointChannels.
inline constexpr int64_t kZeroPointChannels = 32;
inline bool fits(const WeightKind& kind, int64_t in) {
  return kind.dtype != tensor::DType::kU4x2 || in % kZeroPointChannels == 0;
}
// Whether rows of activations may come quantised.
inline bool takes_e4m3(const WeightKind& kind) {
  return kind.dtype == tensor::DType::kF8E4M3 || kind.dtype == tensor::DType::kI4x2;
}

inline ref::HostWeight random_weight(ref::Random& random, const WeightKind& kind,
                                     std::vector<int64_t> shape) {
  if (kind.dtype == tensor::DType::kI8)
    return ref::random_i8_weight(random, kind.form, std::move(shape));
  if (kind.dtype == tensor::DType::kI4x2) return ref::random_i4_weight(random, std::move(shape));
  if (kind.dtype == tensor::DType::kU4x2)
    return ref::random_u4_weight(random, kZeroPointChannels, std::move(shape));
  return ref::random_weight(random, kind.dtype, std::move(shape));
}

}  // namespace fathom::ops_test
