#pragma once
// ReadPlan: what the loader will read, decided and checked before the first byte of weights: every
// parameter is matched with its tensor, and each tensor is cut into pieces that threads read on their own.
//
//   Result<ReadPlan> plan = plan_reads(checkpoint, {&parameters}, options);
//   for (const ReadPiece& piece : plan->pieces) ...                     // sorted by file and offset
//
// Of several ranks each has a list of its own. A byte of the checkpoint that any of them wants is in one piece, however
// many want it: the piece says where each has its part of it.
//
// Plain data. Pointers into the checkpoint stay valid while it lives.

#include <cstdint>
#include <optional>
#include <vector>

#include "weights/awq.h"
#include "weights/checkpoint.h"
#include "weights/loader.h"
#include "weights/parameter.h"

namespace fathom::weights {

// What a piece fills in one rank.
struct ReadTarget {
  tensor::Tensor data = {};  // [rows, columns], rows may be strided
  int64_t first_column = 0;  // of the source
  int64_t first_row = 0;     // of the matrix, AWQ only
};

// A range of bytes of one tensor of a file and the views that it fills: equal numbers of rows of it, of one type. Where
// a rank holds some columns of a tensor, the range goes from the first of them to the last and has those of others in
// between: reading them at once is quicker than a call for each row.
struct ReadPiece {
  const TensorInfo* source = nullptr;
  int64_t offset = 0, num_bytes = 0;        // in the file
  int64_t first_row = 0, first_column = 0;  // of the source, where the range begins
  int64_t row_elements = 0;                 // from one row to the next in the file
  std::vector<ReadTarget> targets{};
  const TensorInfo* dequantize_with = nullptr;  // set where f8, i8 or i4x2 becomes f32 or bf16
  bool is_packed = false;                       // that is i4x2: columns of the source are pairs
  bool is_scale = false;                        // values must be finite and > 0
  // Set for AWQ, of which a piece is a whole tensor: all its transposed rows hold some of a rank's. Targets are parts
  // of the matrix, or with is_scale of its scales and zero points, and their first_column is one of its channels.
  std::optional<AwqTensors> awq{};

  int64_t num_rows() const { return targets.front().data.dim(0); }
};

struct ReadPlan {
  std::vector<ReadPiece> pieces;
  int64_t num_bytes = 0;  // that will be read from files
};

// Of a piece that is dequantised: rows of weights that share a row of scales, 128 or one.
int64_t rows_per_scale(const ReadPiece& piece);
// Rows of scales that it needs.
int64_t first_scale_row(const ReadPiece& piece);
int64_t num_scale_rows(const ReadPiece& piece);

// Whether a piece of AWQ reads scales and zero points, as all do but those that stay packed.
bool reads_awq_scales(const ReadPiece& piece);

// Bytes that reading a piece takes from files: its own and its scales.
int64_t file_bytes(const ReadPiece& piece);

// Sets Parameter::found. REQUIRES: parameters are well formed: rank 1 or 2, dtype f32, bf16, f8_e4m3, i8,
// i4x2 or u4x2, the last four with scales of the right shape; those of one name are parts of one tensor, of one type.
Result<ReadPlan> plan_reads(const Checkpoint& checkpoint, const ParameterLists& lists,
                            const LoadOptions& options);

// Aborts on a parameter that is not well formed.
void check_parameter(const Parameter& parameter);

}  // namespace fathom::weights
