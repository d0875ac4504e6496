#include "apps/tune/candidates.h"

#include <cmath>

namespace fathom::apps {
namespace {

using tensor::DType, tuned::ExpertChoice, tuned::ExpertKernel, tuned::MatrixChoice,
    tuned::MatrixKernel, tuned::MatrixShape, tuned::Tile;

// In microseconds, as they were seen on an H200: what a launch costs, and a line of 128 bytes of a warp or a block.
constexpr double kLaunch = 2, kStreamedLine = 0.5, kBatchLine = 0.12, kMeeting = 0.8;

double ceil_div(double a, double b) { return std::ceil(a / b); }

double bytes_us(double bytes, const TuneDevice& device) { return bytes / (device.gb_per_s * 1e3); }

double weight_bytes(const MatrixShape& shape) {
  return static_cast<double>(shape.n * shape.k * tensor::dtype_bytes(shape.dtype));
}

double num_lines(const MatrixShape& shape) {
  return ceil_div(static_cast<double>(shape.k * tensor::dtype_bytes(shape.dtype)), 128);
}

double meeting_us(int cluster) {
  return cluster > 1 ? kMeeting + 0.15 * std::log2(static_cast<double>(cluster)) : 0;
}

double streaming_cost(const MatrixShape& shape, const MatrixChoice& choice,
                      const TuneDevice& device) {
  const double units = ceil_div(ceil_div(static_cast<double>(shape.n), 16), 8.0 / choice.warps);
  const double rounds = ceil_div(units * choice.cluster, 3.0 * device.multiprocessors);
  const double lines = ceil_div(num_lines(shape), double{1} * choice.warps * choice.cluster);
  const double stages = std::min(lines, double{1} * (choice.stages > 0 ? choice.stages : 3));
  return kLaunch +
         std::max(bytes_us(weight_bytes(shape), device), rounds * lines * kStreamedLine / stages) +
         meeting_us(choice.cluster);
}

double batch_cost(const MatrixShape& shape, const MatrixChoice& choice, const TuneDevice& device) {
  const double blocks = ceil_div(static_cast<double>(shape.n), 64) * choice.cluster;
  const double rounds = ceil_div(blocks, 2.0 * device.multiprocessors);
  const double lines = ceil_div(num_lines(shape), choice.cluster);
  return kLaunch + std::max(bytes_us(weight_bytes(shape), device), rounds * lines * kBatchLine) +
         meeting_us(choice.cluster);
}

// Rounds of clusters; a large tile takes 1.85 times as long as one of 128 x 128.
double tiled_cost(const MatrixShape& shape, int64_t rows, const MatrixChoice& choice,
                  const TuneDevice& device) {
  const bool is_large = choice.tile == Tile::kLarge, is_f8 = shape.dtype == DType::kF8E4M3;
  const double tile_rows = is_large && is_f8 ? 256 : 128;
  const double tile_columns = is_large && !is_f8 ? 256 : 128;
  const double clusters = ceil_div(static_cast<double>(rows), tile_rows) *
                          ceil_div(static_cast<double>(shape.n), 2 * tile_columns);
  const int clusters_at_once = device.multiprocessors / 2;
  return (is_large ? 1.85 : 1) * ceil_div(clusters, clusters_at_once);
}

class MatrixCandidates {
 public:
  MatrixCandidates(const MatrixShape& shape, const TuneDevice& device)
      : shape_(shape), device_(device) {}

  SearchTask<MatrixChoice> task_of(std::vector<int64_t> rows) const {
    SearchTask<MatrixChoice> task{.rows = std::move(rows), .candidates = {}};
    const int64_t most = task.rows.back();
    if (most <= tuned::kMaxStreamedRows) {
      add_streaming(task);
    } else if (most <= tuned::kMaxBatchRows) {
      for (const int cluster : {1, 2, 4, 8})
        add(task, {.kernel = MatrixKernel::kBatch, .cluster = cluster});
    } else {
      add_of_many(task);
    }
    return task;
  }

