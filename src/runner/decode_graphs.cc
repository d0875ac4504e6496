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
  return graphs_.contains(shape) ? shape : GraphShape{};
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

// Steps that verify as many drafts as they ask for: of each depth of a chain, of a tree and of none. What comes
// between, where the depth changes or sequences end, is computed without a graph: to capture it would hold up that step
// and, of several ranks, allocate memory while another waits in a collective.
void StepExecutor::capture_graphs() {
  for (const int batch_size : config_.graph_batch_sizes) {
    capture_graphs_of({.batch_size = batch_size});
    const bool is_chain = drafter().top_k == 1;
    for (int levels = is_chain ? 1 : drafter().num_steps; levels <= drafter().num_steps; ++levels)
      capture_graphs_of({.batch_size = batch_size,
                         .num_tokens = 1 + (is_chain ? levels : drafter().max_drafts()),
                         .num_levels = levels});
  }
  stream_.synchronize();
}

void StepExecutor::capture_graphs_of(const GraphShape& shape) {
  if (!can_capture(shape)) return;
  StepLayout layout;
  layout.num_levels = shape.num_levels;
  pad(layout, shape);
  stage_inputs(layout, /*frame=*/0);
  DecodeGraphs& graphs = graphs_[shape];
  graphs.forward = stream_.capture([this, layout, &graphs] {
    prepare_forward(layout);
    graphs.hidden = forward(layout);
  });
  for (const bool masked : {false, true})
    graphs.sample[masked] = stream_.capture([this, layout, masked, &graphs] {
      const auto rows = static_cast<int64_t>(layout.rows.size());
      sampler_.sample_all(logits_.slice(0, 0, rows), masked, stream_);
      commit(layout, forward_batch(layout), graphs.hidden);
    });
}

}  // namespace fathom::runner
