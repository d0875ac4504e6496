#pragma once
// Times of one shape's product on the GPU under a choice, which it puts into the process's table (tuned/table.h) while
// the work is captured: calls in a row over copies of the weights that no cache holds, replayed.
//
//   MatrixTimer timer(backend, shape, {1, 8, 4096}, pieces);
//   const std::vector<double> seconds = timer.measure(choice, /*rows=*/8, /*num_samples=*/3);
//
// Owns its operands, of which the largest of the numbers of rows decides the size. Throws StartupError when there is no
// room. The table is empty behind it. One thread.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench_ops/operands.h"
#include "apps/tune/candidates.h"
#include "ops/moe.h"

namespace fathom::apps {

// Replays of captured calls. `enqueue` enqueues call i.
class CallSamples {
 public:
  using Enqueue = std::function<void(size_t call, ops::Stream& stream)>;

  CallSamples(ops::Stream& stream, size_t num_calls, const Enqueue& enqueue);
  // Seconds of a call.
  double sample(ops::Stream& stream) const;

 private:
  size_t num_calls_;
  std::unique_ptr<ops::Graph> graph_;
  std::unique_ptr<ops::Event> begin_, end_;
};

// The samples that were captured last, by what they are of.
class SampleCache {
 public:
  CallSamples& get(const std::string& key, const std::function<CallSamples()>& make);

 private:
  std::map<std::string, CallSamples> samples_;
};

class MatrixTimer {
 public:
  MatrixTimer(const ops::Backend& backend, const tuned::MatrixShape& shape,
              const std::vector<int64_t>& rows, bool has_library, RandomPieces& pieces);
  ~MatrixTimer();
  std::vector<double> measure(const tuned::MatrixChoice& choice, int64_t rows, int num_samples);

 private:
  void take_choice(const tuned::MatrixChoice& choice, int64_t rows) const;
  void enqueue(size_t call, int64_t rows, ops::Stream& stream) const;

  tuned::MatrixShape shape_;
  std::unique_ptr<ops::Stream> stream_;
  Operands operands_;
  ops::Activation x_;
  tensor::Tensor out_;
  std::vector<ops::Weight> weights_;     // copies
  std::map<int64_t, size_t> num_calls_;  // by rows
  SampleCache cache_;
};

class ExpertTimer {
 public:
  ExpertTimer(const ops::Backend& backend, const ExpertTask& experts,
              const std::vector<int64_t>& tokens, RandomPieces& pieces);
  ~ExpertTimer();
  std::vector<double> measure(const tuned::ExpertChoice& choice, int64_t tokens, int num_samples);

 private:
  void enqueue(size_t call, int64_t tokens, ops::Stream& stream) const;

  ExpertTask experts_;
  std::unique_ptr<ops::Stream> stream_;
  Operands operands_;
  ops::MoeExpertsArgs args_;                            // of the most tokens
  std::map<int64_t, std::vector<tensor::Tensor>> ids_;  // by tokens: copies that name other experts
  std::map<int64_t, size_t> num_calls_;
  SampleCache cache_;
};

}  // namespace fathom::apps
