#pragma once
// SamplingDefaults: what a chat or completions request gets where it says nothing. Two sources:
//   openai  the values that the OpenAI API documents, for every model (the default: what a client reads in
//           the API's documentation is what it gets)
//   model   the checkpoint's generation_config.json, where that says something
//
//   Result<SamplingDefaults> defaults = sampling_defaults_from_model(read_file("generation_config.json"));
//   if (!defaults) throw StartupError(defaults.error().message);
//
// Plain data. The function is pure and thread-safe.

#include <string_view>

#include "base/result.h"

namespace fathom::api {

struct SamplingDefaults {
  float temperature = 1.0f;
  float top_p = 1.0f;
  int top_k = -1;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
};

// Reads temperature, top_p, top_k, min_p and repetition_penalty; keys that are missing or null keep OpenAI's
// value. do_sample is not looked at: checkpoints carry it from the library that wrote them.
Result<SamplingDefaults> sampling_defaults_from_model(std::string_view generation_config_json);

}  // namespace fathom::api
