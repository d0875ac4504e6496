// Steps of decodes alone, padded to a size that was captured: the part of StepExecutor that captures and chooses.

#include <algorithm>

#include "base/failpoint.h"
#include "runner/step_executor.h"

namespace fathom::runner {

using tensor::Tensor;

StepExecutor::GraphShape StepExecutor::graph_shape(const StepLayout& layout) const {
  const std::vector<int>& sizes = config_.graph_batch_sizes;
  if (sizes.empty()) return {};
  const CapturedStep step = captured_step(layout, drafter());
  if (step.num_tokens == 0 || step.num_slices > sizes.back()) return {};
  // It is planted between the two operators that a graph holds.
  if (any_failpoint_armed()) return {};
  const int batch_size =
      *std::lower_bound(sizes.begin(), sizes.end(), static_cast<int>(step.num_slices));
  const GraphShape shape{
      .batch_size = batch_size, .num_tokens = step.num_tokens, .num_levels = layout.num_levels};
  return can_capture(shape) ? shape : GraphShape{};
}

// All rows of a lane are sampled by one operator, and the workspace holds the tokens of all lanes.
bool StepExecutor::can_capture(const GraphShape& shape) const {
  const int64_t tokens = int64_t{shape.batch_size} * shape.num_tokens;
  return tokens <= max_logit_rows_ && tokens * num_lanes() <= config_.max_batch_tokens;
}

void StepExecutor::pad(StepLayout& layout, const GraphShape& shape) const {
  pad_step(layout, {.num_slices = shape.batch_size,
                    .num_tokens = shape.num_tokens,
                    .num_lanes = num_lanes(),
                    .drafter = drafter()});
}

// Of a speculating runner's steps those of the full depth and those without drafts; others, which a depth that changes
// makes, are captured when they first come.
void StepExecutor::capture_graphs() {
  for (const int batch_size : config_.graph_batch_sizes) {
    if (can_capture({.batch_size = batch_size})) capture_graphs_of({.batch_size = batch_size});
    const GraphShape full{.batch_size = batch_size,
                          .num_tokens = 1 + drafter().max_drafts(),
                          .num_levels = drafter().num_steps};
    if (drafter_ && can_capture(full)) capture_graphs_of(full);
  }
  stream_.synchronize();
}

void StepExecutor::capture_graphs_of(const GraphShape& shape) {
  StepLayout layout;
  layout.num_levels = shape.num_levels;
  pad(layout, shape);
  stage_inputs(layout, /*frame=*/0);
  DecodeGraphs& graphs = decode_graphs(layout, shape);
  for (const bool masked : {false, true}) sampling_graph(layout, masked, graphs);
}

StepExecutor::DecodeGraphs& StepExecutor::decode_graphs(const StepLayout& layout,
                                                        const GraphShape& shape) {
  DecodeGraphs& graphs = graphs_[shape];
  if (graphs.forward == nullptr)
    graphs.forward = stream_.capture([this, layout, &graphs] {
      prepare_forward(layout);
      graphs.hidden = forward(layout);
    });
  return graphs;
}

ops::Graph& StepExecutor::sampling_graph(const StepLayout& layout, bool masked,
                                         DecodeGraphs& graphs) {
  std::unique_ptr<ops::Graph>& graph = graphs.sample[masked];
  if (graph == nullptr) {
    graph = stream_.capture([this, layout, masked, &graphs] {
      const auto rows = static_cast<int64_t>(layout.rows.size());
      sampler_.sample_all(logits_.slice(0, 0, rows), masked, stream_);
      commit(layout, forward_batch(layout), graphs.hidden);
    });
  }
  return *graph;
}

}  // namespace fathom::runner
