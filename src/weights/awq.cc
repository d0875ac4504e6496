#include "weights/awq.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/json.h"
#include "ops/linear.h"

namespace fathom::weights {
namespace {

using tensor::Bf16, tensor::DType, tensor::F16, tensor::Tensor;

constexpr int64_t kOutputsInWord = 8;

// Bits of output c of a word begin here: outputs lie in the order 0, 2, 4, 6, 1, 3, 5, 7.
constexpr std::array<int, kOutputsInWord> kShift = {0, 16, 4, 20, 8, 24, 12, 28};

unsigned nibble(uint32_t word, int64_t c) { return word >> kShift[static_cast<size_t>(c)] & 15u; }

// f(word of outputs, first output of it here, one past the last, of [first_row, first_row + rows)), in 0 to 8.
template <class F>
void for_words(int64_t first_row, int64_t rows, const F& f) {
  const int64_t end = first_row + rows;
  for (int64_t word = first_row / kOutputsInWord; word * kOutputsInWord < end; ++word) {
    const int64_t base = word * kOutputsInWord;
    f(word, std::max<int64_t>(first_row - base, 0), std::min(end - base, kOutputsInWord));
  }
}

// Blocks of channels whose words stay in the cache while the words beside them are read.
constexpr int64_t kBlockChannels = 128;

void unpack_pairs(const AwqBytes& from, int64_t first_row, int64_t first_column, const Tensor& to) {
  const int64_t columns = 2 * to.dim(1), words = from.out / kOutputsInWord;
  auto* const data = static_cast<uint8_t*>(to.data());
  for (int64_t begin = 0; begin < columns; begin += kBlockChannels) {
    const int64_t end = std::min(columns, begin + kBlockChannels);
    for_words(first_row, to.dim(0), [&](int64_t word, int64_t c_begin, int64_t c_end) {
      const uint32_t* const source = from.weight + word;
      uint8_t* const row = data + (word * kOutputsInWord - first_row) * to.stride(0);
      for (int64_t k = begin; k < end; k += 2) {
        const uint32_t even = source[(first_column + k) * words];
        const uint32_t odd = source[(first_column + k + 1) * words];
        for (int64_t c = c_begin; c < c_end; ++c)
          row[c * to.stride(0) + k / 2] =
              static_cast<uint8_t>(nibble(even, c) | nibble(odd, c) << 4);
      }
    });
  }
}

template <class To>
void unpack_values(const AwqBytes& from, int64_t first_row, int64_t first_column,
                   const Tensor& to) {
  const int64_t columns = to.dim(1), words = from.out / kOutputsInWord;
  auto* const data = static_cast<To*>(to.data());
  for (int64_t begin = 0, end = 0; begin < columns; begin = end) {
    const int64_t group = (first_column + begin) / from.channels;
    end = std::min(columns, (group + 1) * from.channels - first_column);
    for_words(first_row, to.dim(0), [&](int64_t word, int64_t c_begin, int64_t c_end) {
      const uint32_t zeros = from.zeros[group * words + word];
      for (int64_t c = c_begin; c < c_end; ++c) {
        const int64_t output = word * kOutputsInWord + c;
        const float scale = tensor::to_float(from.scales[group * from.out + output]);
        const auto zero = static_cast<int>(nibble(zeros, c));
        To* const row = data + (output - first_row) * to.stride(0);
        for (int64_t k = begin; k < end; ++k) {
          const uint32_t packed = from.weight[(first_column + k) * words + word];
          const int steps = static_cast<int>(nibble(packed, c)) - zero;
          row[k] = tensor::from_float<To>(static_cast<float>(steps) * scale);
        }
      }
    });
  }
}

std::string wrong(const TensorInfo& tensor, DType dtype, const std::vector<int64_t>& shape) {
  if (tensor.dtype == dtype && tensor.shape == shape) return "";
  return "tensor " + json::shown_text(tensor.name) + " is " + describe(tensor) + ", must be " +
         std::string(tensor::dtype_name(dtype)) + "[" + std::to_string(shape[0]) + ", " +
         std::to_string(shape[1]) + "]";
}

}  // namespace

AwqNames awq_names(const std::string& weight_name) {
  constexpr std::string_view kEnd = "weight";
  const std::string base = weight_name.ends_with(kEnd)
                               ? weight_name.substr(0, weight_name.size() - kEnd.size())
                               : weight_name + ".";
  return {.weight = base + "qweight", .zeros = base + "qzeros", .scales = base + "scales"};
}

std::optional<AwqTensors> find_awq(const Checkpoint& checkpoint, const std::string& weight_name) {
  const AwqNames names = awq_names(weight_name);
  const TensorInfo* const weight = checkpoint.find(names.weight);
  if (weight == nullptr) return std::nullopt;
  return AwqTensors{.weight = weight,
                    .zeros = checkpoint.find(names.zeros),
                    .scales = checkpoint.find(names.scales)};
}

std::string awq_problem(const AwqTensors& tensors, int64_t out, int64_t in, int64_t channels) {
  if (out % kOutputsInWord != 0)
    return "tensor " + json::shown_text(tensors.weight->name) + " would have " +
           std::to_string(out) + " outputs, of which AWQ packs eight to a word";
  const int64_t words = out / kOutputsInWord;
  if (std::string problem = wrong(*tensors.weight, DType::kI32, {in, words}); !problem.empty())
    return problem;
  const TensorInfo &zeros = *tensors.zeros, &scales = *tensors.scales;
  const int64_t groups = channels > 0                                    ? in / channels
                         : zeros.shape.size() == 2 && zeros.shape[0] > 0 ? zeros.shape[0]
                                                                         : 1;
  if (in % groups != 0 || !ops::is_zero_point_group(in / groups))
    return "tensor " + json::shown_text(zeros.name) + " is " + describe(zeros) +
           ", must have a row for each 32, 64 or 128 of " + std::to_string(in) + " channels";
  if (std::string problem = wrong(zeros, DType::kI32, {groups, words}); !problem.empty())
    return problem;
  return wrong(scales, DType::kF16, {groups, out});
}

void unpack_awq(const AwqBytes& from, int64_t first_row, int64_t first_column, const Tensor& to) {
  if (to.dtype() == DType::kU4x2) return unpack_pairs(from, first_row, first_column, to);
  if (to.dtype() == DType::kF32) return unpack_values<float>(from, first_row, first_column, to);
  FATHOM_CHECK(to.dtype() == DType::kBf16, "AWQ to " << to.describe());
  unpack_values<Bf16>(from, first_row, first_column, to);
}

void unpack_awq_scales(const AwqBytes& from, int64_t first_row, int64_t first_column,
                       const Tensor& to) {
  const int64_t groups = to.dim(1) / 2, words = from.out / kOutputsInWord;
  const int64_t first_group = first_column / from.channels;
  for (int64_t r = 0; r < to.dim(0); ++r) {
    const int64_t output = first_row + r, word = output / kOutputsInWord;
    F16* const row = static_cast<F16*>(to.data()) + r * to.stride(0);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t group = first_group + g;
      row[g] = from.scales[group * from.out + output];
      const unsigned zero = nibble(from.zeros[group * words + word], output % kOutputsInWord);
      row[groups + g] = tensor::from_float<F16>(static_cast<float>(zero));
    }
  }
}

}  // namespace fathom::weights
