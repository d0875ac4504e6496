#include "tests/model/step_harness.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/rng.h"
#include "base/startup_error.h"
#include "config/draft_config.h"
#include "model/draft_checkpoint.h"
#include "ops/uploader.h"
#include "tests/model/device_values.h"
#include "weights/loader.h"

namespace fathom::model {
namespace {

using tensor::DType;
using tensor::Tensor;

}  // namespace

LoadedModel::LoadedModel(const std::string& directory, const ModelOptions& options,
                         const ops::Backend& backend, const std::string& draft_directory,
                         const comm::RankContext& rank)
    : stream_(backend.make_stream({.num_threads = 2})) {
  const config::ModelConfig config = value_or_throw(config::load_model_config(directory));
  const weights::Checkpoint checkpoint = value_or_throw(weights::Checkpoint::open(directory));
  model_ = Model::create(config, options, backend, rank);
  weights::LoadOptions load_options;
  load_options.num_threads = 2;
  load_options.ignored_prefixes = model_->ignored_prefixes();
  ops::Uploader uploader(backend, 2);
  load_options.copy = [&uploader](void* to, const void* from, int64_t bytes) {
    uploader.copy(to, from, bytes);
  };
  if (draft_directory.empty()) {
    throw_on_error(weights::load_parameters(checkpoint, model_->parameters(), load_options));
  } else {
    const auto draft_config = value_or_throw(config::load_draft_config(draft_directory, config));
    const auto draft = value_or_throw(weights::Checkpoint::open(draft_directory));
    throw_on_error(load_with_draft_layer(checkpoint, {&draft, draft_config.layer_idx},
                                         {model_.get()}, load_options));
  }
  uploader.finish();
  model_->finish_loading(*stream_);
}

// What a ForwardBatch is made of.
struct StepHarness::HostBatch {
  std::vector<int32_t> token_ids, positions, next_tokens, query_start = {0}, kv_len, block_tables;
  std::vector<int64_t> kv_rows;
  std::vector<uint64_t> tree_mask;
  std::vector<int64_t> first_token;  // of slice i
  std::vector<ExpandedSequence> expanded;
  int64_t num_sequences = 0, num_absorbed_sequences = 0, num_absorbed_tokens = 0, max_blocks = 0;
  bool has_tree_mask = false;

