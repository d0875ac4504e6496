#include "weights/read_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "ops/linear.h"
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

// A rank's part of a tensor of a file: rows and columns of it, those of a tensor of rank 1 being columns of one row.
struct Part {
  Tensor data = {};
  int64_t first_row = 0, first_column = 0;
  int64_t values = 1;  // of `data` in a column

  int64_t num_rows() const { return data.rank() == 1 ? 1 : data.dim(0); }
  int64_t num_columns() const { return data.dim(data.rank() - 1) / values; }
  bool same_rows(const Part& other) const {
    return first_row == other.first_row && num_rows() == other.num_rows();
  }
};

bool is_quantised(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kI8 || tensor::holds_pairs(dtype);
}
bool is_quantised(const TensorInfo& info) {
  return is_quantised(info.dtype) && info.shape.size() == 2;
}

// "FP8", as people call it.
const char* family_of(DType dtype) {
  return dtype == DType::kI8     ? "INT8"
         : dtype == DType::kI4x2 ? "INT4"
         : dtype == DType::kU4x2 ? "AWQ"
                                 : "FP8";
}

// Pairs of 4 bits, which are to be dequantised.
bool is_packed(const Parameter& parameter, const TensorInfo& info) {
  if (info.dtype != DType::kI8 || info.shape.size() != 2 || parameter.data.rank() != 2 ||
      is_quantised(parameter.data.dtype()))
    return false;
  const std::vector<int64_t> whole = whole_shape(parameter);
  return whole[0] == info.shape[0] && whole[1] == 2 * info.shape[1];
}

// `unit`: entries of the whole that an entry of `data` stands for, kScaleBlock for scales of blocks.
Part part_of(const Tensor& data, const Parameter& parameter, int64_t unit) {
  const Shard& shard = parameter.shard;
  Part part{.data = data};
  if (shard.is_whole()) return part;
  const int64_t first = shard.rank * parameter.data.dim(shard.axis) / unit;
  (shard.axis == data.rank() - 1 ? part.first_column : part.first_row) = first;
  return part;
}

// Of pairs, which the parameter holds as values.
Part packed_part_of(const Parameter& parameter) {
  Part part = part_of(parameter.data, parameter, parameter.shard.axis == 1 ? 2 : 1);
  part.values = 2;
  return part;
}

// Scales of channels are whole in all parts of columns.
Part scale_part_of(const Parameter& parameter) {
  if (parameter.data.dtype() == DType::kI4x2)
    return part_of(parameter.scale, parameter, parameter.shard.axis == 1 ? kScaleBlock / 2 : 1);
  if (!has_channel_scales(parameter)) return part_of(parameter.scale, parameter, kScaleBlock);
  if (parameter.shard.axis == 1) return {.data = parameter.scale};
  return part_of(parameter.scale, parameter, 1);
}

// Channels of a group of a u4x2 parameter.
int64_t zero_point_channels(const Parameter& parameter) {
  return ops::zero_point_channels({.data = parameter.data, .scale = parameter.scale});
}

