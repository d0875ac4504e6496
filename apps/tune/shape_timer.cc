#include "apps/tune/shape_timer.h"

#include <algorithm>
#include <cmath>

#include "tuned/file.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// More than caches hold.
constexpr double kColdBytes = 200e6;
constexpr size_t kMaxCopies = 64;
// A sample takes about so long, beside which events and the launch of a graph are little.
constexpr double kSampleSeconds = 400e-6;
constexpr size_t kMaxCalls = 48;
constexpr size_t kMaxCached = 12;

size_t copies_to_be_cold(double bytes) {
  return static_cast<size_t>(std::clamp(std::ceil(kColdBytes / bytes), 1.0, double{kMaxCopies}));
}

size_t calls_to_fill(double seconds) {
  const double calls = std::ceil(kSampleSeconds / std::max(seconds, 1e-7));
  return static_cast<size_t>(std::clamp(calls, 2.0, double{kMaxCalls}));
}

int64_t most(const std::vector<int64_t>& rows) {
  return *std::max_element(rows.begin(), rows.end());
}

std::vector<double> samples_of(const CallSamples& samples, int num_samples, ops::Stream& stream) {
  std::vector<double> seconds;
  for (int i = 0; i < num_samples; ++i) seconds.push_back(samples.sample(stream));
  return seconds;
}

template <class Choices, class Shape, class Choice>
void set_only(const Shape& shape, int64_t rows, const Choice& choice) {
  tuned::Table table;
  if (!(choice == Choice{}))
    table.put(Choices{.device = {},
                      .shape = shape,
                      .entries = {{.rows = rows, .choice = choice}},
                      .from = "tuner"});
  tuned::set_table(std::move(table));
}

double bytes_of_weight(const tuned::MatrixShape& shape) {
  return static_cast<double>(shape.n * shape.k * tensor::dtype_bytes(shape.dtype));
}

std::vector<int32_t> draw_experts(Operands& operands, int64_t tokens, int64_t experts,
                                  int64_t chosen) {
  std::vector<int32_t> ids;
  for (int64_t token = 0; token < tokens; ++token) {
    const auto begin = static_cast<std::ptrdiff_t>(ids.size());
    while (static_cast<int64_t>(ids.size()) - begin < chosen) {
      const auto id = static_cast<int32_t>(operands.draw(experts));
      if (std::find(ids.begin() + begin, ids.end(), id) == ids.end()) ids.push_back(id);
    }
  }
  return ids;
}

}  // namespace

CallSamples::CallSamples(ops::Stream& stream, size_t num_calls, const Enqueue& enqueue)
    : num_calls_(num_calls),
      graph_(stream.capture([&] {
        for (size_t i = 0; i < num_calls; ++i) enqueue(i, stream);
      })),
      begin_(stream.make_event()),
      end_(stream.make_event()) {
  sample(stream);
}

double CallSamples::sample(ops::Stream& stream) const {
  begin_->record();
  graph_->replay(stream);
  end_->record();
  end_->wait();
  return end_->seconds_since(*begin_) / static_cast<double>(num_calls_);
}

CallSamples& SampleCache::get(const std::string& key, const std::function<CallSamples()>& make) {
  const auto known = samples_.find(key);
  if (known != samples_.end()) return known->second;
  if (samples_.size() >= kMaxCached) samples_.clear();
  return samples_.emplace(key, make()).first->second;
}

MatrixTimer::MatrixTimer(const ops::Backend& backend, const tuned::MatrixShape& shape,
                         const std::vector<int64_t>& rows, bool has_library, RandomPieces& pieces)
    : shape_(shape),
      stream_(backend.make_stream({.num_threads = 1})),
      operands_(backend, *stream_, pieces, /*seed=*/1) {
  const int64_t most_rows = most(rows);
  x_ = operands_.rows(most_rows, shape.k, shape.dtype == DType::kF8E4M3);
  out_ = operands_.empty(backend.act, {most_rows, shape.n});
  for (size_t i = copies_to_be_cold(bytes_of_weight(shape)); i > 0; --i)
    weights_.push_back(operands_.weight(shape.dtype, {shape.n, shape.k}));
  stream_->synchronize();
  stream_->begin_measuring();
  take_choice({}, most_rows);
  enqueue(0, most_rows, *stream_);
  if (has_library && most_rows > tuned::kMaxBatchRows) {
    take_choice({.kernel = tuned::MatrixKernel::kLibrary}, most_rows);
    enqueue(0, most_rows, *stream_);
  }
  stream_->seal_scratch();
}

