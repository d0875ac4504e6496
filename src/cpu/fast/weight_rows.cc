#include "cpu/fast/weight_rows.h"

#include "base/check.h"

namespace fathom::cpu {

namespace {

// Of so many values of a row.
int64_t stored_bytes(WeightKind kind, int64_t values) {
  switch (kind) {
    case WeightKind::kF32:
      return 4 * values;
    case WeightKind::kBf16:
      return 2 * values;
    case WeightKind::kF8:
      return values;
    case WeightKind::kI4:
    case WeightKind::kU4:
      return values / 2;
  }
  return 0;
}

// Those of i4 and u4 weights may be another table's.
const KernelTable& kernels_of(const KernelTable& kernels, WeightKind kind) {
  const bool is_pairs = kind == WeightKind::kI4 || kind == WeightKind::kU4;
  return is_pairs && kernels.i4 != nullptr ? *kernels.i4 : kernels;
}
const KernelTable& kernels_of(const KernelTable& kernels, const ops::Weight& weight) {
  return kernels_of(
      kernels, weight.data.dtype() == tensor::DType::kI4x2 ? WeightKind::kI4 : WeightKind::kF8);
}

// One tile of i8 rows that share a row of scales, or have a scale each.
void multiply_i8(const KernelTable& kernels, const WeightRows& weight, const MatmulTile& tile,
                 int64_t begin) {
  const bool of_channels = weight.form == ops::ScaleForm::kChannels;
  kernels.i8->matmul({.x = reinterpret_cast<const int8_t* const*>(tile.x),
                      .x_scale = tile.x_scale,
                      .num_x = tile.num_x,
                      .w = static_cast<const int8_t*>(tile.w),
                      .w_stride = tile.w_stride,
                      .w_scale = of_channels ? weight.scale + begin : tile.w_scale,
                      .w_scale_stride = tile.w_scale_stride,
                      .w_row = tile.w_row,
                      .of_channels = of_channels,
                      .num_w = tile.num_w,
                      .in = tile.in,
                      .out = tile.out,
                      .out_begin = tile.out_begin,
                      .accumulate = tile.accumulate,
                      .workspace = tile.workspace});
}

}  // namespace

WeightKind weight_kind(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::kF32:
      return WeightKind::kF32;
    case tensor::DType::kBf16:
      return WeightKind::kBf16;
    case tensor::DType::kF8E4M3:
      return WeightKind::kF8;
    case tensor::DType::kI4x2:
      return WeightKind::kI4;
    case tensor::DType::kU4x2:
      return WeightKind::kU4;
    default:
      FATHOM_CHECK(false, "no kernel for weights of " << tensor::dtype_name(dtype));
  }
}

void quantize_row_for(const KernelTable& kernels, const ops::Weight& weight, const float* x,
                      const QuantisedRow& to) {
  const int64_t dim = ops::row_values(weight.data);
  if (weight.data.dtype() != tensor::DType::kI8)
    return kernels_of(kernels, weight).quantize_row(x, dim, to.q, to.scale);
  const int64_t channels = ops::row_scale_channels(ops::scale_form(weight), dim);
  kernels.i8->quantize_row(x, dim, channels, reinterpret_cast<int8_t*>(to.q), to.scale);
}

void quantised_row(const KernelTable& kernels, const ops::Weight& weight, const ops::Activation& x,
                   int64_t row, const QuantisedRow& to) {
  const int64_t dim = x.dim(1);
  if (!x.is_quantised()) return quantize_row_for(kernels, weight, x.values.row<float>(row), to);
  kernels_of(kernels, weight).grid_row(&x.values.row<tensor::F8E4M3>(row)->bits, dim, to.q);
}

