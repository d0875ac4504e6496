#include "layers/weight_builder.h"

#include "tensor/scale_block.h"

namespace fathom::layers {
namespace {

using tensor::DType;
using tensor::num_scale_blocks;
using tensor::Tensor;

}  // namespace

Tensor WeightBuilder::norm(const std::string& name, int64_t dim) {
  const Tensor data = arena_.allocate(types_.plain, {dim});
  parameters_.push_back({.name = name, .data = data, .scale = {}, .dummy_stddev = 0.0f});
  return data;
}

Tensor WeightBuilder::bias(const std::string& name, int64_t dim) {
  const Tensor data = arena_.allocate(DType::kF32, {dim});
  parameters_.push_back({.name = name, .data = data, .scale = {}});
  return data;
}

Tensor WeightBuilder::plain_matrix(const std::string& name, int64_t rows, int64_t cols,
                                   const weights::Shard& shard) {
  int64_t& cut = shard.axis == 0 ? rows : cols;
  cut = shard_length(shard, name, cut);
  const Tensor data = arena_.allocate(types_.plain, {rows, cols});
  parameters_.push_back({.name = name, .data = data, .scale = {}, .shard = shard});
  return data;
}

ops::Weight WeightBuilder::matrix(const std::string& name, int64_t rows, int64_t cols,
                                  const weights::Shard& shard) {
  const ops::Weight weight = stacked({name}, rows, cols, shard);
  return {.data = weight.data[0], .scale = weight.scale.is_null() ? Tensor() : weight.scale[0]};
}

ops::Weight WeightBuilder::stacked(const std::vector<std::string>& names, int64_t rows,
                                   int64_t cols, const weights::Shard& shard) {
  int64_t& cut = shard.axis == 0 ? rows : cols;
  cut = types_.fp8 ? scaled_shard_length(shard, names.front(), cut)
                   : shard_length(shard, names.front(), cut);
  const int64_t count = static_cast<int64_t>(names.size());
  ops::Weight weight;
  weight.data = arena_.allocate(types_.fp8 ? DType::kF8E4M3 : types_.plain, {count, rows, cols});
  if (types_.fp8) {
    weight.scale =
        arena_.allocate(DType::kF32, {count, num_scale_blocks(rows), num_scale_blocks(cols)});
  }
  for (int64_t i = 0; i < count; ++i) {
    parameters_.push_back({.name = names[static_cast<size_t>(i)],
                           .data = weight.data[i],
                           .scale = types_.fp8 ? weight.scale[i] : Tensor(),
                           .shard = shard});
  }
  return weight;
}

void WeightBuilder::leave_to_others(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    parameters_.push_back({.name = name, .held_elsewhere = true});
}

Tensor WeightBuilder::derived(DType dtype, std::initializer_list<int64_t> shape) {
  return arena_.allocate(dtype, shape);
}

}  // namespace fathom::layers