MatrixTimer::~MatrixTimer() {
  tuned::set_table({});
  stream_->synchronize();
}

void MatrixTimer::take_choice(const tuned::MatrixChoice& choice, int64_t rows) const {
  set_only<tuned::MatrixChoices>(shape_, rows, choice);
}

void MatrixTimer::enqueue(size_t call, int64_t rows, ops::Stream& stream) const {
  ops::linear({.x = x_.rows(0, rows),
               .weight = weights_[call % weights_.size()],
               .out = out_.slice(0, 0, rows)},
              stream);
}

std::vector<double> MatrixTimer::measure(const tuned::MatrixChoice& choice, int64_t rows,
                                         int num_samples) {
  const auto enqueue_call = [&](size_t call, ops::Stream& stream) { enqueue(call, rows, stream); };
  const std::string key = std::to_string(rows) + " " + tuned::choice_text(choice);
  const CallSamples& samples = cache_.get(key, [&] {
    take_choice(choice, rows);
    enqueue(0, rows, *stream_);  // loads what is loaded at first use
    stream_->synchronize();
    size_t& num_calls = num_calls_[rows];
    if (num_calls == 0)
      num_calls = calls_to_fill(CallSamples(*stream_, 4, enqueue_call).sample(*stream_));
    return CallSamples(*stream_, num_calls, enqueue_call);
  });
  return samples_of(samples, num_samples, *stream_);
}

ExpertTimer::ExpertTimer(const ops::Backend& backend, const ExpertTask& experts,
                         const std::vector<int64_t>& tokens, RandomPieces& pieces)
    : experts_(experts),
      stream_(backend.make_stream({.num_threads = 1})),
      operands_(backend, *stream_, pieces, /*seed=*/1) {
  const tuned::ExpertShape& shape = experts.shape;
  const int64_t most_tokens = most(tokens), chosen = experts.num_experts_per_tok;
  const int64_t hidden = experts.hidden_size;
  args_ = {.x = operands_.rows(most_tokens, hidden, shape.dtype == DType::kF8E4M3),
           .ids = {},
           .weights = operands_.random(DType::kF32, {most_tokens, chosen}, 0, 0.5f),
           .gate_up = operands_.weight(shape.dtype, {shape.experts, 2, shape.inter, hidden}),
           .down = operands_.weight(shape.dtype, {shape.experts, hidden, shape.inter}),
           .out = operands_.empty(backend.act, {most_tokens, hidden})};
  const double expert_bytes =
      3 * static_cast<double>(shape.inter * hidden * tensor::dtype_bytes(shape.dtype));
  for (const int64_t count : tokens) {
    const double used =
        std::min(static_cast<double>(count * chosen), static_cast<double>(shape.experts));
    const size_t copies = std::min<size_t>(copies_to_be_cold(used * expert_bytes), 16);
    for (size_t i = 0; i < copies; ++i)
      ids_[count].push_back(
          operands_.upload(draw_experts(operands_, count, shape.experts, chosen), {count, chosen}));
  }
  stream_->synchronize();
  stream_->begin_measuring();
  enqueue(0, most_tokens, *stream_);
  stream_->seal_scratch();
}

ExpertTimer::~ExpertTimer() {
  tuned::set_table({});
  stream_->synchronize();
}

void ExpertTimer::enqueue(size_t call, int64_t tokens, ops::Stream& stream) const {
  const std::vector<Tensor>& ids = ids_.at(tokens);
  ops::MoeExpertsArgs args = args_;
  args.x = args_.x.rows(0, tokens);
  args.ids = ids[call % ids.size()];
  args.weights = args_.weights.slice(0, 0, tokens);
  args.out = args_.out.slice(0, 0, tokens);
  ops::moe_experts(args, stream);
}

std::vector<double> ExpertTimer::measure(const tuned::ExpertChoice& choice, int64_t tokens,
                                         int num_samples) {
  const auto enqueue_call = [&](size_t call, ops::Stream& stream) {
    enqueue(call, tokens, stream);
  };
  const std::string key = std::to_string(tokens) + " " + tuned::choice_text(choice);
  const CallSamples& samples = cache_.get(key, [&] {
    set_only<tuned::ExpertChoices>(experts_.shape, tokens, choice);
    size_t& num_calls = num_calls_[tokens];
    if (num_calls == 0)
      num_calls = calls_to_fill(CallSamples(*stream_, 2, enqueue_call).sample(*stream_));
    return CallSamples(*stream_, num_calls, enqueue_call);
  });
  return samples_of(samples, num_samples, *stream_);
}

}  // namespace fathom::apps