  ForwardBatch send(DeviceValues& device) const {
    ForwardBatch batch;
    batch.token_ids = device.send(token_ids);
    batch.positions = device.send(positions);
    batch.kv_rows = device.send(kv_rows);
    if (has_tree_mask) batch.tree_mask = device.send(tree_mask);
    batch.query_start = device.send(query_start);
    batch.kv_len = device.send(kv_len);
    batch.block_tables = device.send(block_tables).reshape({num_sequences, max_blocks});
    batch.num_absorbed_sequences = num_absorbed_sequences;
    batch.num_absorbed_tokens = num_absorbed_tokens;
    batch.expanded = expanded;
    return batch;
  }
};

StepHarness::StepHarness(const LoadedModel& loaded, const HarnessConfig& config)
    : loaded_(loaded),
      config_(config),
      workspace_(loaded.model().make_workspace({.max_batch_tokens = config.max_batch_tokens})),
      kv_(KvStorage::allocate(loaded.model().kv_groups()[0], config.num_blocks,
                              loaded.model().backend())) {
  // A row that is read before it was written shows up as NaN.
  for (const tensor::Tensor& rows : kv_.layers(0, kv_.spec().num_layers)) {
    const std::vector<uint8_t> poison(static_cast<size_t>(rows.num_bytes()), 0xff);
    loaded.model().backend().copy_to_device(rows.data(), poison.data(), rows.num_bytes(),
                                            loaded.stream());
    loaded.stream().synchronize();
  }
  for (int32_t id = 0; id < config.num_blocks; ++id) free_blocks_.push_back(id);
  for (size_t i = free_blocks_.size(); i > 1; --i) {
    std::swap(free_blocks_[i - 1], free_blocks_[philox(7, 0, i)[0] % i]);
  }
}

int StepHarness::add_sequence() {
  sequences_.emplace_back();
  return static_cast<int>(sequences_.size()) - 1;
}

void StepHarness::truncate(int sequence, int64_t length) {
  sequences_[static_cast<size_t>(sequence)].length = length;
}

void StepHarness::grow(Sequence& sequence, int64_t length) {
  while (static_cast<int64_t>(sequence.blocks.size()) * kv_.spec().block_tokens < length) {
    FATHOM_CHECK(!free_blocks_.empty(), "the test needs more blocks");
    sequence.blocks.push_back(free_blocks_.back());
    free_blocks_.pop_back();
  }
}

void StepHarness::add_slice(const Slice& slice, bool absorbed, HostBatch& host) {
  const Sequence& sequence = sequences_[static_cast<size_t>(slice.sequence)];
  const int64_t num_tokens = static_cast<int64_t>(slice.tokens.size());
  const int64_t block_tokens = kv_.spec().block_tokens;
  const int64_t token_begin = static_cast<int64_t>(host.token_ids.size());
  for (int64_t i = 0; i < num_tokens; ++i) {
    const size_t idx = static_cast<size_t>(i);
    const int64_t relative = slice.relative_positions.empty() ? i : slice.relative_positions[idx];
    const int64_t row = sequence.length + i;
    const int64_t block = sequence.blocks[static_cast<size_t>(row / block_tokens)];
    host.token_ids.push_back(slice.tokens[idx]);
    host.next_tokens.push_back(config_.wants_mtp ? slice.next_tokens.at(idx) : 0);
    host.positions.push_back(static_cast<int32_t>(sequence.length + relative));
    host.kv_rows.push_back(block * block_tokens + row % block_tokens);
    const uint64_t causal = i < 63 ? (uint64_t{2} << i) - 1 : ~uint64_t{0};
    host.tree_mask.push_back(slice.tree_mask.empty() ? causal : slice.tree_mask[idx]);
  }
  host.query_start.push_back(host.query_start.back() + static_cast<int32_t>(num_tokens));
  host.kv_len.push_back(static_cast<int32_t>(sequence.length + num_tokens));
  if (absorbed) {
    ++host.num_absorbed_sequences;
    host.num_absorbed_tokens += num_tokens;
  } else {
    host.expanded.push_back({.token_begin = token_begin,
                             .num_tokens = num_tokens,
                             .kv_begin = sequence.length,
                             .sequence_idx = host.num_sequences,
                             .has_tree_mask = !slice.tree_mask.empty()});
  }
  std::vector<int32_t> table = sequence.blocks;
  table.resize(static_cast<size_t>(host.max_blocks), -1);
  host.block_tables.insert(host.block_tables.end(), table.begin(), table.end());
  ++host.num_sequences;
}

StepHarness::HostBatch StepHarness::build(const std::vector<Slice>& slices) {
  HostBatch host;
  std::vector<bool> absorbed;
  for (const Slice& slice : slices) {
    Sequence& sequence = sequences_[static_cast<size_t>(slice.sequence)];
    const int64_t num_tokens = static_cast<int64_t>(slice.tokens.size());
    grow(sequence, sequence.length + num_tokens);
    host.max_blocks = std::max(host.max_blocks, static_cast<int64_t>(sequence.blocks.size()));
    host.has_tree_mask |= !slice.tree_mask.empty();
    absorbed.push_back(loaded_.model().attention_form(num_tokens, sequence.length) ==
                       AttentionForm::kAbsorbed);
  }
  host.first_token.resize(slices.size());
  for (const bool absorbed_pass : {true, false}) {
    for (size_t i = 0; i < slices.size(); ++i) {
      if (absorbed[i] != absorbed_pass) continue;
      host.first_token[i] = static_cast<int64_t>(host.token_ids.size());
      add_slice(slices[i], absorbed_pass, host);
    }
  }
  return host;
}

KeptTokens StepHarness::last_tokens(const HostBatch& host, const std::vector<Slice>& slices,
                                    DeviceValues& device) const {
  std::vector<int32_t> rows;
  std::vector<int64_t> kv_rows;
  for (size_t i = 0; i < slices.size(); ++i) {
    rows.push_back(static_cast<int32_t>(host.first_token[i] + std::ssize(slices[i].tokens) - 1));
    kv_rows.push_back(host.kv_rows[static_cast<size_t>(rows.back())]);
  }
  const Model& model = loaded_.model();
  return {.rows = device.send(rows),
          .kv_rows = device.send(kv_rows),
          .out = device.empty(model.backend().act,
                              {std::ssize(slices), int64_t{model.config().hidden_size}}),
          .lane_starts = {}};
}

std::vector<SliceOutput> StepHarness::step(const std::vector<Slice>& slices, LayerTap* tap) {
  const HostBatch host = build(slices);
  const Model& model = loaded_.model();
  ops::Stream& stream = loaded_.stream();
  DeviceValues device(model.backend(), stream);
  ForwardBatch batch = host.send(device);
  if (keeps_last_mtp_tokens_) batch.kept = last_tokens(host, slices, device);
  const int64_t tokens = batch.num_tokens(), vocab_size = model.config().vocab_size;
  const Tensor logits = device.empty(DType::kF32, {tokens, vocab_size});
  const Tensor mtp_logits = device.empty(DType::kF32, {tokens, vocab_size});

  const Tensor hidden = model.forward(batch, kv_, workspace_, stream, tap);
  model.logits(hidden, logits, stream);
  if (config_.wants_mtp && only_mtp_rows_) {
    model.mtp_append_rows(hidden, device.send(host.next_tokens), batch, kv_, workspace_, stream);
  } else if (config_.wants_mtp) {
    const Tensor drafts =
        model.mtp_forward(hidden, device.send(host.next_tokens), batch, kv_, workspace_, stream);
    model.draft_logits(drafts, mtp_logits.slice(0, 0, drafts.dim(0)), stream);
  }
  stream.synchronize();

  std::vector<SliceOutput> outputs;
  for (size_t i = 0; i < slices.size(); ++i) {
    const int64_t begin = host.first_token[i];
    const int64_t count = static_cast<int64_t>(slices[i].tokens.size());
    SliceOutput out;
    out.hidden = device.fetch_rows(hidden, begin, count);
    out.logits = device.fetch_rows(logits, begin, count);
    if (config_.wants_mtp && !only_mtp_rows_)
      out.mtp_logits = keeps_last_mtp_tokens_
                           ? device.fetch_rows(mtp_logits, static_cast<int64_t>(i), 1)
                           : device.fetch_rows(mtp_logits, begin, count);
    outputs.push_back(std::move(out));
    sequences_[static_cast<size_t>(slices[i].sequence)].length += count;
  }
  return outputs;
}

std::vector<int32_t> StepHarness::generate(const std::vector<int32_t>& prompt, int num_tokens,
                                           int64_t chunk_tokens, int32_t eos_token_id) {
  const int sequence = add_sequence();
  std::vector<int32_t> output;
  std::vector<int32_t> feed = prompt;
  while (true) {
    const auto count =
        static_cast<std::ptrdiff_t>(std::min(chunk_tokens, static_cast<int64_t>(feed.size())));
    Slice slice{.sequence = sequence,
                .tokens = std::vector<int32_t>(feed.begin(), feed.begin() + count)};
    const SliceOutput out = std::move(step({slice})[0]);
    feed.erase(feed.begin(), feed.begin() + count);
    if (!feed.empty()) continue;
    output.push_back(argmax(out.logits.back()));
    if (static_cast<int>(output.size()) == num_tokens || output.back() == eos_token_id) break;
    feed = {output.back()};
  }
  return output;
}

void LastTokenTap::on_layer(int layer_idx, const Tensor& residual, const Tensor& branch,
                            ops::Stream& stream) {
  FATHOM_CHECK(layer_idx == static_cast<int>(rows.size()), "layer " << layer_idx);
  DeviceValues device(stream.backend(), stream);
  const int64_t last = residual.dim(0) - 1;
  std::vector<float> row = device.fetch_rows(residual, last, 1)[0];
  if (!branch.is_null()) {
    const std::vector<float> added = device.fetch_rows(branch, last, 1)[0];
    for (size_t i = 0; i < row.size(); ++i) row[i] += added[i];
  }
  rows.push_back(std::move(row));
}

int32_t argmax(const std::vector<float>& values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

double max_abs_difference(const std::vector<float>& a, const std::vector<float>& b) {
  FATHOM_CHECK(a.size() == b.size(), a.size() << " values against " << b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (!(difference <= worst)) worst = difference;  // NaN wins
  }
  return worst;
}

double mean_abs_difference(const std::vector<float>& a, const std::vector<float>& b) {
  FATHOM_CHECK(a.size() == b.size(), a.size() << " values against " << b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(double{a[i]} - double{b[i]});
  return sum / static_cast<double>(a.size());
}

}  // namespace fathom::model