 private:
  void add(SearchTask<MatrixChoice>& task, const MatrixChoice& choice) const {
    const int64_t rows = task.rows.back();
    if (!tuned::why_not(shape_, rows, choice).empty()) return;
    const double cost =
        choice.kernel == MatrixKernel::kStreaming ? streaming_cost(shape_, choice, device_)
        : choice.kernel == MatrixKernel::kBatch   ? batch_cost(shape_, choice, device_)
                                                  : tiled_cost(shape_, rows, choice, device_);
    task.candidates.push_back({.choice = choice, .predicted = cost});
  }
  void add_streaming(SearchTask<MatrixChoice>& task) const {
    for (const int cluster : {1, 2, 4, 8})
      for (const int warps : {1, 2, 4, 8})
        for (const int stages : {2, 3, 4})
          add(task, {.kernel = MatrixKernel::kStreaming,
                     .cluster = cluster,
                     .warps = warps,
                     .stages = stages});
  }
  // The library's cost is not known: as the best of ours, so that it is timed.
  void add_of_many(SearchTask<MatrixChoice>& task) const {
    for (const Tile tile : {Tile::kSmall, Tile::kLarge})
      for (const int raster : {4, 8, 16, 32})
        add(task, {.kernel = MatrixKernel::kTiled, .tile = tile, .raster = raster});
    double best = 1;
    for (const auto& candidate : task.candidates)
      best = &candidate == task.candidates.data() ? candidate.predicted
                                                  : std::min(best, candidate.predicted);
    const MatrixChoice library{.kernel = MatrixKernel::kLibrary};
    if (device_.has_library && tuned::why_not(shape_, task.rows.back(), library).empty())
      task.candidates.push_back({.choice = library, .predicted = best});
  }

  const MatrixShape& shape_;
  const TuneDevice& device_;
};

// Bytes of weights that a kernel reads: an expert's once for each of its groups.
double expert_cost(const ExpertTask& experts, int64_t tokens, const ExpertChoice& choice,
                   const TuneDevice& device) {
  const auto all = static_cast<double>(experts.shape.experts);
  const auto pairs = static_cast<double>(tokens * experts.num_experts_per_tok);
  const double used = all * (1 - std::pow(1 - 1 / all, pairs));
  const double bytes = static_cast<double>(3 * experts.shape.inter * experts.hidden_size *
                                           tensor::dtype_bytes(experts.shape.dtype));
  const double group = choice.kernel == ExpertKernel::kPairs    ? 1
                       : choice.kernel == ExpertKernel::kNarrow ? 8
                                                                : 32;
  const double groups =
      choice.kernel == ExpertKernel::kTiled ? used : used * std::max(1.0, pairs / used / group);
  const double sorting = choice.kernel == ExpertKernel::kPairs ? 0 : 3;
  return kLaunch + sorting + bytes_us(groups * bytes, device);
}

}  // namespace

std::vector<SearchTask<MatrixChoice>> matrix_tasks(const MatrixShape& shape,
                                                   const std::vector<int64_t>& rows,
                                                   const TuneDevice& device) {
  const MatrixCandidates candidates(shape, device);
  std::vector<int64_t> streamed, batch;
  std::vector<SearchTask<MatrixChoice>> tasks;
  for (const int64_t count : rows)
    if (count <= tuned::kMaxBatchRows)
      (count <= tuned::kMaxStreamedRows ? streamed : batch).push_back(count);
  if (!streamed.empty()) tasks.push_back(candidates.task_of(streamed));
  if (!batch.empty()) tasks.push_back(candidates.task_of(batch));
  for (const int64_t count : rows)
    if (count > tuned::kMaxBatchRows) tasks.push_back(candidates.task_of({count}));
  return tasks;
}

std::vector<SearchTask<ExpertChoice>> expert_tasks(const ExpertTask& experts,
                                                   const std::vector<int64_t>& rows,
                                                   const TuneDevice& device) {
  std::vector<SearchTask<ExpertChoice>> tasks;
  for (const int64_t tokens : rows) {
    SearchTask<ExpertChoice> task{.rows = {tokens}, .candidates = {}};
    const auto add = [&](const ExpertChoice& choice) {
      if (tuned::why_not(experts.shape, tokens, choice).empty())
        task.candidates.push_back(
            {.choice = choice, .predicted = expert_cost(experts, tokens, choice, device)});
    };
    add({.kernel = ExpertKernel::kWide});
    for (const Tile tile : {Tile::kSmall, Tile::kLarge})
      add({.kernel = ExpertKernel::kTiled, .down_tile = tile});
    if (tokens <= tuned::kMaxStreamedExpertRows)
      for (const ExpertKernel kernel : {ExpertKernel::kPairs, ExpertKernel::kNarrow})
        for (const int gate_up_stages : {2, 3, 4})
          for (const int down_stages : {2, 3, 4})
            add({.kernel = kernel, .gate_up_stages = gate_up_stages, .down_stages = down_stages});
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace fathom::apps
