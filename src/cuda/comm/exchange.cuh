#pragma once
// The kernels of collectives that only move or add rows: exchange() for all of them, all_reduce_norm() for the sum that
// a normalisation follows. Launchers; what the kernels do is in exchange.cu and all_reduce_norm.cu.
//
//   exchange({.mailbox = mailbox, .form = Exchange::kGather, .pieces = ..., .dtype = DType::kBf16}, stream);
//
// Every choice is a function of the shapes alone, so that all ranks make the same.

#include <cstdint>

#include "cuda/comm/mailbox.cuh"
#include "ops/rms_norm.h"
#include "ops/stream.h"
#include "tensor/tensor.h"

namespace fathom::cuda {

// Rows of bytes, each `stride` bytes after the one before. REQUIRES: all of it is a multiple of 4 bytes.
struct Piece {
  char* data = nullptr;
  int64_t bytes = 0;  // of all rows
  int64_t row_bytes = 0;
  int64_t stride = 0;
  bool aligned = false;  // to 16 bytes, everywhere
};
// REQUIRES: the elements of each row of t's last axis lie side by side, and rows at equal distances.
Piece piece_of(const tensor::Tensor& t);

struct Exchange {
  enum Form {
    kAllReduce,      // pieces[0]: everybody's, which becomes the sum
    kReduceScatter,  // pieces[r]: the rows of rank r; this rank's become the sum
    kGather,         // pieces[r]: the rows that rank r brings
  };
  Mailbox mailbox;
  Form form = kAllReduce;
  tensor::DType dtype =
      tensor::DType::kF32;  // f32 or bf16 to be added, also f8_e4m3 and i32 to be gathered
  Piece pieces[kMaxRanks];
};
void exchange(const Exchange& args, ops::Stream& stream);

// The fused form takes so many rows, one block each, of at most so many elements.
inline constexpr int64_t kMostNormRows = kMaxBlocks, kMostNormElements = 8 * int64_t{kBlockPackets};
bool can_all_reduce_norm(const ops::RmsNormArgs& norm, const ops::Activation& quantised);
// x is summed over the ranks on its way to the normalisation, to the bits of exchange() and rms_norm_quantize(); x
// itself is left undefined.
void all_reduce_norm(const Mailbox& mailbox, const ops::RmsNormArgs& norm,
                     const ops::Activation& quantised, ops::Stream& stream);

}  // namespace fathom::cuda
