#pragma once
// How kernels multiply a shape with so many rows: which kernel, and how it divides the work. What a tuner writes
// (`fathom tune`), files keep (tuned/file.h) and the CUDA backend asks for (tuned/table.h).
//
//   MatrixChoice choice{.kernel = MatrixKernel::kBatch, .cluster = 4};
//   if (const std::string why = why_not(shape, /*rows=*/64, choice); !why.empty()) ...;
//
// Rows fall into classes, by how the sums of a row are ordered (docs/contracts/ops.md, section 4). Pure functions.

#include <compare>
#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace fathom::tuned {

// Calls of so many rows at most are one class, and those of more up to the second limit another.
inline constexpr int64_t kMaxStreamedRows = 8, kMaxBatchRows = 128;
// Calls of experts of so many tokens at most are one class.
inline constexpr int64_t kMaxStreamedExpertRows = 128;
// Streaming kernels of experts take so many tokens at once.
inline constexpr int64_t kMaxExpertSlab = 1024;

// out[rows, n] = x[rows, k] * weight[n, k]^T
struct MatrixShape {
  tensor::DType dtype = tensor::DType::kBf16;  // bf16 or f8_e4m3, with scales of 128x128 blocks
  int64_t n = 0, k = 0;
  auto operator<=>(const MatrixShape&) const = default;
};

// The experts of a rank: gate_up[experts, 2, inter, hidden], down[experts, hidden, inter].
struct ExpertShape {
  tensor::DType dtype = tensor::DType::kBf16;
  int64_t experts = 0, inter = 0;
  auto operator<=>(const ExpertShape&) const = default;
};

// kDefault: by the backend's own rule. The others belong to classes of rows: streaming, batch, then tiled and library.
enum class MatrixKernel : uint8_t { kDefault, kStreaming, kBatch, kTiled, kLibrary };
// Of products of many rows; large: 256x128 of f8, 128x256 of bf16 and of the experts' down product.
enum class Tile : uint8_t { kDefault, kSmall, kLarge };

// 0 and kDefault: by the backend's rule.
struct MatrixChoice {
  MatrixKernel kernel = MatrixKernel::kDefault;
  int cluster = 0;  // streaming, batch: blocks that share a tile of outputs and divide k
  int warps = 0;    // streaming: of a block, that do so
  int stages = 0;   // streaming: of a warp's ring; changes no sum
  Tile tile = Tile::kDefault;
  int raster = 0;  // tiled: tiles of rows that are taken together
  bool operator==(const MatrixChoice&) const = default;
};

// pairs: each (token, expert) for itself; narrow and wide: groups of up to 8 and 32 tokens. All three have the same
// bits. tiled: grouped products of many rows.
enum class ExpertKernel : uint8_t { kDefault, kPairs, kNarrow, kWide, kTiled };

struct ExpertChoice {
  ExpertKernel kernel = ExpertKernel::kDefault;
  int gate_up_stages = 0, down_stages = 0;  // pairs, narrow: of a warp's ring
  Tile down_tile = Tile::kDefault;          // tiled
  bool operator==(const ExpertChoice&) const = default;
};

// Whether two numbers of rows are of one class: their choices must not differ in what orders sums.
bool is_one_class(const MatrixShape& shape, int64_t rows, int64_t other_rows);
bool is_one_class(const ExpertShape& shape, int64_t rows, int64_t other_rows);

// Whether rows computed by either have the same bits.
bool has_same_sums(const MatrixChoice& a, const MatrixChoice& b);
bool has_same_sums(const ExpertChoice& a, const ExpertChoice& b);

// Why kernels cannot do it: "cluster 8 leaves blocks without a part of k 512"; empty: they can.
std::string why_not(const MatrixShape& shape, int64_t rows, const MatrixChoice& choice);
std::string why_not(const ExpertShape& shape, int64_t rows, const ExpertChoice& choice);

}  // namespace fathom::tuned
