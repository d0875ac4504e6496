#include "weights/safetensors.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/lfs_pointer.h"
#include "weights/file.h"

namespace fathom::weights {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr size_t kMaxRank = 8;
constexpr size_t kMaxTensorNameBytes = 512;

struct DTypeName {
  std::string_view name;
  tensor::DType dtype;
};
constexpr DTypeName kDTypes[] = {{"F32", tensor::DType::kF32}, {"BF16", tensor::DType::kBf16},
                                 {"F16", tensor::DType::kF16}, {"F8_E4M3", tensor::DType::kF8E4M3},
                                 {"I64", tensor::DType::kI64}, {"I32", tensor::DType::kI32},
                                 {"I8", tensor::DType::kI8},   {"U8", tensor::DType::kU8},
                                 {"U64", tensor::DType::kU64}};

std::optional<tensor::DType> parse_dtype(const json::Value& value) {
  if (!value.is_string()) return std::nullopt;
  for (const DTypeName& known : kDTypes) {
    if (value.get_ref<const std::string&>() == known.name) return known.dtype;
  }
  return std::nullopt;
}

// A number of elements or bytes: an integer in [0, 2^63).
std::optional<int64_t> parse_size(const json::Value& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto size = value.get<uint64_t>();
  if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(size);
}

Result<std::vector<int64_t>> parse_shape(const json::Value& value) {
  if (!value.is_array())
    return invalid_argument("shape is " + json::shown(value) + ", must be a list");
  if (value.size() > kMaxRank) {
    return invalid_argument("shape has " + std::to_string(value.size()) + " dimensions, at most " +
                            std::to_string(kMaxRank) + " are allowed");
  }
  std::vector<int64_t> shape;
  for (const json::Value& item : value) {
    const std::optional<int64_t> dim = parse_size(item);
    if (!dim || *dim < 1) {
      return invalid_argument("shape holds " + json::shown(item) +
                              ", dimensions must be integers >= 1");
    }
    shape.push_back(*dim);
  }
  return shape;
}

// Bytes of a tensor, or nothing when they don't fit 63 bits.
std::optional<int64_t> checked_bytes(const std::vector<int64_t>& shape, tensor::DType dtype) {
  int64_t bytes = tensor::dtype_bytes(dtype);
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

// Reads dtype and shape; any other key than the format's three is refused.
Status parse_type(const json::Value& entry, TensorInfo& tensor) {
  if (!entry.is_object())
    return invalid_argument("is " + json::shown(entry) + ", must be an object");
  for (const auto& member : entry.items()) {
    const std::string& key = member.key();
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return invalid_argument("unknown key " + json::shown_text(key) +
                              ", must be dtype, shape or data_offsets");
    }
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) return invalid_argument(std::string(key) + " is missing");
  }
  const std::optional<tensor::DType> dtype = parse_dtype(entry["dtype"]);
  if (!dtype) {
    return invalid_argument("dtype is " + json::shown(entry["dtype"]) +
                            ", must be F32, BF16, F16, F8_E4M3, I64, I32, I8, U8 or U64");
  }
  tensor.dtype = *dtype;
  Result<std::vector<int64_t>> shape = parse_shape(entry["shape"]);
  if (!shape) return shape.error();
  tensor.shape = std::move(*shape);
  return {};
}

// Reads data_offsets, relative to the data section, and compares them with dtype and shape.
Status parse_range(const json::Value& offsets, int64_t data_bytes, TensorInfo& tensor) {
  const bool is_pair = offsets.is_array() && offsets.size() == 2;
  const std::optional<int64_t> begin = is_pair ? parse_size(offsets[0]) : std::nullopt;
  const std::optional<int64_t> end = is_pair ? parse_size(offsets[1]) : std::nullopt;
  const std::string named = "data_offsets " + json::shown(offsets);
  if (!begin || !end) return invalid_argument(named + " must be two integers >= 0");
  if (*begin > *end) return invalid_argument(named + " must not go backwards");
  if (*end > data_bytes) {
    return invalid_argument(named + " end past the data, which has " + std::to_string(data_bytes) +
                            " bytes");
  }
  const std::optional<int64_t> needed = checked_bytes(tensor.shape, tensor.dtype);
  if (!needed) {
    return invalid_argument(describe(tensor) + " has more bytes than 63 bits can count");
  }
  if (*end - *begin != *needed) {
    return invalid_argument(named + " hold " + std::to_string(*end - *begin) + " bytes, " +
                            describe(tensor) + " needs " + std::to_string(*needed));
  }
  tensor.offset = *begin;
  tensor.num_bytes = *needed;
  return {};
}

Status check_metadata(const json::Value& metadata) {
  if (!metadata.is_object()) {
    return invalid_argument("__metadata__ is " + json::shown(metadata) +
                            ", must be an object of strings");
  }
  for (const auto& member : metadata.items()) {
    if (member.value().is_string()) continue;
    return invalid_argument("__metadata__ holds " + json::shown(member.value()) + " for " +
                            json::shown_text(member.key()) + ", must be a string");
  }
  return {};
}

