#pragma once
// KV groups: what kind of cache a model's layers keep, and the device memory of one kind. DeepSeek
// models have one group, "mla": the latent rows of every layer, the MTP layer's last.
//
//   model::KvGroupSpec spec = model->kv_groups()[0];
//   int num_blocks = pool_bytes / spec.block_bytes();
//   model::KvStorage kv = model::KvStorage::allocate(spec, num_blocks, backend);   // StartupError
//
// KvStorage owns its memory and is move-only.

#include <cstdint>
#include <string>

#include "ops/device_buffer.h"
#include "ops/kv_format.h"
#include "tensor/tensor.h"

namespace fathom::model {

struct KvGroupSpec {
  std::string name;
  int num_layers = 0;
  ops::KvFormat format;  // of one token's row in one layer
  int block_tokens = 64;

  // One block of all layers.
  int64_t block_bytes() const { return num_layers * block_tokens * format.row_bytes; }
};

class KvStorage {
 public:
  // Throws StartupError when there is no room. Blocks are not cleared: a row is written before it
  // is read.
  // num_spare_blocks: of the last layer alone, behind the others, for rows that no sequence has leased.
  static KvStorage allocate(const KvGroupSpec& spec, int num_blocks, const ops::Backend& backend,
                            int num_spare_blocks = 0);

  // One block that lies nowhere, for a stream that measures (ops/stream.h).
  static KvStorage unbacked(const KvGroupSpec& spec);

  const KvGroupSpec& spec() const { return spec_; }
  int num_blocks() const { return static_cast<int>(rows_.dim(1)); }
  // rows: u8[num_blocks, block_tokens, row_bytes]
  ops::KvCache layer(int layer_idx) const {
    return {.rows = layer_idx + 1 == spec_.num_layers ? last_rows_ : rows_[layer_idx],
            .format = spec_.format};
  }
  // u8[end - begin, num_blocks, block_tokens, row_bytes]
  tensor::Tensor layers(int begin, int end) const { return rows_.slice(0, begin, end); }

 private:
  KvStorage() = default;
  KvGroupSpec spec_;
  ops::DeviceBuffer buffer_;
  tensor::Tensor rows_;       // u8[num_layers, num_blocks, block_tokens, row_bytes]
  tensor::Tensor last_rows_;  // of the last layer, with the spare blocks
};

}  // namespace fathom::model
