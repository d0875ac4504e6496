#include "weights/parameter.h"

namespace fathom::weights {

std::vector<int64_t> whole_shape(const Parameter& parameter) {
  std::vector<int64_t> shape;
  for (int axis = 0; axis < parameter.data.rank(); ++axis)
    shape.push_back(parameter.data.dim(axis) *
                    (axis == parameter.shard.axis ? parameter.shard.size : 1));
  return shape;
}

std::string scale_name(const std::string& weight_name, bool of_channels) {
  return weight_name + (of_channels ? "_scale" : "_scale_inv");
}

std::string input_scale_name(const std::string& weight_name) {
  constexpr std::string_view kEnd = "weight";
  const bool has_end = weight_name.ends_with(kEnd);
  return weight_name.substr(0, weight_name.size() - (has_end ? kEnd.size() : 0)) + "input_scale";
}

bool are_of_channels(tensor::DType dtype, int64_t rows, int64_t scale_rows, int64_t scale_columns) {
  return dtype == tensor::DType::kI8 && scale_columns == 1 && scale_rows == rows;
}

bool has_channel_scales(const Parameter& parameter) {
  const tensor::Tensor &data = parameter.data, &scale = parameter.scale;
  return !scale.is_null() && data.rank() == 2 && scale.rank() == 2 &&
         are_of_channels(data.dtype(), data.dim(0), scale.dim(0), scale.dim(1));
}

}  // namespace fathom::weights
