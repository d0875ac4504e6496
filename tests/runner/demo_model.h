#pragma once
// The demo checkpoint (models/demo) with its golden outputs, for tests of everything that runs a model.
// Loaded once per test program, dequantised to float32: what golden.json was computed with.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "base/json.h"
#include "base/startup_error.h"
#include "config/model_config.h"
#include "core/request.h"
#include "cpu/fast/fast_backend.h"
#include "cpu/reference/reference_backend.h"
#include "cuda/backend.h"
#include "model/model.h"
#include "ops/uploader.h"
#include "runner/model_runner.h"
#include "tests/source_tree.h"
#include "weights/checkpoint.h"
#include "weights/loader.h"

namespace fathom::testing {

inline constexpr int32_t kDemoEos = 1;

// ThreadSanitizer makes the kernels some fifty times slower: tests of models take fewer and shorter
// prompts then. The threads between engine and runner are the same.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
inline constexpr int kNumThreads = kThreadSanitizer ? 1 : 2;

inline std::string demo_path() { return source_path("models/demo"); }

struct GoldenPrompt {
  std::vector<int32_t> prompt_ids, greedy_ids;
  std::vector<float> prompt_logprobs;
};

inline std::vector<GoldenPrompt> load_golden() {
  std::ifstream file(source_path("tests/data/demo/golden.json"));
  std::stringstream text;
  text << file.rdbuf();
  const json::Value golden = value_or_throw(json::parse(text.str()));
  std::vector<GoldenPrompt> prompts;
  for (const json::Value& entry : golden)
    prompts.push_back({entry.at("prompt_ids").get<std::vector<int32_t>>(),
                       entry.at("greedy_ids").get<std::vector<int32_t>>(),
                       entry.at("prompt_logprobs").get<std::vector<float>>()});
  return prompts;
}

inline std::unique_ptr<model::Model> load_model(const std::string& directory,
                                                const ops::Backend& backend,
                                                const model::ModelOptions& model_options,
                                                const comm::RankContext& rank = {}) {
  const config::ModelConfig config = value_or_throw(config::load_model_config(directory));
  std::unique_ptr<model::Model> model = model::Model::create(config, model_options, backend, rank);
  const weights::Checkpoint checkpoint = value_or_throw(weights::Checkpoint::open(directory));
  weights::LoadOptions options;
  options.ignored_prefixes = model->ignored_prefixes();
  ops::Uploader uploader(backend, options.num_threads);
  options.copy = [&uploader](void* to, const void* from, int64_t bytes) {
    uploader.copy(to, from, bytes);
  };
  throw_on_error(weights::load_parameters(checkpoint, model->parameters(), options));
  uploader.finish();
  std::unique_ptr<ops::Stream> stream = backend.make_stream({.num_threads = 1});
  model->finish_loading(*stream);
  return model;
}

inline std::unique_ptr<model::Model> load_demo(const ops::Backend& backend,
                                               const model::ModelOptions& model_options,
                                               const comm::RankContext& rank = {}) {
  return load_model(demo_path(), backend, model_options, rank);
}

inline std::unique_ptr<model::Model> load_demo(const ops::Backend& backend) {
  return load_demo(backend, {.dequantize = true, .weight_dtype = tensor::DType::kF32});
}

// On the reference backend.
inline const model::Model& demo_model() {
  static const std::unique_ptr<model::Model> model = load_demo(cpu::reference_backend());
  return *model;
}

// On the fast backend, or with FATHOM_TEST_DEVICE=cuda in the environment on the GPU, in bf16 and deterministic:
// what bf16 rounds away shows in the tokens wherever chunks or company change the order of sums.
inline const model::Model& fast_demo_model() {
  static const std::unique_ptr<model::Model> model = [] {
    const char* device = std::getenv("FATHOM_TEST_DEVICE");
    if (device == nullptr || std::string(device) != "cuda") return load_demo(cpu::fast_backend());
    return load_demo(cuda::batch_invariant_backend(),
                     {.dequantize = true,
                      .weight_dtype = tensor::DType::kBf16,
                      .kv_cache_dtype = tensor::DType::kBf16,
                      .attention_form = model::AttentionForm::kAbsorbed});
  }();
  return *model;
}

// What promises the same bits whatever a request's company: the fast CPU backend, or with FATHOM_TEST_DEVICE=cuda in
// the environment the GPU's batch-invariant table.
inline const ops::Backend& invariant_backend() {
  const char* device = std::getenv("FATHOM_TEST_DEVICE");
  if (device == nullptr || std::string(device) != "cuda") return cpu::fast_backend();
  return cuda::batch_invariant_backend();
}

inline core::SamplingParams greedy(int max_new_tokens) {
  core::SamplingParams params;
  params.temperature = 0;
  params.max_new_tokens = max_new_tokens;
  return params;
}

}  // namespace fathom::testing
