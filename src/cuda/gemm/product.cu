#include "cuda/gemm/product.cuh"

#include <algorithm>

#include "cuda/gemm/tiles.h"
#include "tensor/scale_block.h"

namespace fathom::cuda {
namespace {

// Whether each 128 channels of a row have a scale.
bool scales_blocks(const ProductArgs& args) {
  return takes_quantised(args.weight) && args.weight != Stored::kI8Channels;
}

// A large tile takes so much longer than one of 128 x 128.
constexpr double kLargeTile = 1.85;

double large_rounds(const ProductArgs& args) {
  const bool are_tall = scales_blocks(args);
  const int64_t pairs = num_pairs_of(args, are_tall ? 256 : 128, are_tall ? 128 : 256);
  return kLargeTile * static_cast<double>(ceil_div(pairs, num_clusters()));
}

double small_rounds(const ProductArgs& args) {
  return static_cast<double>(ceil_div(num_pairs_of(args, 128, 128), num_clusters()));
}

// As was chosen, else what takes fewer rounds. Groups of quantised rows are bound by what is read from the L2 cache:
// wide tiles, which need whole blocks of scales, read their rows half as often.
bool takes_large_tiles(const ProductArgs& args) {
  if (args.more.groups > 0) return true;
  const bool is_wide_group = args.tiles != nullptr && takes_quantised(args.weight);
  const bool can =
      !is_wide_group || !scales_blocks(args) || args.n % (4 * tensor::kScaleBlock) == 0;
  if (args.tile != tuned::Tile::kDefault) return can && args.tile == tuned::Tile::kLarge;
  return is_wide_group ? can : large_rounds(args) <= small_rounds(args);
}

}  // namespace

double rounds_of(const ProductArgs& args) {
  return std::min(large_rounds(args), small_rounds(args));
}

void tiled_product(const ProductArgs& args, ops::Stream& stream) {
  if (args.a.rows == 0) return;
  FATHOM_CHECK(args.is_gated == (args.a_rows != nullptr), "rows are gathered to be gated");
  if (args.is_gated) FATHOM_CHECK(args.tiles != nullptr, "gathered rows want groups");
  if (args.is_gated && scales_blocks(args))
    FATHOM_CHECK(args.n % (2 * tensor::kScaleBlock) == 0 && args.out_scale != nullptr,
                 "gated products of quantised rows with " << args.n << " columns");
  switch (args.weight) {
    case Stored::kBf16:
      return run_tiled_bf16(args, takes_large_tiles(args), stream);
    case Stored::kF8:
      return run_tiled_f8(args, takes_large_tiles(args), stream);
    case Stored::kI8Blocks:
      return run_tiled_i8_blocks(args, takes_large_tiles(args), stream);
    case Stored::kI8Channels:
      return run_tiled_i8_channels(args, takes_large_tiles(args), stream);
    case Stored::kI4:
      FATHOM_CHECK(args.tiles != nullptr, "products of i4 want groups");
      return run_tiled_i4(args, stream);
    case Stored::kU4:
      return run_tiled_u4(args, stream);
    case Stored::kF32:
      FATHOM_CHECK(false, "there are no tiled products of f32 weights");
  }
}

}  // namespace fathom::cuda
