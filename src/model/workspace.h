#pragma once
// Workspace: the device memory that one step computes in, sized once for the largest step. Its
// addresses never change, so a captured graph stays valid.
//
//   Workspace workspace = model->make_workspace({.max_batch_tokens = 2048});
//
// Owns its memory, move-only. One step at a time uses a workspace (steps of one stream follow each
// other).

#include <cstdint>

#include "layers/step_buffers.h"
#include "ops/device_buffer.h"

namespace fathom::model {

struct WorkspaceLimits {
  int64_t max_batch_tokens = 0;
  // That a block table has room for; 0 = max_position_embeddings, in whole blocks. Read by models with an indexer.
  int64_t max_rows = 0;
};

class Workspace {
 public:
  int64_t num_bytes() const { return memory_.num_bytes(); }
  // Stream::touch for all of it.
  void touch(ops::Stream& stream) const { stream.touch(memory_.data(), memory_.num_bytes()); }
  int64_t max_batch_tokens() const { return limits_.max_batch_tokens; }
  int64_t max_rows() const { return limits_.max_rows; }

 private:
  friend class Model;
  Workspace(const WorkspaceLimits& limits, ops::DeviceBuffer memory, layers::StepBuffers buffers)
      : limits_(limits), memory_(std::move(memory)), buffers_(buffers) {}

  WorkspaceLimits limits_;
  ops::DeviceBuffer memory_;
  layers::StepBuffers buffers_;
};

}  // namespace fathom::model
