// Steps of decodes alone, padded to a size that was captured: the part of StepExecutor that captures and chooses.

#include <algorithm>

#include "base/failpoint.h"
#include "runner/step_executor.h"

namespace fathom::runner {

using tensor::Tensor;

int StepExecutor::graph_batch_size(const StepLayout& layout) const {
  const std::vector<int>& sizes = config_.graph_batch_sizes;
  if (drafter_) return 0;
  if (sizes.empty() || layout.num_slices() > sizes.back() || !is_plain_decode(layout)) return 0;
  int64_t num_biases = 0;
  for (const OutputRow& row : layout.rows) num_biases += sampler_.num_biases({&row.sample, 1});
  if (num_biases > kGraphBiases) return 0;
  // It is planted between the two operators that a graph holds.
  if (any_failpoint_armed()) return 0;
  return *std::lower_bound(sizes.begin(), sizes.end(), static_cast<int>(layout.num_slices()));
}

void StepExecutor::capture_graphs() {
  if (drafter_) return;
  for (const int batch_size : config_.graph_batch_sizes) {
    StepLayout layout;
    layout.query_start.push_back(0);
    pad_decode(layout, batch_size);
    stage_inputs(layout, {.frame = 0, .fixed_biases = kGraphBiases});
    DecodeGraphs& graphs = decode_graphs(batch_size);
    capture_forward(layout, graphs);
    sampling_graph(layout, false, graphs);
  }
  stream_.synchronize();
}

StepExecutor::DecodeGraphs& StepExecutor::decode_graphs(int batch_size) {
  forget_stale_graphs();
  return graphs_[batch_size];
}

// The sampler's parameters moved to a larger place: what samples was captured with the old one.
void StepExecutor::forget_stale_graphs() {
  if (captured_parameters_ == sampler_.parameters_at()) return;
  captured_parameters_ = sampler_.parameters_at();
  for (auto& [batch_size, graphs] : graphs_)
    for (auto& of_mask : graphs.sample)
      for (std::unique_ptr<ops::Graph>& graph : of_mask) graph = nullptr;
}

void StepExecutor::capture_forward(const StepLayout& layout, DecodeGraphs& graphs) {
  graphs.forward = stream_.capture([this, layout] {
    const Tensor hidden = model_.forward(prepare_forward(layout), *kv_, workspace_, stream_);
    compute_logits(0, layout.num_slices(), hidden);
  });
}

ops::Graph& StepExecutor::sampling_graph(const StepLayout& layout, bool masked,
                                         DecodeGraphs& graphs) {
  std::unique_ptr<ops::Graph>& graph = graphs.sample[masked][!sampler_.counts().is_null()];
  if (graph == nullptr) {
    const int64_t rows = layout.num_slices();
    graph = stream_.capture([this, rows, masked] {
      sampler_.sample_all(logits_.slice(0, 0, rows), masked, stream_);
      commit({}, {}, {});
    });
  }
  return *graph;
}

}  // namespace fathom::runner
