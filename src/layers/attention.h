#pragma once
// Attention: the seam for other kinds (sparse, windowed). A kind owns its weights and knows its
// cache layout; the decoder layer only hands it normed rows and the cache of its layer. What a kind
// asks of the model besides: layers/attention_kind.h.
//
// Immutable after finish_loading(), thread-safe.

#include "comm/rank_context.h"
#include "layers/attention_plan.h"
#include "layers/forward_batch.h"
#include "layers/rms_norm.h"
#include "layers/step_buffers.h"
#include "ops/index_cache.h"
#include "ops/kv_format.h"
#include "ops/stream.h"
#include "tensor/tensor.h"

namespace fathom::layers {

// What a layer is given in one step, the same for all layers but for the caches.
struct LayerStep {
  const ForwardBatch& batch;
  const StepBuffers& buffers;   // cut to the step's tokens
  const AttentionPlan& plan;    // of the step
  ops::KvCache cache;           // of this layer
  ops::IndexCache index_cache;  // of this layer; null without an indexer
  const comm::RankContext& rank;
  ops::Stream& stream;
};

class Attention {
 public:
  virtual ~Attention() = default;
  // x, out  [tokens, hidden_size]. Writes this step's rows of the cache. `out` is what the rank's heads add: the result
  // is the sum over the ranks of tensor parallelism.
  virtual void forward(const NormedRows& x, const LayerStep& step,
                       const tensor::Tensor& out) const = 0;
  // Only the rows of the cache that forward() writes, the same bytes where sums have one order.
  virtual void append_rows(const NormedRows& x, const LayerStep& step) const = 0;
  // Whether it reads NormedRows::values beside quantised ones, which are enough otherwise.
  virtual bool reads_values() const = 0;
  // Derives weights from loaded parameters. Waits for the stream.
  virtual void finish_loading(ops::Stream& stream) = 0;
};

}  // namespace fathom::layers