WeightRows WeightRows::of(const ops::Weight& weight, int64_t index) {
  const tensor::Tensor& data = weight.data;
  WeightRows w;
  w.is_i8 = data.dtype() == tensor::DType::kI8;
  if (!w.is_i8) w.kind = weight_kind(data.dtype());
  w.form = ops::scale_form(weight);
  w.rows = data.dim(data.rank() - 2);
  w.in = ops::row_values(data);
  w.data = data.data();
  w.data = w.row(index * w.rows);
  const void* scale = ops::matrix_scale(weight, index);
  w.zero_channels = ops::zero_point_channels(weight);
  if (w.zero_channels > 0)
    w.zeros = static_cast<const uint16_t*>(scale);
  else
    w.scale = static_cast<const float*>(scale);
  return w;
}

const void* WeightRows::row(int64_t r) const {
  return static_cast<const char*>(data) + (is_i8 ? r * in : stored_bytes(kind, r * in));
}

void multiply(const KernelTable& kernels, const WeightRows& weight, const Product& product,
              int64_t begin, int64_t end) {
  const KernelTable& table = kernels_of(kernels, weight.kind);
  const int64_t scale_blocks = num_scale_blocks(weight.in);
  MatmulTile tile{.kind = weight.kind,
                  .w_stride = weight.in,
                  .w_scale_stride = scale_blocks,
                  .zero_channels = weight.zero_channels,
                  .in = weight.in,
                  .accumulate = product.accumulate,
                  .workspace = product.workspace};
  for (int64_t x_begin = 0; x_begin < product.x.count; x_begin += kTileTokens) {
    const XRows x = product.x.slice(x_begin, std::min(x_begin + kTileTokens, product.x.count));
    const bool is_last = x_begin + kTileTokens >= product.x.count;
    tile.x = x.values;
    tile.x_scale = x.scales;
    tile.num_x = x.count;
    tile.out = product.out + x_begin;
    // The rows of one tile fit the workspace and, where the kernel says so, share a row of scales.
    const bool direct = x.count <= table.direct_tokens;
    int64_t limit = direct ? table.direct_rows : table.wide_rows;
    if (weight.is_i8) limit = std::min(limit, kernels.i8->max_rows);
    for (int64_t r = begin; r < end;) {
      const int64_t stop = std::min(end, (r / limit + 1) * limit);
      tile.w = weight.row(r);
      tile.num_w = stop - r;
      tile.w_row = r;
      tile.next_w = stop < end ? nullptr : is_last ? product.next_w : weight.row(begin);
      tile.out_begin = product.out_offset + r;
      const bool of_groups = weight.form == ops::ScaleForm::kGroups;
      if (weight.scale != nullptr)
        tile.w_scale = weight.scale + (of_groups ? r : r / kScaleBlock) * scale_blocks;
      if (weight.zeros != nullptr)
        tile.w_zeros = weight.zeros + r * 2 * (weight.in / weight.zero_channels);
      if (weight.is_i8) {
        multiply_i8(kernels, weight, tile, r);
      } else {
        table.matmul(tile);
      }
      r = stop;
    }
  }
}

int64_t rows_per_task(int64_t rows, int64_t in, int64_t num_x, int threads) {
  constexpr int64_t kTasksPerThread = 8, kMinTaskWork = 16384, kGroup = 16;
  const int64_t by_threads = rows / (threads * kTasksPerThread);
  const int64_t by_work = kMinTaskWork / std::max<int64_t>(1, in * num_x);
  const int64_t wanted = std::max<int64_t>({by_threads, by_work, 1});
  return std::min((wanted + kGroup - 1) / kGroup * kGroup, int64_t{4} * kScaleBlock);
}

int64_t wide_rows_per_task(int64_t rows, int64_t groups, int threads, int64_t most) {
  constexpr int64_t kTasksPerThread = 4;
  const int64_t balanced = rows * groups / (threads * kTasksPerThread);
  return std::clamp((balanced + kTileRows - 1) / kTileRows * kTileRows, kTileRows, most);
}

}  // namespace fathom::cpu
