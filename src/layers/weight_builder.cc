#include "layers/weight_builder.h"

#include "base/startup_error.h"
#include "tensor/scale_block.h"

namespace fathom::layers {
namespace {

using tensor::DType;
using tensor::num_scale_blocks;
using tensor::Tensor;

}  // namespace

WeightTypes quantised_types(const config::ModelConfig& config, bool dequantize) {
  WeightTypes types;
  if (!config.quantization_config || dequantize) return types;
  switch (config.quantization_config->method) {
    case config::QuantMethod::kFp8Blocks:
      types.fp8 = true;
      return types;
    case config::QuantMethod::kW4AFp8:
      types.fp8 = types.int4_experts = true;
      return types;
    case config::QuantMethod::kInt8Blocks:
      types.int8 = ops::ScaleForm::kBlocks;
      break;
    case config::QuantMethod::kInt8Channels:
      types.int8 = ops::ScaleForm::kChannels;
      break;
    case config::QuantMethod::kAwq:
      types.awq_group_size = config.quantization_config->group_size;
      break;
  }
  types.unquantised = &config.quantization_config->unquantised_modules;
  return types;
}

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
  const ops::ScaleForm form = form_of(names);
  const bool of_groups = form == ops::ScaleForm::kGroups;
  const bool has_zeros = form == ops::ScaleForm::kZeroPoints;
  const bool cuts_scales = form == ops::ScaleForm::kBlocks || (of_groups && shard.axis == 1);
  int64_t& cut = shard.axis == 0 ? rows : cols;
  if (has_zeros) require_groups(names.front(), cols, shard);
  cut = cuts_scales ? scaled_shard_length(shard, names.front(), cut)
                    : shard_length(shard, names.front(), cut);
  if (of_groups && cols % 2 != 0)
    throw StartupError(names.front() + ": has " + std::to_string(cols) +
                       " columns, of which INT4 takes an even number");
  const int64_t count = static_cast<int64_t>(names.size());
  const bool quantised = form != ops::ScaleForm::kNone;
  ops::Weight weight;
  weight.data =
      arena_.allocate(type_of(form), {count, rows, of_groups || has_zeros ? cols / 2 : cols});
  if (quantised) weight.scale = scales(form, count, rows, cols);
  for (int64_t i = 0; i < count; ++i) {
    parameters_.push_back({.name = names[static_cast<size_t>(i)],
                           .data = weight.data[i],
                           .scale = quantised ? weight.scale[i] : Tensor(),
                           .shard = shard});
  }
  return weight;
}

bool WeightBuilder::can_join(const std::vector<NamedRows>& matrices) const {
  const ops::ScaleForm form = types_.scale_form(matrices.front().name);
  if (form == ops::ScaleForm::kGroups || form == ops::ScaleForm::kZeroPoints) return false;
  for (const NamedRows& matrix : matrices) {
    if (types_.scale_form(matrix.name) != form) return false;
    const bool is_last = &matrix == &matrices.back();
    if (form == ops::ScaleForm::kBlocks && !is_last && matrix.rows % ops::kScaleBlock != 0)
      return false;
  }
  return true;
}

JoinedWeight WeightBuilder::joined(const std::vector<NamedRows>& matrices, int64_t cols) {
  JoinedWeight weight;
  if (!can_join(matrices)) {
    for (const NamedRows& one : matrices) weight.parts.push_back(matrix(one.name, one.rows, cols));
    return weight;
  }
  const ops::ScaleForm form = types_.scale_form(matrices.front().name);
  int64_t rows = 0;
  for (const NamedRows& one : matrices) rows += one.rows;
  weight.all.data = arena_.allocate(type_of(form), {rows, cols});
  if (form != ops::ScaleForm::kNone) weight.all.scale = scales(form, 1, rows, cols)[0];
  int64_t begin = 0;
  for (const NamedRows& one : matrices) {
    ops::Weight part{.data = weight.all.data.slice(0, begin, begin + one.rows), .scale = {}};
    if (form == ops::ScaleForm::kChannels)
      part.scale = weight.all.scale.slice(0, begin, begin + one.rows);
    if (form == ops::ScaleForm::kBlocks)
      part.scale =
          weight.all.scale.slice(0, begin / ops::kScaleBlock, num_scale_blocks(begin + one.rows));
    parameters_.push_back({.name = one.name, .data = part.data, .scale = part.scale});
    weight.parts.push_back(part);
    begin += one.rows;
  }
  return weight;
}

void WeightBuilder::require_groups(const std::string& name, int64_t cols,
                                   const weights::Shard& shard) const {
  const int64_t parts = shard.axis == 1 ? shard.size : 1;
  if (cols % (parts * types_.awq_group_size) == 0) return;
  throw StartupError(name + ": has " + std::to_string(cols) +
                     " columns, which do not divide into " +
                     (parts == 1 ? "" : std::to_string(parts) + " equal parts of ") + "groups of " +
                     std::to_string(types_.awq_group_size) + " (quantization_config.group_size)" +
                     (parts == 1 ? "" : ": use fewer ranks, or --dequantize"));
}

Tensor WeightBuilder::scales(ops::ScaleForm form, int64_t count, int64_t rows, int64_t cols) {
  if (form == ops::ScaleForm::kChannels) return arena_.allocate(DType::kF32, {count, rows, 1});
  if (form == ops::ScaleForm::kZeroPoints)
    return arena_.allocate(DType::kF16, {count, rows, 2 * cols / types_.awq_group_size});
  if (form == ops::ScaleForm::kGroups)
    return arena_.allocate(DType::kF32, {count, rows, num_scale_blocks(cols)});
  return arena_.allocate(DType::kF32, {count, num_scale_blocks(rows), num_scale_blocks(cols)});
}

DType WeightBuilder::type_of(ops::ScaleForm form) const {
  if (form == ops::ScaleForm::kNone) return types_.plain;
  return form == ops::ScaleForm::kGroups ? types_.experts() : types_.matrix();
}

ops::ScaleForm WeightBuilder::form_of(const std::vector<std::string>& names) const {
  const ops::ScaleForm form = types_.scale_form(names.front());
  for (const std::string& name : names) {
    if (types_.scale_form(name) == form) continue;
    throw StartupError(name + " and " + names.front() +
                       ": one is quantised and the other is not, which quantization_config must "
                       "not ask of matrices that are multiplied together");
  }
  return form;
}

void WeightBuilder::leave_to_others(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    parameters_.push_back({.name = name, .held_elsewhere = true});
}

Tensor WeightBuilder::derived(DType dtype, std::initializer_list<int64_t> shape) {
  return arena_.allocate(dtype, shape);
}

}  // namespace fathom::layers
