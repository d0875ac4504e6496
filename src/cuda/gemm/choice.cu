#include "cuda/gemm/choice.h"

#include <limits>

#include "cuda/gemm/library.h"
#include "tuned/table.h"

namespace fathom::cuda {
namespace {

using tensor::DType;

// The library is faster for calls of [from, to) rows, as measured with `measured` rows.
struct Line {
  DType dtype;
  int64_t n, k, from, to, measured;

  bool is_of(DType wanted, int64_t wanted_n, int64_t wanted_k) const {
    return dtype == wanted && n == wanted_n && k == wanted_k;
  }
};
constexpr int64_t kAnyMore = std::numeric_limits<int64_t>::max();

constexpr Line kTable[] = {
#include "cuda/gemm/product_table.inc"
};

GemmBackend chosen = GemmBackend::kAuto;

using tuned::MatrixKernel, tuned::MatrixShape;

// Null: nothing was tuned for so many rows.
const tuned::Entry<tuned::MatrixChoice>* tuned_entry(const MatrixShape& shape, int64_t rows) {
  const auto* const entry = tuned::find_entry(shape, rows);
  const bool is_of_many = entry != nullptr && (entry->choice.kernel == MatrixKernel::kTiled ||
                                               entry->choice.kernel == MatrixKernel::kLibrary);
  return is_of_many ? entry : nullptr;
}

}  // namespace

void set_gemm_backend(GemmBackend backend) { chosen = backend; }

std::optional<int64_t> library_rows(DType dtype, int64_t n, int64_t k, int64_t rows) {
  if (chosen == GemmBackend::kFathom) return std::nullopt;
  if (chosen == GemmBackend::kCublasLt) return rows;
  if (const auto* const entry = tuned_entry({dtype, n, k}, rows)) {
    if (entry->choice.kernel == MatrixKernel::kLibrary) return entry->rows;
    return std::nullopt;
  }
  for (const Line& line : kTable)
    if (line.is_of(dtype, n, k) && line.from <= rows && rows < line.to) return line.measured;
  return std::nullopt;
}

tuned::MatrixChoice choose_tiles(DType dtype, int64_t n, int64_t k, int64_t rows) {
  const auto* const entry = tuned_entry({dtype, n, k}, rows);
  return entry != nullptr && entry->choice.kernel == MatrixKernel::kTiled ? entry->choice
                                                                          : tuned::MatrixChoice{};
}

std::vector<int64_t> library_rows_up_to(DType dtype, int64_t n, int64_t k, int64_t rows) {
  if (chosen == GemmBackend::kFathom) return {};
  if (chosen == GemmBackend::kCublasLt) return {rows};
  std::vector<int64_t> found;
  for (const Line& line : kTable)
    if (line.is_of(dtype, n, k) && line.from <= rows) found.push_back(line.measured);
  if (const tuned::MatrixChoices* const choices = tuned::table().find(MatrixShape{dtype, n, k}))
    for (const auto& entry : choices->entries)
      if (entry.choice.kernel == MatrixKernel::kLibrary) found.push_back(entry.rows);
  return found;
}

bool is_chosen(DType dtype, int64_t n, int64_t k, int64_t rows) {
  const MatrixShape shape{dtype, n, k};
  return chosen == GemmBackend::kCublasLt || tuned_entry(shape, rows) != nullptr;
}

}  // namespace fathom::cuda
