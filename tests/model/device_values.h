#pragma once
// Values on a backend's device for one step of a test, whatever the device: sent from vectors, fetched as floats.
//
//   DeviceValues device(backend, stream);
//   const Tensor ids = device.send(token_ids);
//   std::vector<std::vector<float>> rows = device.fetch_rows(hidden, 0, 4);
//
// Owns the memory; the views end with it.

#include <list>
#include <vector>

#include "ops/device_buffer.h"
#include "ops/stream.h"
#include "tensor/tensor.h"

namespace fathom::model {

class DeviceValues {
 public:
  DeviceValues(const ops::Backend& backend, ops::Stream& stream)
      : backend_(backend), stream_(stream) {}

  tensor::Tensor empty(tensor::DType dtype, std::initializer_list<int64_t> shape) {
    tensor::Arena measure;
    measure.allocate(dtype, shape);
    memory_.push_back(*ops::DeviceBuffer::allocate(backend_, measure.peak_bytes()));
    tensor::Arena arena = memory_.back().arena();
    return arena.allocate(dtype, shape);
  }
  template <class T>
  tensor::Tensor send(const std::vector<T>& values) {
    const tensor::Tensor out =
        empty(tensor::DTypeOf<T>::value, {static_cast<int64_t>(values.size())});
    backend_.copy_to_device(out.data(), values.data(), out.num_bytes(), stream_);
    stream_.synchronize();
    return out;
  }
  // Rows [begin, begin + count) of a contiguous f32 or bf16 matrix, once the stream has done its work.
  std::vector<std::vector<float>> fetch_rows(const tensor::Tensor& t, int64_t begin,
                                             int64_t count) {
    const tensor::Tensor part = t.slice(0, begin, begin + count);
    std::vector<char> bytes(static_cast<size_t>(part.num_bytes()));
    stream_.synchronize();
    backend_.copy_to_host(bytes.data(), part.data(), part.num_bytes(), stream_);
    stream_.synchronize();
    std::vector<std::vector<float>> rows(static_cast<size_t>(count));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = to_floats(bytes, i, part);
    return rows;
  }

 private:
  static std::vector<float> to_floats(const std::vector<char>& bytes, size_t row,
                                      const tensor::Tensor& t) {
    const auto columns = static_cast<size_t>(t.dim(1));
    std::vector<float> values(columns);
    for (size_t i = 0; i < columns; ++i) {
      if (t.dtype() == tensor::DType::kF32) {
        values[i] = reinterpret_cast<const float*>(bytes.data())[row * columns + i];
      } else {
        FATHOM_CHECK(t.dtype() == tensor::DType::kBf16, t.describe());
        values[i] = tensor::to_float(
            reinterpret_cast<const tensor::Bf16*>(bytes.data())[row * columns + i]);
      }
    }
    return values;
  }

  const ops::Backend& backend_;
  ops::Stream& stream_;
  std::list<ops::DeviceBuffer> memory_;
};

}  // namespace fathom::model
