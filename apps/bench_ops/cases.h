#pragma once
// The cases of `fathom bench ops`: an operator with the shapes of a model, made for any number of tokens.
//
//   for (const OpCase& bench_case : all_op_cases(shapes)) {
//     Operands operands(backend, *stream, pieces, seed);
//     OpCall call = bench_case.make(operands, /*tokens=*/8);       // once for each copy
//     call.run(*stream);
//   }
//
// A call names memory of its operands. Pure functions otherwise; the shapes outlive the cases.

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "apps/bench_ops/head_cosine.h"
#include "apps/bench_ops/on_reference.h"
#include "apps/bench_ops/operands.h"
#include "config/model_config.h"
#include "layers/fused_ops.h"

namespace fathom::apps {

struct OpShapes {
  config::ModelConfig config;
  const ops::Backend* backend = nullptr;
  layers::WeightTypes types{};
  layers::FusedOps fused{};  // what the layers would run
  tensor::DType kv_cache_dtype = tensor::DType::kF32;
  std::vector<int> contexts{};  // rows of the cache that a decode's sequence sees
};

struct OpCall {
  double bytes = 0;  // that cannot but be read or written, each once
  double flops = 0;  // of a product; 0 = none is counted
  // What a model does once for many calls. Empty = nothing. Before the first run.
  std::function<void(ops::Stream&)> prepare;
  std::function<void(ops::Stream&)> run;
  // The result of a cut: as the reference computes it from the operands, before the run, and as the run left it.
  std::function<std::vector<float>(OnReference&)> expected, actual;
};

// Steps of more tokens hold prompts, whose absorbed attention and logits nobody computes.
inline constexpr int64_t kMaxDecodeTokens = 512;
// Prompts of fewer tokens say little about operators of prompts alone.
inline constexpr int64_t kMinPromptTokens = 64;

struct OpCase {
  std::string op, what;
  tensor::DType dtype = tensor::DType::kF32;  // for Backend::supports
  std::function<OpCall(Operands&, int64_t tokens)> make;
  int64_t min_tokens = 1, max_tokens = std::numeric_limits<int64_t>::max();
  // Of a linear product's matrix, or of both of a pair; 0: no such operator.
  int64_t out = 0, in = 0;
  HeadShape heads{};  // of head_linear
};

// Rows of a call that are compared: its last.
inline int64_t first_checked(int64_t tokens) { return tokens > 2 ? tokens - 2 : 0; }
inline tensor::Tensor checked(const tensor::Tensor& rows) {
  return rows.slice(0, first_checked(rows.dim(0)), rows.dim(0));
}
inline ops::Activation checked(const ops::Activation& rows) {
  return rows.rows(first_checked(rows.dim(0)), rows.dim(0));
}
inline double bytes_of(std::initializer_list<tensor::Tensor> tensors) {
  double bytes = 0;
  for (const tensor::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.num_bytes());
  return bytes;
}

std::vector<OpCase> linear_cases(const OpShapes& shapes);  // linear, linear_pair, head_linear
std::vector<OpCase> row_cases(const OpShapes& shapes);     // norms, activations, quantisation, rope
std::vector<OpCase> cache_cases(const OpShapes& shapes);   // kv_append, kv_gather
std::vector<OpCase> attention_cases(const OpShapes& shapes);  // both forms
std::vector<OpCase> index_cases(
    const OpShapes& shapes);  // of models with an indexer, attention to its rows
std::vector<OpCase> moe_cases(const OpShapes& shapes);  // gate and experts
// Inputs of steps, sampled tokens, changes of slots.
std::vector<OpCase> slot_cases(const OpShapes& shapes);
std::vector<OpCase> verify_cases(const OpShapes& shapes);  // verification of drafts
std::vector<OpCase> draft_cases(const OpShapes& shapes);   // drafting
std::vector<OpCase> sample_cases(const OpShapes& shapes);

std::vector<OpCase> all_op_cases(const OpShapes& shapes);

}  // namespace fathom::apps
