#pragma once
// gate and up of experts as the copy engine brings them: eight rows of gate and the eight of up that belong to them in
// turn, so that in a product both of a column are one thread's.
//
//   map = gate_up_map({gate_up, experts, inter, row_bytes}, 64);      // boxes of 128 rows: 64 columns of h
//   load_tile(&map, stage, full, {byte, 0, 0, column / kGateUpGroupRows, expert});
//
// A pure function.

#include <cstdint>

#include "cuda/gemm/tensor_map.h"

namespace fathom::cuda {

inline constexpr int kGateUpGroupRows = 8;

struct GateUpWeights {
  const void* weights = nullptr;  // [experts, 2, inter] rows
  int64_t experts = 0, inter = 0, row_bytes = 0;
};

// Boxes of 128 bytes and 2 * `columns` rows.
inline CUtensorMap gate_up_map(const GateUpWeights& of, int columns) {
  const int64_t row = of.row_bytes;
  return tensor_map({.data = of.weights,
                     .sizes = {row, kGateUpGroupRows, 2, of.inter / kGateUpGroupRows, of.experts},
                     .strides = {row, of.inter * row, kGateUpGroupRows * row, 2 * of.inter * row},
                     .box = {128, kGateUpGroupRows, 2, columns / kGateUpGroupRows, 1}});
}

}  // namespace fathom::cuda
