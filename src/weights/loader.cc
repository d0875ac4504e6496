#include "weights/loader.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "base/json.h"
#include "weights/convert.h"
#include "weights/file.h"
#include "weights/parallel.h"
#include "weights/progress.h"
#include "weights/read_plan.h"

namespace fathom::weights {
namespace {

using tensor::DType;
using tensor::Tensor;

// Memory that grows to the largest piece and is then reused, uninitialised.
class Buffer {
 public:
  char* at_least(int64_t num_bytes) {
    const auto needed = static_cast<size_t>(num_bytes);
    if (needed > size_) {
      bytes_.reset(new char[needed]);
      size_ = needed;
    }
    return bytes_.get();
  }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_ = 0;
};

// What one thread reads into and converts through.
struct Scratch {
  Buffer file_bytes, converted, scales, scale_bytes;
};

// All files of a checkpoint, opened once for all threads.
class OpenFiles {
 public:
  static Result<OpenFiles> open(const Checkpoint& checkpoint) {
    OpenFiles open;
    for (size_t i = 0; i < checkpoint.files().size(); ++i) {
      Result<File> file = File::open(checkpoint.files()[i]);
      if (!file) return file.error();
      const int64_t expected = checkpoint.file_bytes()[i];
      if (file->num_bytes() != expected) {
        return invalid_argument(file->path() + ": has " + std::to_string(file->num_bytes()) +
                                " bytes, had " + std::to_string(expected) +
                                " when its header was read: the file changed");
      }
      open.files_.emplace(checkpoint.files()[i], std::move(*file));
    }
    return open;
  }

  const File& at(const std::string& path) const { return files_.at(path); }

 private:
  std::map<std::string, File> files_;
};

Status check_scales(const TensorInfo& source, const float* values, int64_t first, int64_t count) {
  const float* bad =
      std::find_if_not(values, values + count, [](float v) { return std::isfinite(v) && v > 0; });
  if (bad == values + count) return {};
  const int64_t position = first + (bad - values), columns = source.shape[1];
  return invalid_argument(source.file + ": tensor " + json::shown_text(source.name) + " holds " +
                          std::to_string(*bad) + " at [" + std::to_string(position / columns) +
                          ", " + std::to_string(position % columns) +
                          "], scales must be finite and > 0");
}

class Reader {
 public:
  Reader(const OpenFiles& files, const LoadOptions& options) : files_(files), options_(options) {}

  Status read(const ReadPiece& piece, Scratch& scratch) const {
    if (piece.awq) return read_awq(piece, scratch);
    const File& file = files_.at(piece.source->file);
    const ReadTarget& first = piece.targets.front();
    if (piece.targets.size() == 1 && is_plain_copy(piece, first) && !options_.copy) {
      if (Status read = file.read_at(piece.offset, first.data.data(), piece.num_bytes); !read) {
        return read;
      }
      return check_values(piece, first.data.data());
    }
    char* bytes = scratch.file_bytes.at_least(piece.num_bytes);
    if (Status read = file.read_at(piece.offset, bytes, piece.num_bytes); !read) return read;
    if (Status valid = check_values(piece, bytes); !valid) return valid;
    if (piece.dequantize_with != nullptr) {
      if (Status read = read_scales(piece, scratch); !read) return read;
    }
    for (const ReadTarget& target : piece.targets) fill(piece, target, scratch);
    return {};
  }

 private:
  Result<const char*> read_whole(const TensorInfo& tensor, Buffer& into) const {
    char* const bytes = into.at_least(tensor.num_bytes);
    if (Status read = files_.at(tensor.file).read_at(tensor.offset, bytes, tensor.num_bytes); !read)
      return read.error();
    return bytes;
  }

