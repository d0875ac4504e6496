#include "weights/read_plan.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "weights/convert.h"
#include "weights/problem_list.h"
#include "weights/safetensors.h"

namespace fathom::weights {
namespace {

using tensor::DType;
using tensor::Tensor;

// Large enough that a disk streams, small enough that the bytes are still in the cache when they are
// converted.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

// Buffers that some exporters save with the weights. They are computed from the configuration here.
constexpr std::string_view kRecomputedSuffix = ".rotary_emb.inv_freq";

std::string wanted_shape(const Parameter& parameter) {
  std::string text;
  for (const int64_t dim : whole_shape(parameter))
    text += (text.empty() ? "[" : ", ") + std::to_string(dim);
  return text + "]";
}

// Where the rank's part begins along an axis of its tensor.
int64_t first_of(const Shard& shard, int axis, const Tensor& data) {
  return axis == shard.axis ? shard.rank * data.dim(axis) : 0;
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const LoadOptions& options)
      : checkpoint_(checkpoint), options_(options) {}

  void add(const Parameter& parameter) {
    const TensorInfo* info = checkpoint_.find(parameter.name);
    if (parameter.held_elsewhere) return leave_to_others(parameter);
    if (parameter.found != nullptr) *parameter.found = info != nullptr;
    if (info == nullptr) {
      if (!parameter.optional) {
        add_problem("missing",
                    "tensor " + json::shown_text(parameter.name) + " " + wanted_shape(parameter));
      }
      return;
    }
    used_.insert(info->name);
    const TensorInfo* scale = find_scale(parameter, *info);
    if (!check_type(parameter, *info)) return;
    if (parameter.data.dtype() == DType::kF8E4M3) {
      cut({.source = info}, parameter.data, parameter.shard);
      if (scale != nullptr)
        cut({.source = scale, .is_scale = true}, parameter.scale, parameter.shard);
    } else {
      cut({.source = info, .dequantize_with = scale}, parameter.data, parameter.shard);
    }
  }

  void refuse_unexpected() {
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      if (used_.contains(tensor.name) || is_ignored(tensor.name)) continue;
      add_problem("unexpected", "tensor " + json::shown_text(tensor.name) + " " + describe(tensor));
    }
  }

  Result<ReadPlan> finish() && {
    if (num_plain_ > 0 && num_plain_ == num_problems_ && !holds_fp8()) {
      return invalid_argument(
          checkpoint_.directory() + ": config.json has an FP8 quantization_config, but " +
          first_plain_ + ", as are all of the " + std::to_string(num_plain_) +
          " matrices that it speaks of: remove quantization_config from config.json");
    }
    if (problems_.any()) {
      const char* const advice =
          num_plain_ > 0 ? ", some of whose FP8 matrices are not FP8 here (--dequantize reads both)"
                         : "";
      return problems_.error(checkpoint_.directory() + " does not fit the model" + advice);
    }
    std::stable_sort(plan_.pieces.begin(), plan_.pieces.end(),
                     [](const ReadPiece& a, const ReadPiece& b) {
                       const int files = a.source->file.compare(b.source->file);
                       return files != 0 ? files < 0 : a.offset < b.offset;
                     });
    return std::move(plan_);
  }

 private:
  void add_problem(std::string_view kind, const std::string& what) {
    problems_.add(kind, what);
    ++num_problems_;
  }

  bool holds_fp8() const {
    return std::any_of(checkpoint_.tensors().begin(), checkpoint_.tensors().end(),
                       [](const TensorInfo& tensor) { return tensor.dtype == DType::kF8E4M3; });
  }

  void leave_to_others(const Parameter& parameter) {
    for (const std::string& name : {parameter.name, scale_name(parameter.name)}) {
      const TensorInfo* info = checkpoint_.find(name);
      if (info != nullptr) used_.insert(info->name);
    }
  }

