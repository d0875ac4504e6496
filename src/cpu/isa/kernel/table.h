#pragma once
// Fills a KernelTable with the templates instantiated for one vector type, and the kernels of i8 weights.

#include "cpu/isa/kernel/attention.h"
#include "cpu/isa/kernel/matmul.h"
#include "cpu/isa/kernel/rows.h"
#include "cpu/isa/kernel/sampling.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {

template <class V>
constexpr KernelTable make_kernel_table(const integer::Kernels& of_i8) {
  KernelTable table;
  table.i8 = &of_i8;
  table.direct_tokens = Matmul<V>::kDirectTokens;
  table.matmul = &Matmul<V>::run;
  table.quantize_row = &Rows<V>::quantize;
  table.grid_row = &Rows<V>::grid;
  table.attention_block = &Attention<V>::run;
  table.merge_softmax = &Attention<V>::merge;
  table.divide_row = &Rows<V>::divide;
  table.rms_norm_row = &Rows<V>::rms_norm;
  table.silu_mul_row = &Rows<V>::silu_mul;
  table.add_scaled_row = &Rows<V>::add_scaled;
  table.widen_row = &Rows<V>::widen;
  table.narrow_row = &Rows<V>::narrow;
  table.narrow_f8_row = &Rows<V>::narrow_f8;
  table.widen_f8_row = &Rows<V>::widen_f8;
  table.largest_magnitude = &Rows<V>::largest_magnitude;
  table.range_row = &Rows<V>::range;
  table.sum_exp_row = &Rows<V>::sum_exp;
  table.sample_weights = &Sampling<V>::weights;
  table.sample_bins = &Sampling<V>::bins;
  table.keep_weights = &Sampling<V>::keep;
  table.read_floats = &Rows<V>::read;
  return table;
}

}  // namespace fathom::cpu