  Status read_awq(const ReadPiece& piece, Scratch& scratch) const {
    const AwqTensors& tensors = *piece.awq;
    AwqBytes from{.in = tensors.in(), .out = tensors.out(), .channels = tensors.channels()};
    if (!piece.is_scale) {
      const Result<const char*> weight = read_whole(*tensors.weight, scratch.file_bytes);
      if (!weight) return weight.error();
      from.weight = reinterpret_cast<const uint32_t*>(*weight);
    }
    if (reads_awq_scales(piece)) {
      const Result<const char*> zeros = read_whole(*tensors.zeros, scratch.scale_bytes);
      if (!zeros) return zeros.error();
      const Result<const char*> scales = read_whole(*tensors.scales, scratch.scales);
      if (!scales) return scales.error();
      from.zeros = reinterpret_cast<const uint32_t*>(*zeros);
      from.scales = reinterpret_cast<const tensor::F16*>(*scales);
      const int64_t count = tensors.scales->num_bytes / int64_t{sizeof(tensor::F16)};
      if (Status valid = check_scales_of(*tensors.scales, *scales, 0, count); !valid) return valid;
    }
    for (const ReadTarget& target : piece.targets) {
      if (!options_.copy) {
        unpack(piece, target, from, target.data);
        continue;
      }
      char* staged = scratch.converted.at_least(target.data.num_bytes());
      const Tensor staging =
          Tensor::contiguous(staged, target.data.dtype(), {target.data.dim(0), target.data.dim(1)});
      unpack(piece, target, from, staging);
      copy_rows(staging, target.data);
    }
    return {};
  }

  static void unpack(const ReadPiece& piece, const ReadTarget& target, const AwqBytes& from,
                     const Tensor& to) {
    (piece.is_scale ? unpack_awq_scales : unpack_awq)(from, target.first_row, target.first_column,
                                                      to);
  }

  // REQUIRES: scratch holds the piece's bytes and scales.
  void fill(const ReadPiece& piece, const ReadTarget& target, Scratch& scratch) const {
    if (!options_.copy) return convert_rows(piece, target, scratch, target.data);
    if (is_plain_copy(piece, target)) {
      options_.copy(target.data.data(), scratch.file_bytes.at_least(0), piece.num_bytes);
      return;
    }
    const int64_t rows = target.data.dim(0), columns = target.data.dim(1);
    char* staged = scratch.converted.at_least(target.data.num_bytes());
    const Tensor staging = Tensor::contiguous(staged, target.data.dtype(), {rows, columns});
    convert_rows(piece, target, scratch, staging);
    copy_rows(staging, target.data);
  }

  // The piece's bytes are the target's as they are.
  static bool is_plain_copy(const ReadPiece& piece, const ReadTarget& target) {
    return same_bytes(piece.source->dtype, target.data.dtype()) && target.data.is_contiguous() &&
           target.first_column == piece.first_column &&
           (target.data.dim(0) == 1 || piece.row_elements == target.data.dim(1));
  }

  static Status check_values(const ReadPiece& piece, const void* bytes) {
    if (!piece.is_scale) return {};
    const int64_t element_bytes = tensor::dtype_bytes(piece.source->dtype);
    const int64_t first = (piece.offset - piece.source->offset) / element_bytes;
    return check_scales_of(*piece.source, bytes, first, piece.num_bytes / element_bytes);
  }

  // Entries from `first` on.
  static Status check_scales_of(const TensorInfo& source, const void* bytes, int64_t first,
                                int64_t count) {
    if (source.dtype == DType::kF32)
      return check_scales(source, static_cast<const float*>(bytes), first, count);
    std::vector<float> values(static_cast<size_t>(count));
    convert(bytes, source.dtype, values.data(), DType::kF32, count);
    return check_scales(source, values.data(), first, count);
  }

  Status read_scales(const ReadPiece& piece, Scratch& scratch) const {
    const TensorInfo& source = *piece.dequantize_with;
    const int64_t first = first_scale_row(piece) * source.shape[1];
    const int64_t count = num_scale_rows(piece) * source.shape[1];
    const int64_t element_bytes = tensor::dtype_bytes(source.dtype);
    char* bytes = scratch.scale_bytes.at_least(count * element_bytes);
    const int64_t offset = source.offset + first * element_bytes;
    Status read = files_.at(source.file).read_at(offset, bytes, count * element_bytes);
    if (!read) return read;
    auto* const values =
        reinterpret_cast<float*>(scratch.scales.at_least(count * int64_t{sizeof(float)}));
    convert(bytes, source.dtype, values, DType::kF32, count);
    return check_scales(source, values, first, count);
  }

  // From scratch.file_bytes (and scales) to the rows of `out`.
  static void convert_rows(const ReadPiece& piece, const ReadTarget& target, Scratch& scratch,
                           const Tensor& out) {
    const int64_t rows = out.dim(0), columns = out.dim(1);
    const int64_t element_bytes = tensor::dtype_bytes(piece.source->dtype);
    const int64_t source_row_bytes = piece.row_elements * element_bytes;
    const int64_t out_row_bytes = out.stride(0) * tensor::dtype_bytes(out.dtype());
    const char* from =
        scratch.file_bytes.at_least(0) + (target.first_column - piece.first_column) * element_bytes;
    char* to = static_cast<char*>(out.data());
    for (int64_t row = 0; row < rows; ++row, from += source_row_bytes, to += out_row_bytes) {
      if (piece.dequantize_with == nullptr) {
        convert(from, piece.source->dtype, to, out.dtype(), columns);
        continue;
      }
      dequantize_row(piece, target, scratch, {.row = row, .from = from, .to = to});
    }
  }

