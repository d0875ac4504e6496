#include "layers/absorbed_weights.h"

#include <vector>

namespace fathom::layers {
namespace {

using tensor::DType;
using tensor::F8E4M3;
using tensor::Tensor;

template <class Element>
std::vector<Element> download(const Tensor& device, ops::Stream& stream) {
  std::vector<Element> host(static_cast<size_t>(device.num_elements()));
  stream.backend().copy_to_host(host.data(), device.data(), device.num_bytes(), stream);
  stream.synchronize();
  return host;
}

template <class Element>
void upload(const std::vector<Element>& host, const Tensor& device, ops::Stream& stream) {
  stream.backend().copy_to_device(device.data(), host.data(), device.num_bytes(), stream);
  stream.synchronize();
}

// [rows, columns] -> [columns, rows]
template <class Element>
void transpose(const Element* from, int64_t rows, int64_t columns, Element* to) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      to[column * rows + row] = from[row * columns + column];
}

template <class Word>
void derive_w_uk_of(const Tensor& kv_b, const Tensor& w_uk, ops::Stream& stream) {
  const int64_t heads = w_uk.dim(0), rank = w_uk.dim(1), nope = w_uk.dim(2);
  const std::vector<Word> from = download<Word>(kv_b, stream);
  std::vector<Word> to(static_cast<size_t>(w_uk.num_elements()));
  for (int64_t head = 0; head < heads; ++head)
    transpose(from.data() + head * kv_b.stride(0), nope, rank, to.data() + head * nope * rank);
  upload(to, w_uk, stream);
}

// Matrices of heads, quantised one after the other.
class QuantisedHeads {
 public:
  QuantisedHeads(const ops::Weight& device, weights::BlockScale kind)
      : device_(device),
        kind_(kind),
        q_(static_cast<size_t>(device.data.num_elements())),
        scale_(static_cast<size_t>(device.scale.num_elements())) {}

  void set(int64_t head, const float* matrix) {
    weights::quantize_blocks(matrix, device_.data.dim(1), device_.data.dim(2), kind_,
                             {.q = q_.data() + head * device_.data.stride(0),
                              .scale = scale_.data() + head * device_.scale.stride(0)});
  }
  void upload_all(ops::Stream& stream) const {
    upload(q_, device_.data, stream);
    upload(scale_, device_.scale, stream);
  }

 private:
  ops::Weight device_;
  weights::BlockScale kind_;
  std::vector<F8E4M3> q_;
  std::vector<float> scale_;
};

}  // namespace

void derive_w_uk(const Tensor& kv_b, const Tensor& w_uk, ops::Stream& stream) {
  if (kv_b.dtype() == DType::kF32) {
    derive_w_uk_of<uint32_t>(kv_b, w_uk, stream);
  } else {
    derive_w_uk_of<uint16_t>(kv_b, w_uk, stream);
  }
}

void derive_absorbed_fp8(const Tensor& kv_b, const AbsorbedWeights& to, weights::BlockScale kind,
                         ops::Stream& stream) {
  FATHOM_CHECK(kv_b.dtype() == DType::kBf16, "kv_b is " << kv_b.describe() << ", must be bf16");
  const int64_t heads = kv_b.dim(0), nope = to.w_uk.data.dim(2), rank = kv_b.dim(2);
  const std::vector<tensor::Bf16> from = download<tensor::Bf16>(kv_b, stream);
  QuantisedHeads w_uk(to.w_uk, kind), w_uv(to.w_uv, kind);
  std::vector<float> head_values(static_cast<size_t>(kv_b.stride(0)));
  std::vector<float> keys(static_cast<size_t>(rank * nope));
  for (int64_t head = 0; head < heads; ++head) {
    weights::convert(from.data() + head * kv_b.stride(0), DType::kBf16, head_values.data(),
                     DType::kF32, kv_b.stride(0));
    transpose(head_values.data(), nope, rank, keys.data());
    w_uk.set(head, keys.data());
    w_uv.set(head, head_values.data() + nope * rank);
  }
  w_uk.upload_all(stream);
  w_uv.upload_all(stream);
}

}  // namespace fathom::layers
