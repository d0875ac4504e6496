#pragma once
// CapturedSteps: the graphs of steps of decodes alone, and which of them a step takes once it is padded.
//
//   captured.capture({.forward = ..., .sample = ...}, stream);     // once, before the first step
//   while (captured.renew_one(parts, stream)) {}                   // where operators have other kernels than then
//   if (const CapturedSteps::Graphs* graphs = captured.pad(layout)) graphs->forward->replay(stream);
//
// Steps that verify as many drafts as they ask for: of each depth of a chain, of a tree and of none. What comes
// between, where the depth changes or sequences end, is computed without a graph: to capture it would hold up that step
// and, of several ranks, allocate memory while another waits in a collective. Not synchronised.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "ops/stream.h"
#include "runner/runner.h"
#include "runner/step_layout.h"
#include "tensor/tensor.h"

namespace fathom::runner {

struct CapturedStepsConfig {
  std::vector<int> batch_sizes{};  // numbers of sequences, rising
  DrafterInfo drafter{};
  int num_lanes = 1;
  // Steps whose sequences are so long that attention has other kernels are captured apart from those of shorter ones.
  std::vector<ops::LongAttention> long_attention{};
  int64_t max_blocks = 0;  // of a table
  int block_tokens = 1;
  // A step has at most so many rows of logits, which one operator samples, and query tokens of all lanes.
  int64_t max_logit_rows = 0, max_batch_tokens = 0;
  GetCodeVersion code_version{};
};

class CapturedSteps {
 public:
  // A step in two parts, between which masks may arrive.
  struct Graphs {
    std::unique_ptr<ops::Graph> forward;
    tensor::Tensor hidden;                  // what it ends with
    std::unique_ptr<ops::Graph> sample[2];  // without masks, with masks
    int64_t code_version = 0;
  };
  // What enqueues a step of the layout. Graphs keep what they need of it.
  struct Parts {
    std::function<void(const StepLayout& layout)> stage;  // not captured
    std::function<tensor::Tensor(const StepLayout& layout)> forward;
    std::function<void(const StepLayout& layout, bool masked, const tensor::Tensor& hidden)> sample;
  };

  explicit CapturedSteps(CapturedStepsConfig config) : config_(std::move(config)) {}

  void capture(const Parts& parts, ops::Stream& stream);
  // Captures one step again that holds kernels of an older version of the code. False: there is none. REQUIRES: no step
  // is enqueued.
  bool renew_one(const Parts& parts, ops::Stream& stream);
  // Pads the layout to the captured step that takes it. Null: none does, and the layout is as it was.
  const Graphs* pad(StepLayout& layout) const;
  bool takes(const StepLayout& layout) const { return find(layout) != graphs_.end(); }

 private:
  // Sequences, query tokens of each, how deep they draft, and the blocks of a table.
  struct Shape {
    int batch_size = 0, num_tokens = 1, num_levels = 0;
    int64_t num_blocks = 0;
    auto operator<=>(const Shape&) const = default;
  };
  using Map = std::map<Shape, Graphs>;

  Map::const_iterator find(const StepLayout& layout) const;
  // Blocks that a sequence may have in a step of so many sequences, each of so many query tokens, that is captured for
  // short ones. max_blocks: these are not apart.
  int64_t short_blocks(const ops::LongAttention& long_ones, int batch_size, int num_tokens) const;
  void pad_to(const Shape& shape, StepLayout& layout) const;
  // For sequences of each limit.
  void capture(Shape shape, const Parts& parts, ops::Stream& stream);
  void capture_one(const Shape& shape, const Parts& parts, ops::Stream& stream);
  int64_t code_version() const;

  const CapturedStepsConfig config_;
  Map graphs_;
};

}  // namespace fathom::runner
