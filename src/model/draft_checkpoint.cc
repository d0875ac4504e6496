#include "model/draft_checkpoint.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "layers/decoder_layer.h"
#include "weights/compare.h"

namespace fathom::model {
namespace {

// A tensor that a draft checkpoint may repeat, and the model's that it must equal.
struct Repeated {
  std::string name, model_name;
};

std::vector<Repeated> repeated_tensors(const std::string& draft_prefix) {
  return {{draft_prefix + "embed_tokens.weight", "model.embed_tokens.weight"},
          {"model.embed_tokens.weight", "model.embed_tokens.weight"},
          {draft_prefix + "shared_head.head.weight", "lm_head.weight"},
          {"lm_head.weight", "lm_head.weight"}};
}

Status check_repeated(const weights::Checkpoint& checkpoint, const weights::Checkpoint& draft,
                      const std::vector<Repeated>& tensors) {
  for (const Repeated& repeated : tensors) {
    const weights::TensorInfo* ours = draft.find(repeated.name);
    const weights::TensorInfo* theirs = checkpoint.find(repeated.model_name);
    if (ours == nullptr || theirs == nullptr) continue;
    const Result<bool> same = weights::same_tensor(*ours, *theirs);
    if (!same) return same.error();
    if (*same) continue;
    return invalid_argument(draft.directory() + ": tensor " + json::shown_text(repeated.name) +
                            " is not the model's " + json::shown_text(repeated.model_name) +
                            ", which the draft layer shares");
  }
  return {};
}

}  // namespace

Status load_with_draft_layer(const weights::Checkpoint& checkpoint, const DraftSource& draft,
                             const std::vector<const Model*>& ranks,
                             const weights::LoadOptions& options) {
  const Model& first = *ranks.front();
  FATHOM_CHECK(first.has_mtp(), "the model has no MTP layer");
  const std::string model_prefix = layers::layer_prefix(first.config().num_hidden_layers);
  const std::string draft_prefix = layers::layer_prefix(draft.layer_idx);
  std::deque<std::vector<weights::Parameter>> model_parameters, draft_parameters;
  weights::ParameterLists model_lists, draft_lists;
  for (const Model* model : ranks) {
    model_lists.push_back(&model_parameters.emplace_back());
    draft_lists.push_back(&draft_parameters.emplace_back());
    for (weights::Parameter parameter : model->parameters()) {
      if (!parameter.name.starts_with(model_prefix)) {
        model_parameters.back().push_back(std::move(parameter));
        continue;
      }
      parameter.name = draft_prefix + parameter.name.substr(model_prefix.size());
      draft_parameters.back().push_back(std::move(parameter));
    }
  }
  weights::LoadOptions draft_options{.num_threads = options.num_threads, .copy = options.copy};
  const std::vector<Repeated> repeated = repeated_tensors(draft_prefix);
  for (const Repeated& tensor : repeated) draft_options.ignored_prefixes.push_back(tensor.name);
  // Of a whole checkpoint the other layers.
  for (int i = 0; i < draft.layer_idx; ++i) {
    draft_options.ignored_prefixes.push_back(layers::layer_prefix(i));
  }
  if (draft.layer_idx > 0) draft_options.ignored_prefixes.push_back("model.norm.");
  if (Status same = check_repeated(checkpoint, *draft.checkpoint, repeated); !same) return same;
  Status loaded = weights::load_parameters_of_ranks(*draft.checkpoint, draft_lists, draft_options);
  if (!loaded) return loaded;
  weights::LoadOptions model_options = options;
  model_options.ignored_prefixes.push_back(model_prefix);
  return weights::load_parameters_of_ranks(checkpoint, model_lists, model_options);
}

}  // namespace fathom::model
