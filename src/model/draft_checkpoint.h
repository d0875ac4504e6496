#pragma once
// Loads a model whose draft (MTP) layer comes from a checkpoint of its own.
//
//   const config::DraftConfig draft_config = value_or_throw(load_draft_config(draft_dir, config));
//   const Checkpoint draft = value_or_throw(Checkpoint::open(draft_dir));
//   throw_on_error(load_with_draft_layer(checkpoint, {&draft, draft_config.layer_idx}, {model.get()}, options));
//
// The draft layer shares the model's embedding and head. Its checkpoint may repeat them, under the names of the
// layer or of a whole model, if they are the same, byte for byte.

#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "weights/checkpoint.h"
#include "weights/loader.h"

namespace fathom::model {

struct DraftSource {
  const weights::Checkpoint* checkpoint = nullptr;
  int layer_idx = 0;  // its tensors are model.layers.<layer_idx>.*
};

// As weights::load_parameters, and the same list of problems, by the names in the checkpoint that has them. Of
// `checkpoint` an MTP layer is left unread. options.ignored_prefixes are those of `checkpoint`; progress is that of
// its part. ranks: the parts of one model, which has_mtp().
Status load_with_draft_layer(const weights::Checkpoint& checkpoint, const DraftSource& draft,
                             const std::vector<const Model*>& ranks,
                             const weights::LoadOptions& options);

}  // namespace fathom::model
