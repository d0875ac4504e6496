#include "weights/parameter.h"

namespace fathom::weights {

std::vector<int64_t> whole_shape(const Parameter& parameter) {
  std::vector<int64_t> shape;
  for (int axis = 0; axis < parameter.data.rank(); ++axis)
    shape.push_back(parameter.data.dim(axis) *
                    (axis == parameter.shard.axis ? parameter.shard.size : 1));
  return shape;
}

std::string scale_name(const std::string& weight_name) { return weight_name + "_scale_inv"; }

}  // namespace fathom::weights