  bool is_ignored(const std::string& name) const {
    if (name.ends_with(kRecomputedSuffix)) return true;
    return std::any_of(options_.ignored_prefixes.begin(), options_.ignored_prefixes.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  }

  bool check_type(const Parameter& parameter, const TensorInfo& info) {
    const std::string where = "tensor " + json::shown_text(info.name) + " is " + describe(info);
    if (info.shape != whole_shape(parameter)) {
      add_problem("wrong shape", where + ", the model needs " + wanted_shape(parameter));
      return false;
    }
    const DType to = parameter.data.dtype();
    const bool from_f8 = info.dtype == DType::kF8E4M3 && info.shape.size() == 2;
    if (to == DType::kF8E4M3 ? from_f8 : (from_f8 || can_convert(info.dtype, to))) return true;
    if (to == DType::kF8E4M3 && can_convert(info.dtype, DType::kBf16) && num_plain_++ == 0) {
      first_plain_ = where;
    }
    add_problem("wrong dtype", where + ", the model needs " +
                                   (to == DType::kF8E4M3 ? "f8_e4m3" : "f32, bf16 or f16"));
    return false;
  }

  // The scales of an f8 tensor; problems for missing, misshapen and superfluous ones.
  const TensorInfo* find_scale(const Parameter& parameter, const TensorInfo& info) {
    const TensorInfo* scale = checkpoint_.find(scale_name(parameter.name));
    if (scale != nullptr) used_.insert(scale->name);
    if (info.dtype != DType::kF8E4M3 || info.shape.size() != 2) {
      if (scale != nullptr) {
        add_problem("extra scale", "tensor " + json::shown_text(scale->name) + " for " +
                                       json::shown_text(info.name) + ", which is " +
                                       describe(info));
      }
      return nullptr;
    }
    if (scale == nullptr) {
      add_problem("missing scale", "tensor " + json::shown_text(scale_name(parameter.name)) +
                                       " for " + json::shown_text(info.name) + ", which is " +
                                       describe(info));
      return nullptr;
    }
    const std::vector<int64_t> shape = {num_scale_blocks(info.shape[0]),
                                        num_scale_blocks(info.shape[1])};
    if (scale->dtype == DType::kF32 && scale->shape == shape) return scale;
    add_problem("wrong scale", "tensor " + json::shown_text(scale->name) + " is " +
                                   describe(*scale) + ", must be f32[" + std::to_string(shape[0]) +
                                   ", " + std::to_string(shape[1]) + "]");
    return nullptr;
  }

  // Cuts a rank's part into pieces of about kPieceBytes: by elements where it is one range of the file and of memory,
  // else by rows.
  void cut(const ReadPiece& whole, const Tensor& data, const Shard& shard) {
    const int64_t columns = whole.source->shape.back();
    ReadPiece part = whole;
    part.first_row = data.rank() == 1 ? 0 : first_of(shard, 0, data);
    part.first_column = first_of(shard, data.rank() - 1, data);
    const bool whole_rows = data.rank() == 2 && data.dim(1) == columns;
    const bool flat = whole.dequantize_with == nullptr && data.is_contiguous() &&
                      (whole_rows || data.rank() == 1 || data.dim(0) == 1);
    const Tensor view = flat ? data.reshape({1, data.num_elements()}) : data;
    const int axis = flat ? 1 : 0;
    const int64_t element_bytes = tensor::dtype_bytes(whole.source->dtype);
    const int64_t unit_bytes = flat ? element_bytes : element_bytes * columns;
    const int64_t part_offset =
        whole.source->offset + (part.first_row * columns + part.first_column) * element_bytes;
    const int64_t step = step_of(part, unit_bytes);
    for (int64_t begin = 0; begin < view.dim(axis); begin += step) {
      const int64_t end = std::min(view.dim(axis), begin + step);
      ReadPiece piece = part;
      piece.data = view.slice(axis, begin, end);
      piece.offset = part_offset + begin * unit_bytes;
      piece.row_elements = flat ? piece.data.dim(1) : columns;
      piece.num_bytes =
          ((piece.data.dim(0) - 1) * piece.row_elements + piece.data.dim(1)) * element_bytes;
      if (!flat) piece.first_row += begin;
      plan_.num_bytes += file_bytes(piece);
      plan_.pieces.push_back(piece);
    }
  }

  // Units of a piece. Where rows are dequantised, whole blocks of scales, so that few rows of scales are read twice.
  static int64_t step_of(const ReadPiece& part, int64_t unit_bytes) {
    const int64_t step = std::max<int64_t>(1, kPieceBytes / unit_bytes);
    return part.dequantize_with == nullptr ? step : num_scale_blocks(step) * kScaleBlock;
  }

  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  ProblemList problems_;
  int64_t num_problems_ = 0;
  int64_t num_plain_ = 0;    // of them, matrices in bf16, f16 or f32 where the model needs FP8
  std::string first_plain_;  // what the first of those is
  std::unordered_set<std::string_view> used_;
  ReadPlan plan_;
};

}  // namespace

int64_t first_scale_row(const ReadPiece& piece) { return piece.first_row / kScaleBlock; }

int64_t num_scale_rows(const ReadPiece& piece) {
  return num_scale_blocks(piece.first_row + piece.data.dim(0)) - first_scale_row(piece);
}

int64_t file_bytes(const ReadPiece& piece) {
  if (piece.dequantize_with == nullptr) return piece.num_bytes;
  const int64_t scales = num_scale_rows(piece) * piece.dequantize_with->shape[1];
  return piece.num_bytes + scales * tensor::dtype_bytes(DType::kF32);
}

void check_parameter(const Parameter& parameter) {
  const Tensor &data = parameter.data, &scale = parameter.scale;
  if (parameter.held_elsewhere) return;
  FATHOM_CHECK(data.rank() == 1 || data.rank() == 2,
               parameter.name << " is " << data.describe() << ", rank must be 1 or 2");
  const DType dtype = data.dtype();
  FATHOM_CHECK(dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF8E4M3,
               parameter.name << " is " << data.describe());
  FATHOM_CHECK((dtype == DType::kF8E4M3) == !scale.is_null(),
               parameter.name << " is " << data.describe() << ", scales go with f8_e4m3 only");
  if (scale.is_null()) return;
  FATHOM_CHECK(data.rank() == 2 && scale.rank() == 2 && scale.dtype() == DType::kF32 &&
                   scale.dim(0) == num_scale_blocks(data.dim(0)) &&
                   scale.dim(1) == num_scale_blocks(data.dim(1)),
               parameter.name << " is " << data.describe() << " with scales " << scale.describe());
  const Shard& shard = parameter.shard;
  FATHOM_CHECK(shard.is_whole() || data.dim(shard.axis) % kScaleBlock == 0,
               parameter.name << " is cut inside a block of scales: " << data.describe());
}

Result<ReadPlan> plan_reads(const Checkpoint& checkpoint, const std::vector<Parameter>& parameters,
                            const LoadOptions& options) {
  Planner planner(checkpoint, options);
  for (const Parameter& parameter : parameters) {
    check_parameter(parameter);
    planner.add(parameter);
  }
  planner.refuse_unexpected();
  return std::move(planner).finish();
}

}  // namespace fathom::weights
