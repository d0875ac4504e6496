#include "cuda/attention/mla_absorbed.h"
#include "cuda/attention/ops.h"

namespace fathom::cuda {

void add_attention(ops::Backend& backend) {
  backend.mla_absorbed = {mla_absorbed, mla_absorbed_scratch};
  backend.long_attention.push_back(
      {.rows = absorbed::kLongRows, .tokens = absorbed::kStreamItems, .op = "mla_absorbed"});
  backend.long_attention.push_back({.rows = absorbed::kTwoChunkRows,
                                    .tokens = absorbed::kMostTwoChunks + 1,
                                    .of_one_sequence = true,
                                    .op = "mla_absorbed"});
  backend.long_attention.push_back({.rows = absorbed::kSharingRows,
                                    .tokens = absorbed::kMostSharing + 1,
                                    .op = "head_linear_quantize"});
}

}  // namespace fathom::cuda
