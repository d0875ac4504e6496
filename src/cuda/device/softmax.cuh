#pragma once
// What all forms of attention share: powers of two, and how the sums of two sets of rows become one.
//
//   Merged total;                                  // nothing yet
//   const MergeFactors f = total.add(max, sum);    // a set of rows: its maximum, its sum of exponentials
//   value = merge(value, f, its_value);            // for every weighted value
//
// Scores are in units of log2: q . k * scale * log2(e). Which set is added to which is fixed by the numbers of their
// rows, so who computes them does not matter. Internal to cuda/.

#include <cmath>

namespace fathom::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// exp2(0) is 1 and exp2(-infinity) 0, exactly.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What exponents are taken against: a row that sees nothing yet has none.
__device__ __forceinline__ float finite_max(float max) {
  return max == minus_infinity() ? 0.0f : max;
}

struct MergeFactors {
  float old_factor = 1.0f, new_factor = 0.0f;
  bool skip = true;  // the new set is empty for this row; its values may be anything
};

struct Merged {
  float max, sum;

  __device__ __forceinline__ static Merged none() { return {minus_infinity(), 0.0f}; }
  __device__ __forceinline__ MergeFactors add(float set_max, float set_sum) {
    if (set_sum == 0.0f) return {};
    const float new_max = fmaxf(max, set_max), from = finite_max(new_max);
    const MergeFactors f{exp2_fast(max - from), exp2_fast(set_max - from), false};
    max = new_max;
    sum = __fmaf_rn(sum, f.old_factor, __fmul_rn(set_sum, f.new_factor));
    return f;
  }
};

__device__ __forceinline__ float merge(float value, const MergeFactors& f, float set_value) {
  return f.skip ? value : __fmaf_rn(value, f.old_factor, __fmul_rn(set_value, f.new_factor));
}

__device__ __forceinline__ float4 merge(const float4& value, const MergeFactors& f,
                                        const float4& set_value) {
  return {merge(value.x, f, set_value.x), merge(value.y, f, set_value.y),
          merge(value.z, f, set_value.z), merge(value.w, f, set_value.w)};
}

}  // namespace fathom::cuda
