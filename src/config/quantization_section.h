#pragma once
// quantization_config: the published forms of FP8, INT8, INT4 with FP8 and AWQ, and refusals of all others by key and
// value.
//
//   {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
//   {"quant_method": "w4afp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
//   {"quant_method": "blockwise_int8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
//   {"quant_method": "w8a8_int8"}
//   {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {...}}    // the same
//
// Internal to the module.

#include "config/json_reader.h"
#include "config/model_config.h"

namespace fathom::config {

void read_quantization(JsonReader& reader, ModelConfig& config);

}  // namespace fathom::config
