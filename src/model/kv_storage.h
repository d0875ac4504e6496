#pragma once
// KV groups: what kind of cache a model's layers keep, and the device memory of one kind. DeepSeek
// models have one group, "mla": the latent rows of every layer, the MTP layer's last, and beside them the keys of an
// indexer where the model has one.
//
//   model::KvGroupSpec spec = model->kv_groups()[0];
//   int num_blocks = pool_bytes / spec.block_bytes();
//   model::KvStorage kv = model::KvStorage::allocate(spec, num_blocks, backend);   // StartupError
//
// What a token has in a layer lies in planes, one per kind of row: latent rows, keys, the keys' scales. Every plane has
// the same blocks, so that a block's id means all of them together: they are leased, shared and given back as one, and
// which rows live is told once.
//
// KvStorage owns its memory and is move-only.

#include <cstdint>
#include <string>
#include <vector>

#include "layers/attention_kind.h"
#include "ops/device_buffer.h"
#include "ops/index_cache.h"
#include "ops/kv_format.h"
#include "tensor/tensor.h"

namespace fathom::model {

struct KvGroupSpec {
  std::string name;
  int num_layers = 0;
  layers::CacheFormat format;  // of one token's rows in one layer
  int block_tokens = 64;

  // One block of one layer and of all, in all planes.
  int64_t layer_block_bytes() const { return block_tokens * format.row_bytes(); }
  int64_t block_bytes() const { return num_layers * layer_block_bytes(); }
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
  int num_blocks() const { return static_cast<int>(planes_.front().rows.dim(1)); }
  // rows: u8[num_blocks, block_tokens, row_bytes]
  ops::KvCache layer(int layer_idx) const {
    return {.rows = planes_.front().layer(layer_idx), .format = spec_.format.latent};
  }
  // Null without an indexer.
  ops::IndexCache index_layer(int layer_idx) const;
  // Of every plane u8[end - begin, num_blocks, block_tokens, bytes of a row]: all that these layers keep.
  std::vector<tensor::Tensor> layers(int begin, int end) const;

 private:
  struct Plane {
    tensor::Tensor rows;       // u8[num_layers, num_blocks, block_tokens, bytes of a row]
    tensor::Tensor last_rows;  // of the last layer, with the spare blocks

    tensor::Tensor layer(int layer_idx) const {
      return layer_idx + 1 == rows.dim(0) ? last_rows : rows[layer_idx];
    }
  };

  KvStorage() = default;
  // Planes one behind the other; measured where the arena has no memory.
  void carve(tensor::Arena& arena, int num_blocks, int num_spare_blocks);

  KvGroupSpec spec_;
  ops::DeviceBuffer buffer_;
  std::vector<Plane> planes_;  // latent rows; index values; their scales, where they have some
};

}  // namespace fathom::model
