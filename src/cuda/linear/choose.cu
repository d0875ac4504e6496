#include "cuda/linear/choose.h"

#include "cuda/linear/batch_params.h"
#include "cuda/runtime/stream.cuh"
#include "ops/backend.h"
#include "tuned/table.h"

namespace fathom::cuda {
namespace {

using tuned::MatrixKernel;

// As many as find room at once, two on a multiprocessor, with lines enough for each. Clusters of eight find less room
// and are for the smallest matrices; two matrices of one call have clusters of one size.
int group_by_rule(int64_t lines, int64_t row_tiles) {
  constexpr int64_t kFewestLines = 2;
  const int64_t most_blocks = part_of_device(224, num_multiprocessors());
  const int64_t most_blocks_of_eights = part_of_device(64, num_multiprocessors());
  int group = 1;
  while (group < kMostGroup && lines >= 2 * group * kFewestLines &&
         row_tiles * 2 * group <= (group < 4 ? most_blocks : most_blocks_of_eights))
    group *= 2;
  return group;
}

}  // namespace

void take_choices(tensor::DType weight, ProductParams& params, const ops::Stream& stream) {
  if (params.heads != 1 || stream.backend().batch_invariant) return;
  for (ProductPart* part : {&params.a, &params.b})
    if (part->rows > 0)
      part->choice =
          tuned::choose({.dtype = weight, .n = part->rows, .k = params.in}, params.tokens);
}

Split choose_split(const ProductPart& part, int64_t lines, int64_t row_tiles) {
  if (part.choice.kernel == MatrixKernel::kStreaming)
    return {.group = part.choice.cluster, .warps = part.choice.warps};
  return split_of(lines, row_tiles, num_multiprocessors());
}

int choose_stages(const ProductParams& params, int64_t lines_per_warp, int by_rule) {
  const tuned::MatrixChoice& choice = params.a.choice;
  const bool is_chosen =
      params.b.rows == 0 && choice.kernel == MatrixKernel::kStreaming && choice.stages > 0;
  return is_chosen ? stages_for(lines_per_warp, choice.stages) : by_rule;
}

int choose_group(const ProductPart& part, int64_t lines, int64_t row_tiles) {
  if (part.choice.kernel == MatrixKernel::kBatch) return part.choice.cluster;
  return group_by_rule(lines, row_tiles);
}

}  // namespace fathom::cuda