  struct Row {
    int64_t row = 0;  // of the piece
    const char* from = nullptr;
    char* to = nullptr;
  };

  static void dequantize_row(const ReadPiece& piece, const ReadTarget& target, Scratch& scratch,
                             const Row& row) {
    if (piece.is_packed) {
      return dequantize({.packed = reinterpret_cast<const tensor::I4x2*>(row.from),
                         .scales = reinterpret_cast<const float*>(scratch.scales.at_least(0)) +
                                   row.row * piece.dequantize_with->shape[1],
                         .first = 2 * target.first_column,
                         .count = target.data.dim(1)},
                        row.to, target.data.dtype());
    }
    if (piece.source->dtype == DType::kF8E4M3)
      return dequantize_row_of<tensor::F8E4M3>(piece, target, scratch, row);
    if (rows_per_scale(piece) == kScaleBlock)
      return dequantize_row_of<int8_t>(piece, target, scratch, row);
    const float scale = reinterpret_cast<const float*>(scratch.scales.at_least(0))[row.row];
    dequantize_channel(reinterpret_cast<const int8_t*>(row.from), scale, row.to,
                       target.data.dtype(), target.data.dim(1));
  }

  // A rank's columns may begin inside a block of scales.
  template <class Q>
  static void dequantize_row_of(const ReadPiece& piece, const ReadTarget& target, Scratch& scratch,
                                const Row& row) {
    const auto* source = reinterpret_cast<const Q*>(row.from);
    const tensor::DType dtype = target.data.dtype();
    const int64_t columns = target.data.dim(1);
    const int64_t scale_row = (piece.first_row + row.row) / kScaleBlock - first_scale_row(piece);
    const float* scales = reinterpret_cast<const float*>(scratch.scales.at_least(0)) +
                          scale_row * piece.dequantize_with->shape[1] +
                          target.first_column / kScaleBlock;
    const int64_t in_first_block =
        std::min(columns, kScaleBlock - target.first_column % kScaleBlock);
    dequantize(source, scales, row.to, dtype, in_first_block);
    dequantize(source + in_first_block, scales + 1,
               row.to + in_first_block * tensor::dtype_bytes(dtype), dtype,
               columns - in_first_block);
  }

  void copy_rows(const Tensor& staging, const Tensor& data) const {
    if (data.is_contiguous()) {
      options_.copy(data.data(), staging.data(), staging.num_bytes());
      return;
    }
    const int64_t element_bytes = tensor::dtype_bytes(data.dtype());
    for (int64_t row = 0; row < data.dim(0); ++row) {
      options_.copy(static_cast<char*>(data.data()) + row * data.stride(0) * element_bytes,
                    static_cast<char*>(staging.data()) + row * staging.stride(0) * element_bytes,
                    data.dim(1) * element_bytes);
    }
  }

  const OpenFiles& files_;
  const LoadOptions& options_;
};

}  // namespace

Status load_parameters(const Checkpoint& checkpoint, const std::vector<Parameter>& parameters,
                       const LoadOptions& options) {
  return load_parameters_of_ranks(checkpoint, {&parameters}, options);
}

Status load_parameters_of_ranks(const Checkpoint& checkpoint, const ParameterLists& ranks,
                                const LoadOptions& options) {
  const Result<ReadPlan> plan = plan_reads(checkpoint, ranks, options);
  if (!plan) return plan.error();
  const Result<OpenFiles> files = OpenFiles::open(checkpoint);
  if (!files) return files.error();
  const Reader reader(*files, options);
  Progress progress(options.on_progress, plan->num_bytes);
  std::vector<Scratch> scratch(static_cast<size_t>(std::max(options.num_threads, 1)));
  Status done = run_jobs(plan->pieces.size(), options.num_threads, [&](size_t job, size_t worker) {
    const ReadPiece& piece = plan->pieces[job];
    Status read = reader.read(piece, scratch[worker]);
    if (read) progress.add(file_bytes(piece));
    return read;
  });
  if (done) progress.finish();
  return done;
}

}  // namespace fathom::weights
