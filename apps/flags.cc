#include "apps/flags.h"

#include <unistd.h>

#include <charconv>

#include "apps/model_directory.h"
#include "base/log.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

constexpr int kMaxTokens = 1 << 30;

std::pair<int32_t, float> parse_logit_bias(const std::string& text) {
  const size_t colon = text.find(':');
  int32_t token_id = 0;
  float bias = 0;
  const char* end = text.data() + text.size();
  bool good = colon != std::string::npos;
  if (good) {
    const char* middle = text.data() + colon;
    const auto id = std::from_chars(text.data(), middle, token_id);
    const auto value = std::from_chars(middle + 1, end, bias);
    good = id.ec == std::errc() && id.ptr == middle && value.ec == std::errc() && value.ptr == end;
  }
  if (!good) throw StartupError("--logit-bias \"" + text + "\" is not TOKEN_ID:BIAS, e.g. 42:-1.5");
  return {token_id, bias};
}

}  // namespace

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  const std::string group = "Model";
  app.add_option("-m,--model-path", flags.model_path,
                 "Hugging Face checkpoint directory; demo is the one that comes with this program")
      ->required()
      ->transform(checkpoint_directory("--model-path"))
      ->type_name("DIR")
      ->group(group);
  app.add_option(
         "--load-format", flags.load_format,
         "auto reads the checkpoint; dummy fills the weights with seeded random values, for which "
         "config.json is enough; what reads or writes text needs the tokenizer, too")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->type_name("auto|dummy")
      ->group(group);
  app.add_option("--num-layers", flags.num_layers, "Keep only the first N decoder layers")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N")
      ->default_str("all")
      ->group(group);
  app.add_flag("--dequantize", flags.dequantize,
               "Compute with bfloat16 or float32 weights from an FP8 checkpoint; without it FP8 "
               "weights stay FP8 and activations are quantised per 128 channels")
      ->group(group);
  app.add_option("--dtype", flags.dtype,
                 "Type of the weights that are not FP8; auto takes float32 where config.json says "
                 "so, else bfloat16")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
      ->type_name("auto|float32|bfloat16")
      ->group(group);
  app.add_option("--kv-cache-dtype", flags.kv_cache_dtype,
                 "Type of the cache rows; auto takes float32 on a CPU and bfloat16 on a GPU. "
                 "fp8_e4m3 keeps the latent "
                 "part in FP8 with a scale per 128 channels and the rotary part in bfloat16")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "bf16", "fp8_e4m3"}))
      ->type_name("auto|float32|bfloat16|fp8_e4m3")
      ->group(group);
  app.add_option("--absorbed-dtype", flags.absorbed_dtype,
                 "Type of W_UK and W_UV, the parts of kv_b_proj that absorbed attention multiplies "
                 "with; auto takes that of the weights that are not FP8. fp8_e4m3 quantises them "
                 "after loading and their rows in every step")
      ->check(CLI::IsMember({"auto", "bfloat16", "fp8_e4m3"}))
      ->type_name("auto|bfloat16|fp8_e4m3")
      ->group(group);
  app.add_option("--context-length", flags.context_length,
                 "Longest sequence, prompt and output together")
      ->check(CLI::Range(int64_t{1}, int64_t{kMaxTokens}))
      ->type_name("TOKENS")
      ->default_str("max_position_embeddings")
      ->group(group);
  app.add_option("--random-seed", flags.random_seed, "Seed of dummy weights")
      ->type_name("N")
      ->group(group);
}

void add_deterministic_flag(CLI::App& app, ModelFlags& flags) {
  app.add_flag(
         "--deterministic", flags.deterministic,
         "Compute every token of a request the same way, so that its tokens depend on the "
         "request alone: not on the prefix cache, the chunk size, retractions or drafts (on a GPU: "
         "drafts in chains). Prompts take longer")
      ->group("Model");
}

void add_memory_flags(CLI::App& app, MemoryFlags& flags) {
  const std::string group = "Memory";
  app.add_option("--mem-fraction-static", flags.mem_fraction_static,
                 "Part of the memory that is free once weights and the largest step are in place "
                 "which the KV cache may take")
      ->check(CLI::Range(0.01, 1.0))
      ->type_name("FRACTION")
      ->default_str("0.25 on a CPU, 0.9 on a GPU")
      ->group(group);
  app.add_option("--max-total-tokens", flags.max_total_tokens,
                 "Tokens that the KV cache holds, instead of what fits --mem-fraction-static")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("TOKENS")
      ->default_str("by memory")
      ->group(group);
  app.add_option("--max-running-requests", flags.max_running_requests,
                 "Requests that run at the same time")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N")
      ->group(group);
  app.add_option("--chunked-prefill-size", flags.chunked_prefill_size,
                 "Prompt tokens that one step computes at most")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("TOKENS")
      ->default_str("2048 on a CPU, 8192 on a GPU")
      ->group(group);
}

