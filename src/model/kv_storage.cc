#include "model/kv_storage.h"

#include <cstddef>

#include "base/startup_error.h"
#include "tensor/arena.h"

namespace fathom::model {
namespace {

using tensor::DType;
using tensor::Tensor;

// Bytes of a row in each plane.
std::vector<int64_t> plane_rows(const layers::CacheFormat& format) {
  std::vector<int64_t> rows = {format.latent.row_bytes};
  if (!format.index) return rows;
  rows.push_back(format.index->dim * tensor::dtype_bytes(format.index->values));
  if (format.index->has_scale()) rows.push_back(sizeof(float));
  return rows;
}

// The same bytes as values. REQUIRES: whole rows of a contiguous plane.
Tensor as_values(const Tensor& bytes, DType dtype) {
  const int64_t values = bytes.dim(2) / tensor::dtype_bytes(dtype);
  return Tensor::contiguous(bytes.data(), dtype, {bytes.dim(0), bytes.dim(1), values});
}

}  // namespace

void KvStorage::carve(tensor::Arena& arena, int num_blocks, int num_spare_blocks) {
  planes_.clear();
  for (const int64_t row_bytes : plane_rows(spec_.format)) {
    const int64_t all_blocks = int64_t{spec_.num_layers} * num_blocks + num_spare_blocks;
    const Tensor all = arena.allocate(DType::kU8, {all_blocks, spec_.block_tokens, row_bytes});
    const int64_t before_last = int64_t{spec_.num_layers - 1} * num_blocks;
    planes_.push_back(
        {.rows = all.slice(0, 0, int64_t{spec_.num_layers} * num_blocks)
                     .reshape({spec_.num_layers, num_blocks, spec_.block_tokens, row_bytes}),
         .last_rows = all.slice(0, before_last, all_blocks)});
  }
}

KvStorage KvStorage::allocate(const KvGroupSpec& spec, int num_blocks, const ops::Backend& backend,
                              int num_spare_blocks) {
  KvStorage kv;
  kv.spec_ = spec;
  tensor::Arena measure;
  kv.carve(measure, num_blocks, num_spare_blocks);
  const int64_t bytes = measure.peak_bytes();
  std::optional<ops::DeviceBuffer> buffer = ops::DeviceBuffer::allocate(backend, bytes);
  if (num_blocks < 1 || !buffer) {
    throw StartupError("the cache of group \"" + spec.name + "\" needs " + std::to_string(bytes) +
                       " bytes for " + std::to_string(num_blocks) + " blocks: no room for it on " +
                       std::string(backend.device));
  }
  kv.buffer_ = std::move(*buffer);
  tensor::Arena arena = kv.buffer_.arena();
  kv.carve(arena, num_blocks, num_spare_blocks);
  return kv;
}

KvStorage KvStorage::unbacked(const KvGroupSpec& spec) {
  KvStorage kv;
  kv.spec_ = spec;
  tensor::Arena nowhere;
  kv.carve(nowhere, 1, 0);
  return kv;
}

ops::IndexCache KvStorage::index_layer(int layer_idx) const {
  const std::optional<ops::IndexFormat>& index = spec_.format.index;
  if (!index) return {};
  ops::IndexCache cache{.values = as_values(planes_[1].layer(layer_idx), index->values),
                        .scales = {}};
  if (index->has_scale()) {
    const Tensor bytes = planes_[2].layer(layer_idx);
    cache.scales = Tensor::contiguous(bytes.data(), DType::kF32, {bytes.dim(0), bytes.dim(1)});
  }
  return cache;
}

std::vector<Tensor> KvStorage::layers(int begin, int end) const {
  std::vector<Tensor> planes;
  for (const Plane& plane : planes_) planes.push_back(plane.rows.slice(0, begin, end));
  return planes;
}

}  // namespace fathom::model
