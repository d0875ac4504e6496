#include "model/kv_storage.h"

#include <cstddef>

#include "base/startup_error.h"

namespace fathom::model {

KvStorage KvStorage::allocate(const KvGroupSpec& spec, int num_blocks, const ops::Backend& backend,
                              int num_spare_blocks) {
  const int64_t block_bytes = spec.block_tokens * spec.format.row_bytes;
  const int64_t bytes = spec.block_bytes() * num_blocks + block_bytes * num_spare_blocks;
  std::optional<ops::DeviceBuffer> buffer = ops::DeviceBuffer::allocate(backend, bytes);
  if (num_blocks < 1 || !buffer) {
    throw StartupError("the cache of group \"" + spec.name + "\" needs " + std::to_string(bytes) +
                       " bytes for " + std::to_string(num_blocks) + " blocks: no room for it on " +
                       std::string(backend.device));
  }
  KvStorage kv;
  kv.spec_ = spec;
  kv.rows_ = tensor::Tensor::contiguous(
      buffer->data(), tensor::DType::kU8,
      {spec.num_layers, num_blocks, spec.block_tokens, spec.format.row_bytes});
  const int64_t before_last = (spec.num_layers - 1) * num_blocks * block_bytes;
  kv.last_rows_ = tensor::Tensor::contiguous(
      static_cast<std::byte*>(buffer->data()) + before_last, tensor::DType::kU8,
      {num_blocks + num_spare_blocks, spec.block_tokens, spec.format.row_bytes});
  kv.buffer_ = std::move(*buffer);
  return kv;
}

KvStorage KvStorage::unbacked(const KvGroupSpec& spec) {
  KvStorage kv;
  kv.spec_ = spec;
  tensor::Arena nowhere;
  kv.rows_ = nowhere.allocate(tensor::DType::kU8,
                              {spec.num_layers, 1, spec.block_tokens, spec.format.row_bytes});
  kv.last_rows_ = kv.rows_[spec.num_layers - 1];
  return kv;
}

}  // namespace fathom::model
