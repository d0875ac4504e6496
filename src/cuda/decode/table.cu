#include "cuda/decode/ops.h"
#include "cuda/decode/params.cuh"

namespace fathom::cuda {

using tensor::DType;

void add_decode(ops::Backend& backend) {
  backend.mla_decode = {
      .run = mla_decode, .takes = takes_mla_decode, .lacks = {DType::kF32, DType::kF8E4M3}};
  backend.mla_query = {.run = mla_query, .takes = takes_mla_query, .lacks = {DType::kF32}};
  backend.head_linear_quantize = {.run = head_linear_quantize,
                                  .scratch_bytes = head_linear_quantize_scratch,
                                  .takes = takes_head_linear_quantize,
                                  .lacks = {DType::kF32, DType::kF8E4M3}};
  for (const int rows : {decode::kShortRows, decode::kMostRows})
    backend.long_attention.push_back({.rows = rows,
                                      .tokens = decode::kMostTokens + 1,
                                      .of_one_sequence = true,
                                      .op = "mla_decode"});
}

}  // namespace fathom::cuda
