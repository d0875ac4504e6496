#include "runner/captured_steps.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/failpoint.h"

namespace fathom::runner {

CapturedSteps::Map::const_iterator CapturedSteps::find(const StepLayout& layout) const {
  const std::vector<int>& sizes = config_.batch_sizes;
  if (graphs_.empty()) return graphs_.end();
  const CapturedStep step = captured_step(layout, config_.drafter);
  if (step.num_tokens == 0 || step.num_slices > sizes.back()) return graphs_.end();
  // It is planted between the two operators that a graph holds.
  if (any_failpoint_armed()) return graphs_.end();
  const int batch_size =
      *std::lower_bound(sizes.begin(), sizes.end(), static_cast<int>(step.num_slices));
  int64_t num_blocks = config_.max_blocks;
  for (const ops::LongAttention& long_ones : config_.long_attention) {
    const int64_t limit = short_blocks(long_ones, batch_size, static_cast<int>(step.num_tokens));
    if (layout.table_blocks <= limit) num_blocks = std::min(num_blocks, limit);
  }
  return graphs_.find({.batch_size = batch_size,
                       .num_tokens = step.num_tokens,
                       .num_levels = layout.num_levels,
                       .num_blocks = num_blocks});
}

int64_t CapturedSteps::short_blocks(const ops::LongAttention& long_ones, int batch_size,
                                    int num_tokens) const {
  const int64_t tokens = int64_t{batch_size} * num_tokens;
  if (tokens >= long_ones.tokens) return config_.max_blocks;
  const int64_t times = long_ones.of_one_sequence ? 1 : tokens;
  return std::min(config_.max_blocks, long_ones.rows / times / config_.block_tokens);
}

const CapturedSteps::Graphs* CapturedSteps::pad(StepLayout& layout) const {
  const auto found = find(layout);
  if (found == graphs_.end()) return nullptr;
  pad_to(found->first, layout);
  return &found->second;
}

void CapturedSteps::pad_to(const Shape& shape, StepLayout& layout) const {
  pad_step(layout, {.num_slices = shape.batch_size,
                    .num_tokens = shape.num_tokens,
                    .num_lanes = config_.num_lanes,
                    .num_blocks = shape.num_blocks,
                    .drafter = config_.drafter});
}

void CapturedSteps::capture(const Parts& parts, ops::Stream& stream) {
  const DrafterInfo& drafter = config_.drafter;
  for (const int batch_size : config_.batch_sizes) {
    capture({.batch_size = batch_size}, parts, stream);
    const bool is_chain = drafter.top_k == 1;
    for (int levels = is_chain ? 1 : drafter.num_steps; levels <= drafter.num_steps; ++levels)
      capture({.batch_size = batch_size,
               .num_tokens = 1 + (is_chain ? levels : drafter.max_drafts()),
               .num_levels = levels},
              parts, stream);
  }
  stream.synchronize();
}

int64_t CapturedSteps::code_version() const {
  return config_.code_version ? config_.code_version().number : 0;
}

bool CapturedSteps::renew_one(const Parts& parts, ops::Stream& stream) {
  const int64_t version = code_version();
  for (const auto& [shape, graphs] : graphs_) {
    if (graphs.code_version == version) continue;
    capture_one(shape, parts, stream);
    stream.synchronize();
    return true;
  }
  return false;
}

void CapturedSteps::capture(Shape shape, const Parts& parts, ops::Stream& stream) {
  std::set<int64_t, std::greater<>> limits = {config_.max_blocks};
  for (const ops::LongAttention& long_ones : config_.long_attention)
    limits.insert(short_blocks(long_ones, shape.batch_size, shape.num_tokens));
  for (const int64_t limit : limits) {
    shape.num_blocks = limit;
    capture_one(shape, parts, stream);
  }
}

void CapturedSteps::capture_one(const Shape& shape, const Parts& parts, ops::Stream& stream) {
  const int64_t tokens = int64_t{shape.batch_size} * shape.num_tokens;
  if (tokens > config_.max_logit_rows || tokens * config_.num_lanes > config_.max_batch_tokens)
    return;
  StepLayout layout;
  layout.num_levels = shape.num_levels;
  pad_to(shape, layout);
  parts.stage(layout);
  Graphs& graphs = graphs_[shape];
  graphs.code_version = code_version();
  graphs.forward = stream.capture(
      [forward = parts.forward, layout, &graphs] { graphs.hidden = forward(layout); });
  for (const bool masked : {false, true})
    graphs.sample[masked] = stream.capture([sample = parts.sample, layout, masked, &graphs] {
      sample(layout, masked, graphs.hidden);
    });
}

}  // namespace fathom::runner
