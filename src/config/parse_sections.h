#pragma once
// The sections of config.json that have rules of their own: architecture, experts and gates, rotary
// embedding. Each reads its keys, fills its fields and records the first broken rule
// in the reader.
//
//   JsonReader reader(object);
//   read_architecture(reader, config);
//   if (reader.ok()) read_experts(reader, config);
//
// Internal to the module. read_architecture comes first: defaults depend on it.

#include "config/json_reader.h"
#include "config/model_config.h"

namespace fathom::config {

void read_architecture(JsonReader& reader, ModelConfig& config);
// REQUIRES: num_hidden_layers is read.
void read_experts(JsonReader& reader, ModelConfig& config);
void read_rope(JsonReader& reader, ModelConfig& config);

}  // namespace fathom::config