void add_device_flags(CLI::App& app, DeviceFlags& flags) {
  const std::string group = "Device";
  app.add_option("--device", flags.device,
                 "Where to compute; auto takes the GPU where there is a Hopper one, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->type_name("auto|cpu|cuda")
      ->group(group);
  app.add_flag("--disable-cuda-graph", flags.disable_cuda_graph,
               "Launch every kernel of a decode step instead of replaying a captured graph")
      ->group(group);
  app.add_option("--cuda-graph-max-bs", flags.cuda_graph_max_bs,
                 "Decode steps of up to so many requests are captured, in sizes that rise to it")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N")
      ->default_str("128 on a GPU")
      ->group(group);
  app.add_option("--cuda-graph-bs", flags.cuda_graph_bs,
                 "The numbers of requests for which decode steps are captured; a step is padded to "
                 "the next one")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N...")
      ->group(group);
  app.add_option("--gemm-backend", flags.gemm_backend,
                 "Who multiplies more than 128 rows on a GPU: auto takes cuBLASLt where this "
                 "machine has it and it was measured to be faster")
      ->check(CLI::IsMember({"auto", "fathom", "cublaslt"}))
      ->type_name("auto|fathom|cublaslt")
      ->group(group);
  app.add_option("--attention-backend", flags.attention_backend,
                 "Kernels of attention: auto takes those made for the rows and the processor, "
                 "generic those that take any rows, which are slow; to compare")
      ->check(CLI::IsMember({"auto", "generic"}))
      ->type_name("auto|generic")
      ->group(group);
  app.add_flag("--disable-fusion", flags.disable_fusion,
               "Run the parts of fused operators one by one; to compare")
      ->group(group);
  app.add_option("--cpu-threads", flags.cpu_threads, "Threads that compute")
      ->check(CLI::Range(0, 4096))
      ->type_name("N")
      ->default_str("physical cores")
      ->group(group);
  app.add_option("--cpu-backend", flags.cpu_backend,
                 "fast is vectorised and threaded; reference is plain float32 code to compare with")
      ->check(CLI::IsMember({"fast", "reference"}))
      ->type_name("fast|reference")
      ->group(group);
}

void add_log_flags(CLI::App& app, LogFlags& flags) {
  app.add_option(
         "--log-level", flags.log_level,
         "Least important messages to show on standard error; debug includes every effective "
         "setting")
      ->each([&flags](const std::string&) { flags.is_given = true; })
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->type_name("debug|info|warning|error")
      ->default_str("info; warning on a terminal while it starts")
      ->group("Logging");
}

void add_overlap_flag(CLI::App& app, const std::string& group, bool& disable_overlap_schedule) {
  app.add_flag("--disable-overlap-schedule", disable_overlap_schedule,
               "Plan a step only when the one before has ended")
      ->group(group);
}

void add_engine_flags(CLI::App& app, EngineFlags& flags) {
  add_model_flags(app, flags.model);
  add_deterministic_flag(app, flags.model);
  add_memory_flags(app, flags.memory);
  add_speculation_flags(app, flags.speculation);
  add_device_flags(app, flags.device);
  add_rank_flags(app, flags.ranks);
  add_rank_wait_flag(app, flags.ranks);
  add_log_flags(app, flags.log);
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  const std::string group = "Sampling";
  core::SamplingParams& params = flags.params;
  const auto number = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->type_name("X")->group(group);
  };
  const auto count = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->type_name("N")->group(group);
  };
  count("--max-new-tokens", params.max_new_tokens, "Most tokens to generate");
  count("--min-new-tokens", params.min_new_tokens, "Stop tokens are banned before this many");
  number("--temperature", params.temperature, "0 takes the most likely token each time");
  count("--top-k", params.top_k, "Choose among the K most likely tokens")->default_str("all");
  number("--top-p", params.top_p, "Choose among the most likely tokens that sum to P");
  number("--min-p", params.min_p, "Drop tokens less likely than this times the most likely");
  number("--repetition-penalty", params.repetition_penalty,
         "Above 1 discourages tokens of prompt and output");
  number("--frequency-penalty", params.frequency_penalty,
         "Subtracted per occurrence in the output");
  number("--presence-penalty", params.presence_penalty,
         "Subtracted once for a token in the output");
  app.add_option("--logit-bias", flags.logit_bias, "Added to a token's logit; repeatable")
      ->type_name("ID:BIAS")
      ->group(group);
  count("--seed", params.seed, "Of the draws; the same one gives the same draws")
      ->default_str("random");
  app.add_option("--stop-token-ids", params.stop_token_ids,
                 "Token ids that end the output, besides the model's own")
      ->type_name("ID")
      ->delimiter(',')
      ->group(group);
  app.add_flag("--ignore-eos", params.ignore_eos, "Go on after the end-of-text token")
      ->group(group);
}

bool LogFlags::is_quiet() const { return !is_given && !is_json && isatty(STDERR_FILENO) == 1; }

void apply_log_flags(const LogFlags& flags) {
  if (flags.is_quiet()) return set_log_level(LogLevel::kWarning);
  if (flags.log_level == "debug") set_log_level(LogLevel::kDebug);
  if (flags.log_level == "info") set_log_level(LogLevel::kInfo);
  if (flags.log_level == "warning") set_log_level(LogLevel::kWarning);
  if (flags.log_level == "error") set_log_level(LogLevel::kError);
}

core::SamplingParams sampling_params(const SamplingFlags& flags) {
  core::SamplingParams params = flags.params;
  for (const std::string& text : flags.logit_bias) {
    params.logit_bias.push_back(parse_logit_bias(text));
  }
  return params;
}

}  // namespace fathom::apps