void check_zero_points(const Parameter& parameter) {
  const Tensor &data = parameter.data, &scale = parameter.scale;
  FATHOM_CHECK(data.rank() == 2 && scale.rank() == 2 && scale.dtype() == DType::kF16 &&
                   scale.dim(0) == data.dim(0) && scale.dim(1) >= 2 &&
                   ops::is_zero_point_group(zero_point_channels(parameter)),
               parameter.name << " is " << data.describe() << " with scales " << scale.describe());
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const LoadOptions& options)
      : checkpoint_(checkpoint), options_(options) {}

  // All ranks' parameters of one name.
  void add(const std::vector<const Parameter*>& of_ranks) {
    const Parameter& first = *of_ranks.front();
    const TensorInfo* info = checkpoint_.find(first.name);
    const std::optional<AwqTensors> awq =
        info == nullptr ? find_awq(checkpoint_, first.name) : std::nullopt;
    std::vector<const Parameter*> held;
    for (const Parameter* parameter : of_ranks) {
      if (parameter->held_elsewhere) continue;
      held.push_back(parameter);
      if (parameter->found != nullptr) *parameter->found = info != nullptr || awq;
    }
    if (held.empty()) return leave_to_others(first);
    const Parameter& parameter = *held.front();
    if (awq) return add_awq(*awq, held);
    if (info == nullptr) {
      if (!parameter.optional) {
        add_problem("missing", "tensor " + json::shown_text(name_of(parameter)) + " " +
                                   wanted_shape(parameter));
      }
      return;
    }
    used_.insert(info->name);
    if (parameter.data.dtype() == DType::kU4x2) return refuse_plain(parameter, *info);
    const TensorInfo* scale = find_scale(parameter, *info);
    if (!check_type(parameter, *info)) return;
    const bool packed = is_packed(parameter, *info);
    if (packed || parameter.data.dtype() == DType::kI4x2)
      mark_used(input_scale_name(parameter.name));
    std::vector<Part> parts, scales;
    for (const Parameter* each : held) {
      parts.push_back(packed ? packed_part_of(*each) : part_of(each->data, *each, 1));
      if (!each->scale.is_null()) scales.push_back(scale_part_of(*each));
    }
    if (is_quantised(parameter.data.dtype())) {
      cut({.source = info}, parts);
      if (scale != nullptr) cut({.source = scale, .is_scale = true}, scales);
    } else {
      cut({.source = info, .dequantize_with = scale, .is_packed = packed}, parts);
    }
  }

  void refuse_unexpected() {
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      if (used_.contains(tensor.name) || is_ignored(tensor.name)) continue;
      add_problem("unexpected", "tensor " + json::shown_text(tensor.name) + " " + describe(tensor));
    }
  }

  Result<ReadPlan> finish() && {
    if (num_plain_ > 0 && num_plain_ == num_problems_ && !holds_quantised()) {
      return invalid_argument(
          checkpoint_.directory() + ": config.json has an " + family_of(wanted_) +
          " quantization_config, but " + first_plain_ + ", as are all of the " +
          std::to_string(num_plain_) +
          " matrices that it speaks of: remove quantization_config from config.json");
    }
    if (problems_.any()) {
      const std::string family = family_of(wanted_);
      const std::string advice = num_plain_ > 0
                                     ? ", some of whose " + family + " matrices are not " + family +
                                           " here (--dequantize reads both)"
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
  // What a checkpoint that fits has.
  static std::string name_of(const Parameter& parameter) {
    return parameter.data.dtype() == DType::kU4x2 ? awq_names(parameter.name).weight
                                                  : parameter.name;
  }

  // A matrix as it is where the model needs AWQ's tensors.
  void refuse_plain(const Parameter& parameter, const TensorInfo& info) {
    const std::string where = "tensor " + json::shown_text(info.name) + " is " + describe(info);
    note_plain(DType::kU4x2, where);
    add_problem("wrong dtype", where + ", the model needs " +
                                   json::shown_text(awq_names(parameter.name).weight) +
                                   " with its qzeros and scales");
  }

  void note_plain(DType wanted, const std::string& where) {
    if (num_plain_++ > 0) return;
    first_plain_ = where;
    wanted_ = wanted;
  }

  void add_awq(const AwqTensors& awq, const std::vector<const Parameter*>& held) {
    const Parameter& parameter = *held.front();
    for (const TensorInfo* tensor : {awq.weight, awq.zeros, awq.scales})
      if (tensor != nullptr) used_.insert(tensor->name);
    if (!check_awq(awq, parameter)) return;
    ReadPiece data{.source = awq.weight, .awq = awq},
        scale{.source = awq.scales, .is_scale = true, .awq = awq};
    for (const Parameter* each : held) {
      const std::vector<int64_t> begin = first_of(*each);
      const auto target = [&](const Tensor& to) {
        return ReadTarget{.data = to, .first_column = begin[1], .first_row = begin[0]};
      };
      data.targets.push_back(target(each->data));
      if (!each->scale.is_null()) scale.targets.push_back(target(each->scale));
    }
    add_whole(std::move(data));
    if (!scale.targets.empty()) add_whole(std::move(scale));
  }

  bool check_awq(const AwqTensors& awq, const Parameter& parameter) {
    const std::string of =
        " for " + json::shown_text(awq.weight->name) + ", which is " + describe(*awq.weight);
    const AwqNames names = awq_names(parameter.name);
    for (const auto& [tensor, name] :
         {std::pair{awq.zeros, &names.zeros}, {awq.scales, &names.scales}}) {
      if (tensor != nullptr) continue;
      add_problem("missing scale", "tensor " + json::shown_text(*name) + of);
      return false;
    }
    const DType to = parameter.data.dtype();
    if (parameter.data.rank() != 2 || (is_quantised(to) && to != DType::kU4x2)) {
      add_problem("wrong dtype", "tensor " + json::shown_text(awq.weight->name) + " is AWQ's " +
                                     describe(*awq.weight) + ", the model needs " +
                                     std::string(tensor::dtype_name(to)) + " " +
                                     wanted_shape(parameter));
      return false;
    }
    const std::vector<int64_t> whole = whole_shape(parameter);
    const int64_t in = to == DType::kU4x2 ? 2 * whole[1] : whole[1];
    const int64_t channels = to == DType::kU4x2 ? zero_point_channels(parameter) : 0;
    const std::string problem = awq_problem(awq, whole[0], in, channels);
    if (!problem.empty()) add_problem("wrong shape", problem);
    return problem.empty();
  }

  // Of the matrix, the first row and column that a parameter's memory holds.
  static std::vector<int64_t> first_of(const Parameter& parameter) {
    const Shard& shard = parameter.shard;
    const int64_t values = parameter.data.dtype() == DType::kU4x2 ? 2 : 1;
    const int64_t row = shard.axis == 0 ? shard.rank * parameter.data.dim(0) : 0;
    return {row, shard.axis == 1 ? shard.rank * values * parameter.data.dim(1) : 0};
  }

  // A piece of all that its source has.
  void add_whole(ReadPiece piece) {
    piece.offset = piece.source->offset;
    piece.num_bytes = piece.source->num_bytes;
    piece.row_elements = piece.source->shape.back();
    plan_.num_bytes += file_bytes(piece);
    plan_.pieces.push_back(std::move(piece));
  }

  void add_problem(std::string_view kind, const std::string& what) {
    problems_.add(kind, what);
    ++num_problems_;
  }

  bool holds_quantised() const {
    return std::any_of(checkpoint_.tensors().begin(), checkpoint_.tensors().end(),
                       [](const TensorInfo& tensor) { return is_quantised(tensor.dtype); });
  }

  void leave_to_others(const Parameter& parameter) {
    const AwqNames awq = awq_names(parameter.name);
    for (const std::string& name :
         {parameter.name, scale_name(parameter.name, false), scale_name(parameter.name, true),
          input_scale_name(parameter.name), awq.weight, awq.zeros, awq.scales})
      mark_used(name);
  }

  void mark_used(const std::string& name) {
    const TensorInfo* info = checkpoint_.find(name);
    if (info != nullptr) used_.insert(info->name);
  }

  bool is_ignored(const std::string& name) const {
    if (name.ends_with(kRecomputedSuffix)) return true;
    return std::any_of(options_.ignored_prefixes.begin(), options_.ignored_prefixes.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  }

  bool check_type(const Parameter& parameter, const TensorInfo& info) {
    const std::string where = "tensor " + json::shown_text(info.name) + " is " + describe(info);
    if (info.shape != whole_shape(parameter) && !is_packed(parameter, info)) {
      add_problem("wrong shape", where + ", the model needs " + wanted_shape(parameter));
      return false;
    }
    const DType to = parameter.data.dtype();
    if (is_quantised(to) ? same_bytes(info.dtype, to)
                         : (is_quantised(info) || can_convert(info.dtype, to))) {
      return true;
    }
    if (is_quantised(to) && can_convert(info.dtype, DType::kBf16)) note_plain(to, where);
    const std::string needed =
        is_quantised(to) ? std::string(tensor::dtype_name(to)) : "f32, bf16 or f16";
    add_problem("wrong dtype", where + ", the model needs " + needed);
    return false;
  }

  // Where the scales of a tensor may be: where its parameter wants them, or, where it is dequantised, in either place.
  const TensorInfo* scale_of(const Parameter& parameter, const TensorInfo& info) const {
    const bool keeps = is_quantised(parameter.data.dtype());
    const TensorInfo* const of_blocks = checkpoint_.find(scale_name(info.name, false));
    if (keeps ? !has_channel_scales(parameter) : of_blocks != nullptr) return of_blocks;
    const TensorInfo* const of_channels = checkpoint_.find(scale_name(info.name, true));
    return info.dtype == DType::kF8E4M3 ? of_blocks : of_channels;
  }

  // Of the scales of a tensor.
  static std::vector<int64_t> scale_shape(const Parameter& parameter, const TensorInfo& info,
                                          bool of_channels) {
    if (of_channels) return {info.shape[0], 1};
    if (parameter.data.dtype() == DType::kI4x2 || is_packed(parameter, info))
      return {info.shape[0], num_scale_blocks(2 * info.shape[1])};
    return {num_scale_blocks(info.shape[0]), num_scale_blocks(info.shape[1])};
  }

  // The scales of a quantised tensor; problems for missing, misshapen and superfluous ones.
  const TensorInfo* find_scale(const Parameter& parameter, const TensorInfo& info) {
    const TensorInfo* scale = scale_of(parameter, info);
    if (scale != nullptr) used_.insert(scale->name);
    const std::string of = " for " + json::shown_text(info.name) + ", which is " + describe(info);
    if (!is_quantised(info)) {
      if (scale != nullptr)
        add_problem("extra scale", "tensor " + json::shown_text(scale->name) + of);
      return nullptr;
    }
    if (scale == nullptr) {
      const std::string name = scale_name(info.name, has_channel_scales(parameter));
      add_problem("missing scale", "tensor " + json::shown_text(name) + of);
      return nullptr;
    }
    const bool of_channels = scale->name == scale_name(info.name, true);
    const std::vector<int64_t> shape = scale_shape(parameter, info, of_channels);
    const bool of_rows = shape[0] == info.shape[0];
    const bool right_type =
        scale->dtype == DType::kF32 || (of_rows && can_convert(scale->dtype, DType::kF32));
    if (right_type && scale->shape == shape) return scale;
    add_problem("wrong scale", "tensor " + json::shown_text(scale->name) + " is " +
                                   describe(*scale) + ", must be f32[" + std::to_string(shape[0]) +
                                   ", " + std::to_string(shape[1]) + "]");
    return nullptr;
  }

  // Parts of the same rows are read together, others apart: no row is in two of them.
  void cut(const ReadPiece& whole, const std::vector<Part>& parts) {
    std::vector<std::vector<Part>> groups;
    for (const Part& part : parts) {
      const auto group = std::find_if(
          groups.begin(), groups.end(),
          [&](const std::vector<Part>& other) { return other.front().same_rows(part); });
      if (group == groups.end())
        groups.push_back({part});
      else
        group->push_back(part);
    }
    for (const std::vector<Part>& group : groups) cut_rows(whole, group);
  }

  // Cuts what parts of the same rows hold into pieces of about kPieceBytes: by elements where it is one range of the
  // file and of memory, else by rows.
  void cut_rows(const ReadPiece& whole, const std::vector<Part>& parts) {
    const int64_t columns = whole.source->shape.back();
    const Part& first = parts.front();
    ReadPiece range = whole;
    range.first_row = first.first_row;
    range.first_column = first.first_column;
    int64_t end_column = 0;
    bool flat = whole.dequantize_with == nullptr;
    for (const Part& part : parts) {
      range.first_column = std::min(range.first_column, part.first_column);
      end_column = std::max(end_column, part.first_column + part.num_columns());
      flat = flat && part.data.is_contiguous() && part.first_column == first.first_column &&
             part.num_columns() == first.num_columns() &&
             (part.num_rows() == 1 || part.num_columns() == columns);
    }
    const int64_t element_bytes = tensor::dtype_bytes(whole.source->dtype);
    const int64_t range_offset =
        whole.source->offset + (range.first_row * columns + range.first_column) * element_bytes;
    const int64_t length = flat ? first.data.num_elements() : first.num_rows();
    const int64_t unit_bytes = flat ? element_bytes : element_bytes * columns;
    const int64_t step = step_of(range, unit_bytes);
    for (int64_t begin = 0; begin < length; begin += step) {
      const int64_t end = std::min(length, begin + step);
      ReadPiece piece = range;
      for (const Part& part : parts) piece.targets.push_back(target_of(part, begin, end, flat));
      piece.offset = range_offset + begin * unit_bytes;
      piece.row_elements = flat ? end - begin : columns;
      const int64_t last_row = flat ? end - begin : end_column - range.first_column;
      piece.num_bytes = ((piece.num_rows() - 1) * piece.row_elements + last_row) * element_bytes;
      if (!flat) piece.first_row += begin;
      plan_.num_bytes += file_bytes(piece);
      plan_.pieces.push_back(std::move(piece));
    }
  }

  // What [begin, end) of a part, in elements where it is flat and else in rows, fills.
  static ReadTarget target_of(const Part& part, int64_t begin, int64_t end, bool flat) {
    Tensor rows = part.data;
    if (flat || rows.rank() == 1) rows = rows.reshape({1, rows.num_elements()});
    return {.data = rows.slice(flat ? 1 : 0, begin, end), .first_column = part.first_column};
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
  int64_t num_plain_ =
      0;  // of them, matrices in bf16, f16 or f32 where the model needs quantised ones
  DType wanted_ = DType::kF8E4M3;  // of those
  std::string first_plain_;        // what the first of those is
  std::unordered_set<std::string_view> used_;
  ReadPlan plan_;
};

// The latest way in which a list wants a tensor.
struct Way {
  int number = -1;
  Shard last{};

  int number_of(const Shard& shard) {
    const bool is_next_part =
        number >= 0 && shard.axis == last.axis && shard.size == last.size && shard.rank > last.rank;
    last = shard;
    return is_next_part ? number : ++number;
  }
};

}  // namespace

int64_t rows_per_scale(const ReadPiece& piece) {
  const TensorInfo &of = *piece.source, &scale = *piece.dequantize_with;
  if (piece.is_packed) return 1;
  return are_of_channels(of.dtype, of.shape[0], scale.shape[0], scale.shape[1]) ? 1 : kScaleBlock;
}

int64_t first_scale_row(const ReadPiece& piece) { return piece.first_row / rows_per_scale(piece); }

int64_t num_scale_rows(const ReadPiece& piece) {
  const int64_t rows = rows_per_scale(piece);
  return (piece.first_row + piece.num_rows() + rows - 1) / rows - first_scale_row(piece);
}

bool reads_awq_scales(const ReadPiece& piece) {
  return piece.is_scale || piece.targets.front().data.dtype() != DType::kU4x2;
}

int64_t file_bytes(const ReadPiece& piece) {
  if (piece.awq) {
    const int64_t scales = piece.is_scale ? 0 : piece.awq->scales->num_bytes;
    return piece.num_bytes + (reads_awq_scales(piece) ? scales + piece.awq->zeros->num_bytes : 0);
  }
  if (piece.dequantize_with == nullptr) return piece.num_bytes;
  const int64_t scales = num_scale_rows(piece) * piece.dequantize_with->shape[1];
  return piece.num_bytes + scales * tensor::dtype_bytes(piece.dequantize_with->dtype);
}

void check_parameter(const Parameter& parameter) {
  const Tensor &data = parameter.data, &scale = parameter.scale;
  if (parameter.held_elsewhere) return;
  FATHOM_CHECK(data.rank() == 1 || data.rank() == 2,
               parameter.name << " is " << data.describe() << ", rank must be 1 or 2");
  const DType dtype = data.dtype();
  FATHOM_CHECK(dtype == DType::kF32 || dtype == DType::kBf16 || is_quantised(dtype),
               parameter.name << " is " << data.describe());
  FATHOM_CHECK(is_quantised(dtype) == !scale.is_null(),
               parameter.name << " is " << data.describe()
                              << ", scales go with f8_e4m3, i8, i4x2 and u4x2 only");
  if (scale.is_null()) return;
  if (dtype == DType::kU4x2) return check_zero_points(parameter);
  if (has_channel_scales(parameter) && scale.dtype() == DType::kF32) return;
  const bool of_groups = dtype == DType::kI4x2;
  const int64_t values = of_groups ? 2 : 1;  // in a column
  FATHOM_CHECK(data.rank() == 2 && scale.rank() == 2 && scale.dtype() == DType::kF32 &&
                   scale.dim(0) == (of_groups ? data.dim(0) : num_scale_blocks(data.dim(0))) &&
                   scale.dim(1) == num_scale_blocks(values * data.dim(1)),
               parameter.name << " is " << data.describe() << " with scales " << scale.describe());
  const Shard& shard = parameter.shard;
  if (shard.is_whole() || (of_groups && shard.axis == 0)) return;
  const int64_t length = data.dim(shard.axis) * (shard.axis == 1 ? values : 1);
  FATHOM_CHECK(fits_scale_blocks(length),
               parameter.name << " is cut across blocks of scales: " << data.describe());
}

Result<ReadPlan> plan_reads(const Checkpoint& checkpoint, const ParameterLists& lists,
                            const LoadOptions& options) {
  // In the order of the first list; another may have other names first where it holds other experts. A list may want a
  // tensor several times, each in its own way: those are matched with the others' by their number. Several parts of one
  // division are one way.
  std::vector<std::vector<const Parameter*>> wanted;
  std::map<std::pair<std::string_view, int>, size_t> place;
  for (const std::vector<Parameter>* list : lists) {
    std::unordered_map<std::string_view, Way> ways;
    for (const Parameter& parameter : *list) {
      check_parameter(parameter);
      const std::pair<std::string_view, int> key(parameter.name,
                                                 ways[parameter.name].number_of(parameter.shard));
      const auto [at, is_new] = place.try_emplace(key, wanted.size());
      if (is_new) wanted.emplace_back();
      wanted[at->second].push_back(&parameter);
    }
  }
  Planner planner(checkpoint, options);
  for (const std::vector<const Parameter*>& of_ranks : wanted) planner.add(of_ranks);
  planner.refuse_unexpected();
  return std::move(planner).finish();
}

}  // namespace fathom::weights
