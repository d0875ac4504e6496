#pragma once
// The lightning indexer's keys of config.json (DeepSeek-V3.2): what such a model must say, and refusals of what related
// models add to it.
//
//   JsonReader reader(object);
//   read_architecture(reader, config);
//   if (reader.ok()) read_index(reader, config);
//
// Internal to the module.

#include "config/json_reader.h"
#include "config/model_config.h"

namespace fathom::config {

// Fills index_config of an architecture that has an indexer; refuses its keys for others.
// REQUIRES: read_attention's and num_hidden_layers are read.
void read_index(JsonReader& reader, ModelConfig& config);

}  // namespace fathom::config
