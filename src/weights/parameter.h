#pragma once
// Parameter: one tensor that the model wants, and where it goes. The model lists all of them first, so that
// missing, unexpected and misshapen tensors are reported together and reading runs in parallel, in file
// order.
//
//   parameters.push_back({.name = "model.norm.weight", .data = norm});
//   parameters.push_back({.name = prefix + "q_a_proj.weight", .data = q_a, .scale = q_a_scale});
//   parameters.push_back({.name = "lm_head.weight", .data = head, .shard = {.rank = 3, .size = 8}});   // an eighth
//
// Plain data. `data` is memory of the device (host memory on the CPU backend) that the model owns.

#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "weights/shard.h"

namespace fathom::weights {

struct Parameter {
  std::string name = {};  // in the checkpoint; its shape there must be whole_shape(*this)
  // Destination, rank 1 or 2, rows may be strided (a slice of a fused matrix). Its dtype is what the model
  // computes with: f32 or bf16 (converted from f32, bf16, f16, or dequantised from f8, i8, i4x2 or AWQ with its
  // scales), or f8_e4m3, i8 or i4x2 (the checkpoint must hold that; it names i4x2 i8, for each pair one), or u4x2 (the
  // checkpoint must hold AWQ's tensors of this name, weights/awq.h).
  tensor::Tensor data = {};
  // f8, i8 and i4x2 only: f32[ceil(rows/128), ceil(cols/128)] of blocks; i8 also f32[rows, 1] of channels, which is
  // meant where both fit; i4x2 f32[rows, ceil(cols/128)]. From scale_name(name, of_channels). u4x2:
  // f16[rows, 2 * cols/g] as ops/linear.h has it.
  tensor::Tensor scale = {};
  // Of which `data` and `scale` are one rank's part. Columns with scales of 128 are cut between these, rows with scales
  // of blocks too.
  Shard shard = {};
  // Another rank has all of it: it may be in the checkpoint and is not read. `data` is null then.
  bool held_elsewhere = false;
  bool optional = false;  // may be missing; `found` tells
  bool* found = nullptr;
  // Spread of random values for --load-format dummy; 0 = fill with ones (norm weights).
  float dummy_stddev = 0.02f;
};

// Of the tensor that `data` is a part of. REQUIRES: not held_elsewhere.
std::vector<int64_t> whole_shape(const Parameter& parameter);

// "x.weight" -> "x.weight_scale_inv", the published name of block scales, or "x.weight_scale", that of channels'.
std::string scale_name(const std::string& weight_name, bool of_channels = false);

// "x.weight" -> "x.input_scale", of activations, which INT4 checkpoints have and nothing reads: rows are quantised with
// scales of their own.
std::string input_scale_name(const std::string& weight_name);

// Whether scales of this shape are an i8 matrix's of channels.
bool are_of_channels(tensor::DType dtype, int64_t rows, int64_t scale_rows, int64_t scale_columns);
bool has_channel_scales(const Parameter& parameter);

}  // namespace fathom::weights
