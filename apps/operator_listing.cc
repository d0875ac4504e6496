#include "apps/operator_listing.h"

#include <algorithm>
#include <utility>

#include "apps/engine/address_only.h"
#include "base/json.h"

namespace fathom::apps {
namespace {

using model::AttentionForm;
using tensor::DType;

// Sequences of one length each, without rows before them.
struct Step {
  const char* name;
  int64_t sequences, tokens_of_each;
  bool verifies = false;  // absorbed, whatever its length
};
constexpr Step kDecode{"decode of 4 sequences", 4, 1};
constexpr Step kSingleDecode{"decode of 1 sequence", 1, 1};  // where it runs other operators
constexpr Step kPrefill{"prefill of 2 prompts of 200 tokens", 2, 200};
constexpr Step kVerification{"verification of 3 drafts of 4 sequences", 4, 4, true};
constexpr Step kDraft{"draft of 4 sequences", 4, 1};

// Where in the list of calls each layer ends.
class LayerEnds : public model::LayerTap {
 public:
  explicit LayerEnds(const std::vector<ops::OperatorCall>& calls) : calls_(calls) {}
  void on_layer(int, const tensor::Tensor&, const tensor::Tensor&, ops::Stream&) override {
    ends.push_back(calls_.size());
  }
  std::vector<size_t> ends;

