#pragma once
// Operands: the memory of one benched case on a backend, and random contents for it. Contents are fresh for every
// tensor, but come from pieces of random values that are made once, so that a model's experts fill in no time.
//
//   RandomPieces pieces(backend);
//   Operands operands(backend, *stream, pieces, seed);
//   const ops::Activation x = operands.rows(tokens, hidden_size, /*quantised=*/false);
//   const ops::Weight w = operands.weight(DType::kBf16, {out, in});
//   stream->synchronize();                       // before the contents are used elsewhere
//
// Owns what it hands out. Throws StartupError when there is no room. Not synchronised.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <vector>

#include "ops/device_buffer.h"
#include "ops/linear.h"

namespace fathom::apps {

// Host memory full of random values of a type, uniform in [low, high).
class RandomPieces {
 public:
  struct Piece {
    const std::byte* data = nullptr;
    int64_t num_elements = 0;
  };

  explicit RandomPieces(const ops::Backend& backend) : backend_(backend) {}
  ~RandomPieces();
  RandomPieces(const RandomPieces&) = delete;
  RandomPieces& operator=(const RandomPieces&) = delete;

  Piece get(tensor::DType dtype, float low, float high);

 private:
  struct Key {
    tensor::DType dtype;
    float low, high;
    auto operator<=>(const Key&) const = default;
  };

  const ops::Backend& backend_;
  std::map<Key, void*> pieces_;
};

class Operands {
 public:
  // i8_scales: of weights in i8.
  Operands(const ops::Backend& backend, ops::Stream& stream, RandomPieces& pieces, uint64_t seed,
           ops::ScaleForm i8_scales = ops::ScaleForm::kBlocks)
      : backend_(backend), stream_(stream), pieces_(pieces), seed_(seed), i8_scales_(i8_scales) {}

  const ops::Backend& backend() const { return backend_; }
  int64_t num_bytes() const { return num_bytes_; }

  // Not initialised.
  tensor::Tensor empty(tensor::DType dtype, std::initializer_list<int64_t> shape);
  tensor::Tensor random(tensor::DType dtype, std::initializer_list<int64_t> shape, float low = -1,
                        float high = 1);
  template <class T>
  tensor::Tensor upload(const std::vector<T>& values, std::initializer_list<int64_t> shape) {
    const tensor::Tensor tensor = empty(tensor::DTypeOf<T>::value, shape);
    copy_in(tensor, values.data());
    return tensor;
  }
  // act[tokens, dim], or quantised rows.
  ops::Activation rows(int64_t tokens, int64_t dim, bool quantised);
  // Room for quantised rows.
  ops::Activation quantised_room(int64_t tokens, int64_t dim);
  // [..., out, in] with scales where it is quantised, such that products are near 1.
  ops::Weight weight(tensor::DType dtype, std::initializer_list<int64_t> shape);
  // Uniform in [0, limit).
  int64_t draw(int64_t limit);
  // 0 to count - 1 in random order.
  std::vector<int64_t> permutation(int64_t count);

 private:
  void copy_in(const tensor::Tensor& tensor, const void* values);

  const ops::Backend& backend_;
  ops::Stream& stream_;
  RandomPieces& pieces_;
  uint64_t seed_, num_draws_ = 0;
  ops::ScaleForm i8_scales_;
  std::vector<ops::DeviceBuffer> slabs_;
  tensor::Arena arena_;
  int64_t room_bytes_ = 0;  // of the newest slab
  int64_t num_bytes_ = 0;
};

}  // namespace fathom::apps
