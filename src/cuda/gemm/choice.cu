#include "cuda/gemm/choice.h"

#include <limits>

#include "cuda/gemm/library.h"

namespace fathom::cuda {
namespace {

using tensor::DType;

// Of calls of [from, to) rows the library is faster, as measured with `measured` rows.
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

}  // namespace

void set_gemm_backend(GemmBackend backend) { chosen = backend; }

std::optional<int64_t> library_rows(DType dtype, int64_t n, int64_t k, int64_t rows) {
  if (chosen == GemmBackend::kFathom) return std::nullopt;
  if (chosen == GemmBackend::kCublasLt) return rows;
  for (const Line& line : kTable)
    if (line.is_of(dtype, n, k) && line.from <= rows && rows < line.to) return line.measured;
  return std::nullopt;
}

std::vector<int64_t> library_rows_up_to(DType dtype, int64_t n, int64_t k, int64_t rows) {
  if (chosen == GemmBackend::kFathom) return {};
  if (chosen == GemmBackend::kCublasLt) return {rows};
  std::vector<int64_t> found;
  for (const Line& line : kTable)
    if (line.is_of(dtype, n, k) && line.from <= rows) found.push_back(line.measured);
  return found;
}

}  // namespace fathom::cuda