// The tensors, sorted by offset, must cover [0, data_bytes) without gap or overlap.
Status check_tiling(const std::vector<TensorInfo>& tensors, int64_t data_bytes) {
  int64_t position = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != position) {
      const bool overlap = tensor.offset < position;
      return invalid_argument(
          "tensor " + json::shown_text(tensor.name) + ": starts at byte " +
          std::to_string(tensor.offset) + " of the data, " +
          (overlap ? "inside the tensor before it, which ends at " : "which leaves a hole after ") +
          std::to_string(position));
    }
    position += tensor.num_bytes;
  }
  if (position != data_bytes) {
    return invalid_argument("the data has " + std::to_string(data_bytes) +
                            " bytes, the tensors take " + std::to_string(position));
  }
  return {};
}

Result<std::vector<TensorInfo>> parse_tensors(const json::Value& root, int64_t data_bytes) {
  if (!root.is_object())
    return invalid_argument("header is " + json::shown(root) + ", must be an object");
  std::vector<TensorInfo> tensors;
  tensors.reserve(root.size());
  for (const auto& member : root.items()) {
    if (member.key() == "__metadata__") {
      if (Status valid = check_metadata(member.value()); !valid) return valid.error();
      continue;
    }
    TensorInfo tensor;
    tensor.name = member.key();
    const std::string where = "tensor " + json::shown_text(tensor.name) + ": ";
    if (tensor.name.empty() || tensor.name.size() > kMaxTensorNameBytes) {
      return invalid_argument(where + "the name must have 1 to " +
                              std::to_string(kMaxTensorNameBytes) + " bytes");
    }
    Status valid = parse_type(member.value(), tensor);
    if (valid) valid = parse_range(member.value()["data_offsets"], data_bytes, tensor);
    if (!valid) return invalid_argument(where + valid.error().message);
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.offset < b.offset; });
  if (Status tiled = check_tiling(tensors, data_bytes); !tiled) return tiled.error();
  return tensors;
}

// The eight bytes that should be a length are asked first: no header is so long.
Result<bool> holds_lfs_pointer(const File& file, uint64_t header_bytes) {
  std::string beginning(kLfsPointerPrefixBytes, '\0');
  const auto length = static_cast<int64_t>(beginning.size());
  if (header_bytes <= uint64_t{kMaxHeaderBytes} || file.num_bytes() < length) return false;
  if (Status read = file.read_at(0, beginning.data(), length); !read) return read.error();
  return is_lfs_pointer(beginning);
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         int64_t data_start, int64_t data_bytes,
                                                         const std::string& file) {
  const auto in_file = [&](const std::string& message) {
    return invalid_argument(file + ": " + message);
  };
  if (header.empty() || header.front() != '{') return in_file("header must begin with {");
  const Result<json::Value> root =
      json::parse(header, {.max_depth = 3, .max_bytes = kMaxHeaderBytes});
  if (!root) return in_file("header: " + root.error().message);
  Result<std::vector<TensorInfo>> tensors = parse_tensors(*root, data_bytes);
  if (!tensors) return in_file(tensors.error().message);
  for (TensorInfo& tensor : *tensors) {
    tensor.file = file;
    tensor.offset += data_start;
  }
  return tensors;
}

Result<std::vector<TensorInfo>> read_safetensors_header(const std::string& path) {
  const Result<File> file = File::open(path);
  if (!file) return file.error();
  return read_safetensors_header(*file);
}

Result<std::vector<TensorInfo>> read_safetensors_header(const File& file) {
  const std::string& path = file.path();
  const int64_t file_bytes = file.num_bytes();
  if (file_bytes < kLengthBytes) {
    return invalid_argument(path + ": has " + std::to_string(file_bytes) +
                            " bytes, a safetensors file begins with a header length of 8");
  }
  unsigned char prefix[kLengthBytes];
  if (Status read = file.read_at(0, prefix, kLengthBytes); !read) return read.error();
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) header_bytes |= uint64_t{prefix[i]} << (8 * i);
  const auto available = static_cast<uint64_t>(file_bytes - kLengthBytes);
  const Result<bool> is_pointer = holds_lfs_pointer(file, header_bytes);
  if (!is_pointer) return is_pointer.error();
  if (*is_pointer) return lfs_pointer_error(path);
  if (header_bytes > available || header_bytes > uint64_t{kMaxHeaderBytes}) {
    return invalid_argument(path + ": header length is " + std::to_string(header_bytes) +
                            ", must be at most " + std::to_string(kMaxHeaderBytes) + " and the " +
                            std::to_string(available) + " bytes that follow it");
  }
  std::string header(header_bytes, '\0');
  const auto length = static_cast<int64_t>(header_bytes);
  if (Status read = file.read_at(kLengthBytes, header.data(), length); !read) return read.error();
  const int64_t data_start = kLengthBytes + length;
  return parse_safetensors_header(header, data_start, file_bytes - data_start, path);
}

std::string describe(const TensorInfo& tensor) {
  std::string text(tensor::dtype_name(tensor.dtype));
  text += "[";
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(tensor.shape[axis]);
  }
  return text + "]";
}

}  // namespace fathom::weights
