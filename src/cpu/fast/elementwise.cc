// Operators that touch each element once or twice: memory- or latency-bound, so they are threaded over
// rows when there are many and otherwise run where they are called.
#include <algorithm>

#include "base/check.h"
#include "cpu/fast/fast_stream.h"
#include "cpu/fast/kv_rows.h"
#include "cpu/fast/ops.h"
#include "cpu/fast/weight_rows.h"
#include "cpu/reference/matmul.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/rope.h"
#include "ops/add_rows.h"
#include "ops/embedding.h"
#include "ops/gather_rows.h"
#include "ops/kv_cache.h"
#include "ops/quantize_fp8.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/silu_mul.h"

namespace fathom::cpu::fast {

namespace {

int64_t bytes_of(tensor::DType dtype) { return tensor::dtype_bytes(dtype); }

const void* element(const tensor::Tensor& tensor, int64_t index) {
  return static_cast<const char*>(tensor.data()) + index * bytes_of(tensor.dtype());
}

}  // namespace

void embedding(const ops::EmbeddingArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.ids.dim(0), rows = args.table.dim(0), dim = args.table.dim(1);
  const int64_t vocab_size = args.vocab_size == 0 ? rows : args.vocab_size;
  stream.run(tokens, tokens * dim, [&](int64_t i, int) {
    const int32_t id = *args.ids.row<int32_t>(i);
    FATHOM_CHECK(id >= 0 && id < vocab_size, "ids[" << i << "] is " << id << " of " << vocab_size);
    const int64_t row = id - args.first_id;
    float* const out = args.out.row<float>(i);
    if (row < 0 || row >= rows) {
      std::fill_n(out, dim, 0.0f);
      return;
    }
    stream.kernels().widen_row(element(args.table, row * dim), weight_kind(args.table.dtype()), dim,
                               out);
  });
}

void gather_rows(const ops::GatherRowsArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t outputs = args.rows.dim(0), tokens = args.x.dim(0), dim = args.x.dim(1);
  stream.run(outputs, outputs * dim, [&](int64_t i, int) {
    const int32_t row = *args.rows.row<int32_t>(i);
    FATHOM_CHECK(row >= 0 && row < tokens, "rows[" << i << "] is " << row << " of " << tokens);
    std::copy_n(args.x.row<float>(row), dim, args.out.row<float>(i));
  });
}

void add_rows(const ops::AddRowsArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t rows = args.sum.dim(0), dim = args.sum.dim(1);
  stream.run(rows, rows * dim, [&](int64_t row, int) {
    const float* const x = args.x.row<float>(row);
    float* const sum = args.sum.row<float>(row);
    for (int64_t i = 0; i < dim; ++i) sum[i] += x[i];
  });
}

void rms_norm(const ops::RmsNormArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  stream.run(rows, rows * dim, [&](int64_t i, int) {
    stream.kernels().rms_norm_row(
        {.x = args.x.row<float>(i),
         .weight = args.weight.data(),
         .weight_kind = weight_kind(args.weight.dtype()),
         .eps = args.eps,
         .residual = args.residual.is_null() ? nullptr : args.residual.row<float>(i),
         .out = args.out.row<float>(i),
         .dim = dim});
  });
}

void rope(const ops::RopeArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.x.dim(0), heads = args.x.dim(1), dim = args.x.dim(2);
  stream.run(tokens, tokens * heads * dim, [&](int64_t token, int) {
    for (int64_t head = 0; head < heads; ++head) {
      float* const x = args.x.row<float>(token, head);
      reference::rotate(x, args.table.row<float>(token), dim, x);
    }
  });
}

int64_t kv_append_scratch(const ops::KvAppendArgs& args, const ops::Stream& stream) {
  return fast_stream(stream).num_threads() * args.kv_a.dim(1) * int64_t{sizeof(float)};
}

void kv_append(const ops::KvAppendArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const KernelTable& kernels = stream.kernels();
  const int64_t tokens = args.kv_a.dim(0), kv_dim = args.kv_a.dim(1);
  const int64_t kv_lora_rank = args.weight.dim(0);
  const int64_t num_rows = args.cache.num_blocks() * args.cache.block_tokens();
  const bool narrow = args.cache.format.latent != tensor::DType::kF32;
  auto* const rows = static_cast<float*>(stream.scratch());
  stream.run(tokens, tokens * kv_dim, [&](int64_t token, int worker) {
    const int64_t kv_row = *args.kv_rows.row<int64_t>(token);
    if (kv_row == -1) return;  // padding
    FATHOM_CHECK(kv_row >= 0 && kv_row < num_rows,
                 "kv_rows[" << token << "] is " << kv_row << " of " << num_rows);
    const float* const kv_a = args.kv_a.row<float>(token);
    float* const out =
        narrow ? rows + worker * kv_dim : reinterpret_cast<float*>(args.cache.row(kv_row));
    kernels.rms_norm_row({.x = kv_a,
                          .weight = args.weight.data(),
                          .weight_kind = weight_kind(args.weight.dtype()),
                          .eps = args.eps,
                          .out = out,
                          .dim = kv_lora_rank});
    reference::rotate(kv_a + kv_lora_rank, args.table.row<float>(token), kv_dim - kv_lora_rank,
                      out + kv_lora_rank);
    if (narrow) narrow_kv_row(kernels, out, args.cache, kv_row);
  });
}

void kv_gather(const ops::KvGatherArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const KernelTable& kernels = stream.kernels();
  const ops::KvFormat& format = args.cache.format;
  const int64_t num_blocks = args.cache.num_blocks(), block_tokens = args.cache.block_tokens();
  const int64_t rows = args.latent.dim(0);
  stream.run(rows, rows * format.dim(), [&](int64_t i, int) {
    const ops::ExpandedSegment* segment = args.segments.data();
    while (i >= segment->buffer_begin + segment->num_rows) ++segment;
    const int64_t row = segment->row_begin + i - segment->buffer_begin;
    const int32_t block_id =
        args.block_tables.row<int32_t>(segment->sequence_idx)[row / block_tokens];
    FATHOM_CHECK(block_id >= 0 && block_id < num_blocks, "block table entry "
                                                             << row / block_tokens << " is "
                                                             << block_id << " of " << num_blocks);
    const std::byte* const data =
        args.cache.row(int64_t{block_id} * block_tokens + row % block_tokens);
    widen_kv_latent(kernels, format, data, args.latent.row<float>(i));
    widen_kv_rope(kernels, format, data, args.k_rope.row<float>(i));
  });
}

void silu_mul(const ops::SiluMulArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.out.dim(0), inter = args.out.dim(1);
  // Long rows are cut as well: one token has 10944 elements in a dense layer.
  constexpr int64_t kPiece = 4096;
  const int64_t pieces = (inter + kPiece - 1) / kPiece;
  stream.run(tokens * pieces, tokens * inter, [&](int64_t task, int) {
    const int64_t token = task / pieces, begin = task % pieces * kPiece;
    stream.kernels().silu_mul_row(
        args.gate_up.row<float>(token, 0) + begin, args.gate_up.row<float>(token, 1) + begin,
        std::min(kPiece, inter - begin), args.out.row<float>(token) + begin);
  });
}

void quantize_fp8(const ops::QuantizeFp8Args& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.x.dim(0), dim = args.x.dim(1);
  stream.run(tokens, tokens * dim, [&](int64_t i, int) {
    reference::quantize_row(args.x.row<float>(i), dim, args.q.row<tensor::F8E4M3>(i),
                            args.scale.row<float>(i));
  });
}

}  // namespace fathom::cpu::fast
