#pragma once
// How near a batch of products, one for each head as W_UK and W_UV are, comes to float64 with operands that nobody has
// rounded: what the types of rows and weights cost, and the kernel with them. The table of `fathom bench ops` beside
// the times.
//
//   const double cosine = head_linear_cosine(backend, {.heads = 128, .out = 512, .in = 128}, DType::kF8E4M3, 8);
//
// Thread-safe (no state).

#include <cstdint>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace fathom::apps {

struct HeadShape {
  int64_t heads = 0, out = 0, in = 0;
};

// Cosine similarity of the results of the last rows to those of float64; 1: the same.
double head_linear_cosine(const ops::Backend& backend, const HeadShape& shape, tensor::DType weight,
                          int64_t tokens);

// The types of rows that a weight of this type is multiplied with, as a name: "bf16", or "f8_e4m3" that act is
// quantised to.
std::string head_rows_type(const ops::Backend& backend, tensor::DType weight);

struct HeadRow {
  std::string matrix;  // "w_uk"
  HeadShape shape{};
  std::string rows, weight;  // types
  int64_t tokens = 0;
  double us = 0, cosine = 0;
};
void print_head_table(const std::vector<HeadRow>& rows);

}  // namespace fathom::apps
