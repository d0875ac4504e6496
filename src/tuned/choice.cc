#include "tuned/choice.h"

#include "tuned/few_experts.h"

namespace fathom::tuned {
namespace {

// Values of k in the 128 bytes that a kernel of few rows takes at a time.
int64_t num_lines(const MatrixShape& shape) {
  const int64_t width = 128 / tensor::dtype_bytes(shape.dtype);
  return (shape.k + width - 1) / width;
}

int row_class(int64_t rows) { return rows <= kMaxStreamedRows ? 0 : rows <= kMaxBatchRows ? 1 : 2; }

bool is_power_of_two_up_to_8(int value) {
  return value == 1 || value == 2 || value == 4 || value == 8;
}

std::string of_another_class(int64_t rows) {
  return "its kernel does not take " + std::to_string(rows) + " rows";
}

std::string why_not_divided(const MatrixShape& shape, const MatrixChoice& choice,
                            int64_t fewest_lines) {
  if (!is_power_of_two_up_to_8(choice.cluster))
    return "cluster is " + std::to_string(choice.cluster) + ", must be 1, 2, 4 or 8";
  if (num_lines(shape) < fewest_lines)
    return "cluster " + std::to_string(choice.cluster) + " leaves blocks without a part of K " +
           std::to_string(shape.k);
  return {};
}

std::string why_not_streaming(const MatrixShape& shape, const MatrixChoice& choice) {
  if (!is_power_of_two_up_to_8(choice.warps))
    return "warps is " + std::to_string(choice.warps) + ", must be 1, 2, 4 or 8";
  if (choice.cluster > 1 && choice.warps != 8)
    return "cluster " + std::to_string(choice.cluster) + " needs warps 8";
  if (choice.stages != 0 && (choice.stages < 2 || choice.stages > 4))
    return "stages is " + std::to_string(choice.stages) + ", must be 2 to 4";
  return why_not_divided(shape, choice, int64_t{choice.cluster} * choice.warps);
}

std::string why_not_tiled(const MatrixShape& shape, const MatrixChoice& choice) {
  if (shape.k % 16 != 0 || shape.n % 8 != 0) return "tiles need N of eights and K of sixteens";
  if (choice.raster < 0 || choice.raster > 64)
    return "raster is " + std::to_string(choice.raster) + ", must be 1 to 64";
  return {};
}

}  // namespace

bool is_one_class(const MatrixShape&, int64_t rows, int64_t other_rows) {
  return row_class(rows) == row_class(other_rows);
}

bool is_one_class(const ExpertShape& shape, int64_t rows, int64_t other_rows) {
  return has_few_expert_tokens(shape, rows) == has_few_expert_tokens(shape, other_rows) &&
         (rows <= kMaxStreamedExpertRows) == (other_rows <= kMaxStreamedExpertRows);
}

bool has_same_sums(const MatrixChoice& a, const MatrixChoice& b) {
  return a.kernel == b.kernel && a.cluster == b.cluster && a.warps == b.warps;
}

bool has_same_sums(const ExpertChoice& a, const ExpertChoice& b) {
  return (a.kernel == ExpertKernel::kTiled) == (b.kernel == ExpertKernel::kTiled);
}

std::string why_not(const MatrixShape& shape, int64_t rows, const MatrixChoice& choice) {
  const int needed_class = row_class(rows);
  switch (choice.kernel) {
    case MatrixKernel::kDefault:
      return {};
    case MatrixKernel::kStreaming:
      return needed_class == 0 ? why_not_streaming(shape, choice) : of_another_class(rows);
    case MatrixKernel::kBatch:
      return needed_class == 1 ? why_not_divided(shape, choice, 2 * int64_t{choice.cluster})
                               : of_another_class(rows);
    case MatrixKernel::kTiled:
    case MatrixKernel::kLibrary:
      return needed_class == 2 ? why_not_tiled(shape, choice) : of_another_class(rows);
  }
  return {};
}

std::string why_not(const ExpertShape& shape, int64_t rows, const ExpertChoice& choice) {
  const bool is_large = rows > kMaxStreamedExpertRows;
  for (const int stages : {choice.gate_up_stages, choice.down_stages})
    if (stages != 0 && (stages < 2 || stages > 4))
      return "stages are " + std::to_string(stages) + ", must be 2 to 4";
  if (choice.kernel != ExpertKernel::kDefault && has_few_expert_tokens(shape, rows))
    return std::to_string(rows) +
           " tokens of FP8 experts of 256 channels have kernels of their own";
  switch (choice.kernel) {
    case ExpertKernel::kDefault:
    case ExpertKernel::kNarrow:
      return {};
    case ExpertKernel::kPairs:
      return is_large ? of_another_class(rows) : std::string();
    case ExpertKernel::kWide:
      return rows <= kMaxExpertSlab ? std::string() : of_another_class(rows);
    case ExpertKernel::kTiled:
      if (!is_large) return of_another_class(rows);
      return shape.inter % 16 == 0 ? std::string() : "tiles need N of sixteens";
  }
  return {};
}

}  // namespace fathom::tuned