 private:
  const std::vector<ops::OperatorCall>& calls_;
};

// Room for more rows than an indexer keeps: where nobody has to choose it does not run.
int64_t num_blocks(const Step& step, const model::Model& model) {
  const std::optional<config::IndexConfig>& index = model.config().index_config;
  const int64_t rows = step.tokens_of_each + (index ? index->topk : 0);
  return rows / model.kv_groups().at(0).block_tokens + 1;
}

model::Workspace make_workspace(const model::ForwardBatch& batch, const model::Model& model) {
  return model.make_workspace(
      {.max_batch_tokens = batch.num_tokens(),
       .max_rows = batch.block_tables.dim(1) * model.kv_groups().at(0).block_tokens});
}

model::ForwardBatch make_batch(const Step& step, const model::Model& model) {
  const int64_t tokens = step.sequences * step.tokens_of_each;
  tensor::Arena nowhere;
  model::ForwardBatch batch;
  batch.token_ids = nowhere.allocate(DType::kI32, {tokens});
  batch.positions = nowhere.allocate(DType::kI32, {tokens});
  batch.kv_rows = nowhere.allocate(DType::kI64, {tokens});
  batch.query_start = nowhere.allocate(DType::kI32, {step.sequences + 1});
  batch.kv_len = nowhere.allocate(DType::kI32, {step.sequences});
  batch.block_tables = nowhere.allocate(DType::kI32, {step.sequences, num_blocks(step, model)});
  if (step.verifies || model.attention_form(step.tokens_of_each, 0) == AttentionForm::kAbsorbed) {
    batch.num_absorbed_sequences = step.sequences;
    batch.num_absorbed_tokens = tokens;
    return batch;
  }
  for (int64_t i = 0; i < step.sequences; ++i)
    batch.expanded.push_back({.token_begin = i * step.tokens_of_each,
                              .num_tokens = step.tokens_of_each,
                              .sequence_idx = i});
  return batch;
}

std::vector<OperatorCount> counted(const std::vector<ops::OperatorCall>& calls, size_t begin,
                                   size_t end) {
  std::vector<OperatorCount> counts;
  for (size_t i = begin; i < end; ++i) {
    const auto known = std::find_if(counts.begin(), counts.end(), [&](const OperatorCount& count) {
      return count.call == calls[i];
    });
    if (known == counts.end()) {
      counts.push_back({.call = calls[i], .count = 1});
    } else {
      ++known->count;
    }
  }
  return counts;
}

// Layers that run the same operators as often become one group.
std::vector<OperatorGroup> grouped(const std::vector<ops::OperatorCall>& calls,
                                   const std::vector<size_t>& ends) {
  std::vector<OperatorGroup> groups = {{"before the layers", counted(calls, 0, ends[0])}};
  size_t first = 0;
  for (size_t layer = 0; layer + 1 < ends.size(); ++layer) {
    std::vector<OperatorCount> counts = counted(calls, ends[layer], ends[layer + 1]);
    if (layer == 0 || counts != groups.back().operators) {
      first = layer;
      groups.push_back({"", std::move(counts)});
    }
    groups.back().where = first == layer
                              ? "layer " + std::to_string(layer)
                              : "layers " + std::to_string(first) + "-" + std::to_string(layer);
  }
  groups.push_back({"behind the layers", counted(calls, ends.back(), calls.size())});
  return groups;
}

// Records into `calls` from now on.
std::unique_ptr<ops::Stream> recorder(const model::Model& model,
                                      std::vector<ops::OperatorCall>& calls) {
  std::unique_ptr<ops::Stream> stream = model.backend().make_stream({.num_threads = 1});
  stream->begin_measuring();
  stream->record_operators(&calls);
  return stream;
}

std::vector<ops::OperatorCall> record(const Step& step, const model::Model& model,
                                      std::vector<size_t>& ends) {
  std::vector<ops::OperatorCall> calls;
  const std::unique_ptr<ops::Stream> stream = recorder(model, calls);
  const model::ForwardBatch batch = make_batch(step, model);
  model::Workspace workspace = make_workspace(batch, model);
  const model::KvStorage kv = model::KvStorage::unbacked(model.kv_groups().at(0));
  LayerEnds tap(calls);
  const tensor::Tensor hidden = model.forward(batch, kv, workspace, *stream, &tap);
  tensor::Arena nowhere;
  model.logits(hidden.slice(0, 0, 1), nowhere.allocate(DType::kF32, {1, model.config().vocab_size}),
               *stream);
  ends = tap.ends;
  return calls;
}

// One pass of the MTP layer and the head that ranks what it proposes.
std::vector<ops::OperatorCall> record_draft(const model::Model& model, size_t& layer_end) {
  std::vector<ops::OperatorCall> calls;
  const std::unique_ptr<ops::Stream> stream = recorder(model, calls);
  const model::ForwardBatch batch = make_batch(kDraft, model);
  model::Workspace workspace = make_workspace(batch, model);
  const model::KvStorage kv = model::KvStorage::unbacked(model.kv_groups().at(0));
  tensor::Arena nowhere;
  const tensor::Tensor hidden = nowhere.allocate(
      model.backend().act, {batch.num_tokens(), int64_t{model.config().hidden_size}});
  const tensor::Tensor drafted =
      model.mtp_forward(hidden, batch.token_ids, batch, kv, workspace, *stream);
  layer_end = calls.size();
  model.draft_logits(drafted,
                     nowhere.allocate(DType::kF32, {batch.num_tokens(), model.config().vocab_size}),
                     *stream);
  return calls;
}

// Names of those that the table has, of operators that the runner calls itself.
template <class... Entries>
std::vector<std::string> provided(const std::pair<const char*, Entries>&... entries) {
  std::vector<std::string> names;
  ((entries.second.run != nullptr ? names.push_back(entries.first) : void()), ...);
  return names;
}

void list_runner(const ops::Backend& table, bool drafts, BackendOperators& listing) {
  using std::pair;
  listing.runner =
      provided(pair{"step_inputs", table.step_inputs}, pair{"gather_rows", table.gather_rows},
               pair{"sample", table.sample}, pair{"commit_tokens", table.commit_tokens});
  if (!drafts) return;
  listing.runner_drafts =
      provided(pair{"draft_inputs", table.draft_inputs}, pair{"draft_rows", table.draft_rows},
               pair{"accept_drafts", table.accept_drafts}, pair{"move_rows", table.move_rows},
               pair{"top_k", table.top_k}, pair{"grow_drafts", table.grow_drafts},
               pair{"select_rows", table.select_rows});
}

bool is_fused(std::string_view op) {
  const std::vector<ops::FusedOperator>& all = ops::fused_operators();
  return std::any_of(all.begin(), all.end(),
                     [op](const ops::FusedOperator& fused) { return fused.op == op; });
}

std::string with_parts(const ops::FusedOperator& fused) {
  std::string text = std::string(fused.op) + " (";
  for (size_t i = 0; i < fused.parts.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::string(fused.parts[i]);
  return text + ")";
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + text;
  return all.empty() ? "none" : all;
}

}  // namespace

BackendOperators list_operators(const config::ModelConfig& config,
                                const model::ModelOptions& options, const ops::Backend& backend) {
  const ops::Backend table = address_only(backend);
  const auto model = model::Model::create(config, options, table);
  BackendOperators listing{.backend = std::string(backend.name),
                           .device = std::string(backend.device),
                           .steps = {},
                           .fused = {},
                           .in_parts = {},
                           .runner = {},
                           .runner_drafts = {}};
  list_runner(backend, model->has_mtp(), listing);
  std::vector<ops::OperatorCall> all;
  for (const Step& step : {kDecode, kSingleDecode, kPrefill, kVerification}) {
    if (step.verifies && !model->has_mtp()) continue;
    std::vector<size_t> ends;
    const std::vector<ops::OperatorCall> calls = record(step, *model, ends);
    if (step.name == kSingleDecode.name && calls == all) continue;
    listing.steps.push_back({step.name, grouped(calls, ends)});
    all.insert(all.end(), calls.begin(), calls.end());
  }
  if (model->has_mtp()) {
    size_t layer_end = 0;
    const std::vector<ops::OperatorCall> calls = record_draft(*model, layer_end);
    listing.steps.push_back({kDraft.name,
                             {{"draft layer", counted(calls, 0, layer_end)},
                              {"behind the layer", counted(calls, layer_end, calls.size())}}});
    all.insert(all.end(), calls.begin(), calls.end());
  }
  const auto runs = [&](std::string_view op) {
    return std::any_of(all.begin(), all.end(),
                       [&](const ops::OperatorCall& call) { return call.op == op; });
  };
  for (const ops::FusedOperator& fused : ops::fused_operators()) {
    if (runs(fused.op)) {
      listing.fused.push_back(with_parts(fused));
    } else if (std::any_of(fused.parts.begin(), fused.parts.end(), runs)) {
      listing.in_parts.push_back(with_parts(fused));
    }
  }
  return listing;
}

std::string operators_text(const BackendOperators& listing) {
  std::string text = "operators of " + listing.backend + " (" + listing.device + ")\n";
  for (const StepOperators& step : listing.steps) {
    text += "  " + step.step + "\n";
    for (const OperatorGroup& group : step.groups) {
      text += "    " + group.where +
              std::string(group.where.size() < 20 ? 20 - group.where.size() : 1, ' ');
      for (size_t i = 0; i < group.operators.size(); ++i) {
        const OperatorCount& op = group.operators[i];
        text += (i == 0 ? "" : ", ") + std::string(op.call.op) + " " +
                std::string(tensor::dtype_name(op.call.dtype));
        if (op.count > 1) text += " x" + std::to_string(op.count);
        if (is_fused(op.call.op)) text += " (fused)";
      }
      text += "\n";
    }
  }
  text += "  around them " + joined(listing.runner) + "\n";
  if (!listing.runner_drafts.empty())
    text += "  with drafts " + joined(listing.runner_drafts) + "\n";
  text += "  fused       " + joined(listing.fused) + "\n";
  text += "  in parts    " + joined(listing.in_parts) + "\n";
  return text;
}

json::Value operators_json(const BackendOperators& listing) {
  json::Value steps = json::Value::array();
  for (const StepOperators& step : listing.steps) {
    json::Value groups = json::Value::array();
    for (const OperatorGroup& group : step.groups) {
      json::Value operators = json::Value::array();
      for (const OperatorCount& op : group.operators)
        operators.push_back({{"op", std::string(op.call.op)},
                             {"dtype", std::string(tensor::dtype_name(op.call.dtype))},
                             {"count", op.count},
                             {"fused", is_fused(op.call.op)}});
      groups.push_back({{"where", group.where}, {"operators", operators}});
    }
    steps.push_back({{"step", step.step}, {"groups", groups}});
  }
  return {{"backend", listing.backend},
          {"device", listing.device},
          {"steps", steps},
          {"fused", listing.fused},
          {"in_parts", listing.in_parts},
          {"runner", listing.runner},
          {"runner_with_drafts", listing.runner_drafts}};
}

}  // namespace fathom::apps
