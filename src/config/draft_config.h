#pragma once
// What config.json says in a checkpoint that holds only the draft (MTP) layer of another model, as
// DeepSeek-V3-NextN is published: the model's own settings with "num_hidden_layers": 1, and its tensors are
// model.layers.0.*. A whole checkpoint of the same kind will do as well, its MTP layer is taken.
//
//   Result<DraftConfig> draft = load_draft_config("models/v3-nextn", model_config);
//   if (!draft) return draft.error();       // models/v3-nextn/config.json: "hidden_size" is 64, the model's is 128
//
// Thread-safe (no state).

#include <string>
#include <string_view>

#include "base/result.h"
#include "config/model_config.h"

namespace fathom::config {

struct DraftConfig {
  int layer_idx = 0;  // the draft layer's tensors are model.layers.<layer_idx>.*
};

// Refuses a layer that was not made for a model like this one: every setting that changes what the layer computes
// must be the model's. Whether the tensors fit is the loader's to say.
Result<DraftConfig> load_draft_config(const std::string& directory, const ModelConfig& model);
Result<DraftConfig> parse_draft_config(std::string_view config_json, const ModelConfig& model);

}  // namespace fathom::config
