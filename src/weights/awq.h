#pragma once
// Matrices of 4 bits as AWQ checkpoints have them ("quant_method": "awq", "version": "gemm"): transposed, eight outputs
// to a word, with a scale and a zero point for each 32, 64 or 128 channels of an output. w = (q - zero point) * scale.
//
//   x.qweight  i32[in, out / 8]      x.qzeros  i32[in / g, out / 8]      x.scales  f16[in / g, out]
//
// Here they become u4x2[out, in / 2] with f16[out, 2 * in / g] (ops/linear.h), or f32 and bf16 matrices: the values
// that they stand for, rounded once.
//
//   std::optional<AwqTensors> tensors = find_awq(checkpoint, "model.layers.0.mlp.up_proj.weight");
//
// Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "tensor/tensor.h"
#include "weights/checkpoint.h"

namespace fathom::weights {

// The names that stand for "x.weight".
struct AwqNames {
  std::string weight, zeros, scales;
};
AwqNames awq_names(const std::string& weight_name);

struct AwqTensors {
  const TensorInfo* weight = nullptr;
  const TensorInfo* zeros = nullptr;
  const TensorInfo* scales = nullptr;

  int64_t in() const { return weight->shape[0]; }
  int64_t out() const { return 8 * weight->shape[1]; }
  int64_t channels() const { return in() / zeros->shape[0]; }  // of a group
};
// Null pointers for what is missing; nothing where `x.qweight` is.
std::optional<AwqTensors> find_awq(const Checkpoint& checkpoint, const std::string& weight_name);
// "tensor "x.qzeros" is i32[2, 16], must be ..." for tensors that are no such matrix [out, in], or have other groups
// than `channels` where that is not 0. Empty where they are one.
std::string awq_problem(const AwqTensors& tensors, int64_t out, int64_t in, int64_t channels);

// The bytes of the three tensors, those that are needed.
struct AwqBytes {
  const uint32_t* weight = nullptr;
  const uint32_t* zeros = nullptr;
  const tensor::F16* scales = nullptr;
  int64_t in = 0, out = 0, channels = 0;
};
// A part of the matrix: outputs from first_row on and channels from first_column on, as many as there is room for.
// to: u4x2[rows, columns / 2], or f32 or bf16[rows, columns].
void unpack_awq(const AwqBytes& from, int64_t first_row, int64_t first_column,
                const tensor::Tensor& to);
// Its scales and zero points, f16[rows, 2 * columns / channels]. first_column begins a group.
void unpack_awq_scales(const AwqBytes& from, int64_t first_row, int64_t first_column,
                       const tensor::Tensor& to);

}  // namespace fathom::weights
