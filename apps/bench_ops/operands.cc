#include "apps/bench_ops/operands.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>

#include "base/rng.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// A prime: experts of a power-of-two size do not repeat one another.
constexpr int64_t kPieceElements = 1'048'583;
constexpr int64_t kSlabBytes = int64_t{32} << 20;
// Well inside what e4m3 holds, and all that i8 and i4x2 do.
constexpr float kF8Range = 240, kI8Range = 127, kI4Range = 7;
// Of AWQ; published checkpoints of the family have groups of 64.
constexpr int64_t kZeroPointChannels = 64;

template <class T>
void fill(void* data, float low, float high) {
  T* out = static_cast<T*>(data);
  for (int64_t i = 0; i < kPieceElements; i += 4) {
    const auto words = philox(1, 0, static_cast<uint64_t>(i));
    for (int64_t j = i; j < std::min(i + 4, kPieceElements); ++j) {
      const float value = low + (high - low) * uniform(words[static_cast<size_t>(j % 4)]);
      if constexpr (std::is_integral_v<T>) {
        out[j] = static_cast<T>(std::lround(value));
      } else {
        out[j] = tensor::from_float<T>(value);
      }
    }
  }
}

void fill_piece(DType dtype, void* data, float low, float high) {
  if (dtype == DType::kF32) return fill<float>(data, low, high);
  if (dtype == DType::kBf16) return fill<tensor::Bf16>(data, low, high);
  if (dtype == DType::kI8) return fill<int8_t>(data, low, high);
  if (dtype == DType::kF16) return fill<tensor::F16>(data, low, high);
  if (tensor::holds_pairs(dtype)) return fill<uint8_t>(data, 0, 255);  // all pairs
  FATHOM_CHECK(dtype == DType::kF8E4M3, "no random values of " << tensor::dtype_name(dtype));
  fill<tensor::F8E4M3>(data, low, high);
}

// 2^n near 1 / sqrt(in): few different pieces serve all matrices.
float deviation_of(int64_t in) {
  return std::exp2(std::round(-0.5f * std::log2(static_cast<float>(in))));
}

}  // namespace

RandomPieces::~RandomPieces() {
  for (const auto& [key, data] : pieces_) backend_.deallocate_host(data);
}

RandomPieces::Piece RandomPieces::get(DType dtype, float low, float high) {
  void*& data = pieces_[{.dtype = dtype, .low = low, .high = high}];
  if (data == nullptr) {
    data = backend_.allocate_host(kPieceElements * tensor::dtype_bytes(dtype));
    if (data == nullptr) throw StartupError("no host memory for random values");
    fill_piece(dtype, data, low, high);
  }
  return {.data = static_cast<const std::byte*>(data), .num_elements = kPieceElements};
}

Tensor Operands::empty(DType dtype, std::initializer_list<int64_t> shape) {
  const int64_t bytes = Tensor::contiguous(nullptr, dtype, shape).num_bytes();
  const int64_t padded = bytes + tensor::Arena::kAlignmentBytes;
  if (padded > room_bytes_) {
    const int64_t slab_bytes = std::max(padded, kSlabBytes);
    std::optional<ops::DeviceBuffer> slab = ops::DeviceBuffer::allocate(backend_, slab_bytes);
    if (!slab)
      throw StartupError("no room for the " + std::to_string(num_bytes_ + bytes) +
                         " bytes of a case on " + std::string(backend_.device) +
                         ": give fewer --tokens or a smaller model");
    arena_ = slab->arena();
    room_bytes_ = slab_bytes;
    slabs_.push_back(std::move(*slab));
  }
  const int64_t before = arena_.mark();
  const Tensor tensor = arena_.allocate(dtype, shape);
  room_bytes_ -= arena_.mark() - before;
  num_bytes_ += bytes;
  return tensor;
}

Tensor Operands::random(DType dtype, std::initializer_list<int64_t> shape, float low, float high) {
  const Tensor tensor = empty(dtype, shape);
  const RandomPieces::Piece piece = pieces_.get(dtype, low, high);
  const int64_t element_bytes = tensor::dtype_bytes(dtype);
  int64_t begin = draw(piece.num_elements), done = 0;
  while (done < tensor.num_elements()) {
    const int64_t count = std::min(piece.num_elements - begin, tensor.num_elements() - done);
    backend_.copy_to_device(static_cast<std::byte*>(tensor.data()) + done * element_bytes,
                            piece.data + begin * element_bytes, count * element_bytes, stream_);
    done += count;
    begin = 0;
  }
  return tensor;
}

ops::Activation Operands::rows(int64_t tokens, int64_t dim, bool quantised) {
  if (!quantised) return random(backend_.act, {tokens, dim});
  return {random(DType::kF8E4M3, {tokens, dim}, -kF8Range, kF8Range),
          random(DType::kF32, {tokens, ops::num_scale_blocks(dim)}, 0.5f / kF8Range, 1 / kF8Range)};
}

ops::Activation Operands::quantised_room(int64_t tokens, int64_t dim) {
  return {empty(DType::kF8E4M3, {tokens, dim}),
          empty(DType::kF32, {tokens, ops::num_scale_blocks(dim)})};
}

ops::Weight Operands::weight(DType dtype, std::initializer_list<int64_t> shape) {
  const size_t rank = shape.size();
  FATHOM_CHECK(rank >= 2 && rank <= 4, "weight of rank " << rank);
  const int64_t out = shape.begin()[rank - 2], in = shape.begin()[rank - 1];
  const float deviation = deviation_of(in);
  const bool is_i8 = dtype == DType::kI8, is_i4 = dtype == DType::kI4x2;
  const bool has_zeros = dtype == DType::kU4x2;
  if (dtype != DType::kF8E4M3 && !is_i8 && !is_i4 && !has_zeros)
    return {.data = random(dtype, shape, -deviation, deviation), .scale = {}};
  const auto stack = [&](DType type, int64_t rows, int64_t columns, float low, float high) {
    if (rank == 2) return random(type, {rows, columns}, low, high);
    if (rank == 3) return random(type, {shape.begin()[0], rows, columns}, low, high);
    return random(type, {shape.begin()[0], shape.begin()[1], rows, columns}, low, high);
  };
  // Zero points near 0 cost what others do.
  if (has_zeros)
    return {.data = stack(DType::kU4x2, out, in / 2, 0, 255),
            .scale = stack(DType::kF16, out, 2 * in / kZeroPointChannels, 0.5f * deviation / 8,
                           deviation / 8)};
  const bool of_channels = is_i8 && i8_scales_ == ops::ScaleForm::kChannels;
  const float range = is_i8 ? kI8Range : is_i4 ? kI4Range : kF8Range;
  return {.data = stack(dtype, out, is_i4 ? in / 2 : in, -range, range),
          .scale = stack(DType::kF32, of_channels || is_i4 ? out : ops::num_scale_blocks(out),
                         of_channels ? 1 : ops::num_scale_blocks(in), 0.5f * deviation / range,
                         deviation / range)};
}

int64_t Operands::draw(int64_t limit) {
  const auto words = philox(seed_, 1, num_draws_++);
  return static_cast<int64_t>(scale_bits(random_bits(words), static_cast<uint64_t>(limit)));
}

std::vector<int64_t> Operands::permutation(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(draw(static_cast<int64_t>(i)))]);
  return order;
}

// The values may go away when this returns.
void Operands::copy_in(const Tensor& tensor, const void* values) {
  if (tensor.num_bytes() == 0) return;
  backend_.copy_to_device(tensor.data(), values, tensor.num_bytes(), stream_);
  stream_.synchronize();
}

}  // namespace fathom::apps
