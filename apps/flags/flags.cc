#include "apps/flags/flags.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "apps/common/model_directory.h"
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

// The parser takes the nearest number of 64 bits for one that has more.
CLI::Validator whole_seed() {
  return CLI::Validator(
      [](std::string& text) {
        errno = 0;
        if (text.starts_with('-'))
          std::strtoll(text.c_str(), nullptr, 0);
        else
          std::strtoull(text.c_str(), nullptr, 0);
        return errno == ERANGE ? text + " has more than 64 bits" : std::string();
      },
      "");
}

}  // namespace

const FlagTable<ModelFlags>& model_flags() {
  static const FlagTable<ModelFlags> table(
      "Model",
      {{"-m,--model-path",
        &ModelFlags::model_path,
        "Hugging Face checkpoint directory; demo is the one that comes with this program",
        {.type = "DIR",
         .parse_rules =
             [](CLI::Option& option, ModelFlags&) {
               option.required()->transform(checkpoint_directory("--model-path"));
             },
         .shown = Shown::kElsewhere,
         .told_by = "the server, which tells of its model"}},
       {"--load-format",
        &ModelFlags::load_format,
        "auto reads the checkpoint; dummy fills the weights with seeded random values, for which "
        "config.json is enough; what reads or writes text needs the tokenizer, too",
        {.type = "auto|dummy", .check = CLI::IsMember({"auto", "dummy"})}},
       {"--num-layers",
        &ModelFlags::num_layers,
        "Keep only the first N decoder layers",
        {.type = "N", .check = CLI::Range(1, 1 << 16), .default_text = "all"}},
       {"--dequantize", &ModelFlags::dequantize,
        "Compute with bfloat16 or float32 weights from an FP8, INT8, W4AFP8 or AWQ checkpoint; "
        "without it quantised weights stay as they are and activations are quantised as they ask "
        "for"},
       {"--dtype",
        &ModelFlags::dtype,
        "Type of the weights that are not quantised; auto takes float32 where config.json says "
        "so, else bfloat16",
        {.type = "auto|float32|bfloat16", .check = CLI::IsMember({"auto", "float32", "bfloat16"})}},
       {"--kv-cache-dtype",
        &ModelFlags::kv_cache_dtype,
        "Type of the cache rows; auto takes float32 on a CPU and bfloat16 on a GPU. "
        "fp8_e4m3 keeps the latent "
        "part in FP8 with a scale per 128 channels and the rotary part in bfloat16",
        {.type = "auto|float32|bfloat16|fp8_e4m3",
         .check = CLI::IsMember({"auto", "float32", "bfloat16", "bf16", "fp8_e4m3"})}},
       {"--absorbed-dtype",
        &ModelFlags::absorbed_dtype,
        "Type of W_UK and W_UV, the parts of kv_b_proj that absorbed attention multiplies "
        "with; auto takes that of the weights that are not FP8. fp8_e4m3 quantises them "
        "after loading and their rows in every step",
        {.type = "auto|bfloat16|fp8_e4m3",
         .check = CLI::IsMember({"auto", "bfloat16", "fp8_e4m3"})}},
       {"--context-length",
        &ModelFlags::context_length,
        "Longest sequence, prompt and output together",
        {.type = "TOKENS",
         .check = CLI::Range(int64_t{1}, int64_t{kMaxTokens}),
         .default_text = "max_position_embeddings"}},
       {"--random-seed",
        &ModelFlags::random_seed,
        "Seed of dummy weights",
        {.type = "N", .check = whole_seed()}}});
  return table;
}

const FlagTable<ModelFlags>& deterministic_flag() {
  static const FlagTable<ModelFlags> table(
      "Model",
      {{"--deterministic", &ModelFlags::deterministic,
        "Compute every token of a request the same way, so that its tokens depend on the "
        "request alone: not on the prefix cache, the chunk size, retractions or drafts (on a GPU: "
        "drafts in chains). Prompts take longer"}});
  return table;
}

const FlagTable<MemoryFlags>& memory_flags() {
  static const FlagTable<MemoryFlags> table(
      "Memory", {{"--mem-fraction-static",
                  &MemoryFlags::mem_fraction_static,
                  "Part of the memory that is free once weights and the largest step are in place "
                  "which the KV cache may take",
                  {.type = "FRACTION",
                   .check = CLI::Range(0.01, 1.0),
                   .default_text = "0.25 on a CPU, 0.9 on a GPU"}},
                 {"--max-total-tokens",
                  &MemoryFlags::max_total_tokens,
                  "Tokens that the KV cache holds, instead of what fits --mem-fraction-static",
                  {.type = "TOKENS",
                   .check = CLI::Range(int64_t{1}, int64_t{1} << 40),
                   .default_text = "by memory"}},
                 {"--max-running-requests",
                  &MemoryFlags::max_running_requests,
                  "Requests that run at the same time",
                  {.type = "N", .check = CLI::Range(1, 1 << 16)}},
                 {"--chunked-prefill-size",
                  &MemoryFlags::chunked_prefill_size,
                  "Prompt tokens that one step computes at most",
                  {.type = "TOKENS",
                   .check = CLI::Range(1, 1 << 20),
                   .default_text = "2048 on a CPU, 8192 on a GPU"}}});
  return table;
}

const FlagTable<DeviceFlags>& device_flags() {
  static const FlagTable<DeviceFlags> table(
      "Device",
      {{"--device",
        &DeviceFlags::device,
        "Where to compute; auto takes the GPU where there is a Hopper one, else the CPU",
        {.type = "auto|cpu|cuda", .check = CLI::IsMember({"auto", "cpu", "cuda"})}},
       {"--disable-cuda-graph", &DeviceFlags::disable_cuda_graph,
        "Launch every kernel of a decode step instead of replaying a captured graph"},
       {"--cuda-graph-max-bs",
        &DeviceFlags::cuda_graph_max_bs,
        "Decode steps of up to so many requests are captured, in sizes that rise to it",
        {.type = "N", .check = CLI::Range(1, 1 << 16), .default_text = "128 on a GPU"}},
       {"--cuda-graph-bs",
        &DeviceFlags::cuda_graph_bs,
        "The numbers of requests for which decode steps are captured; a step is padded to "
        "the next one",
        {.type = "N...", .check = CLI::Range(1, 1 << 16)}},
       {"--gemm-backend",
        &DeviceFlags::gemm_backend,
        "Who multiplies more than 128 rows on a GPU: auto takes cuBLASLt where this "
        "machine has it and it was measured to be faster",
        {.type = "auto|fathom|cublaslt", .check = CLI::IsMember({"auto", "fathom", "cublaslt"})}},
       {"--tuned-dir",
        &DeviceFlags::tuned_dir,
        "Files of `fathom tune` for this GPU, in place of those of the same shapes that come with "
        "the program; none leaves those out, too",
        {.type = "DIR|none", .default_text = "what ships", .shown = Shown::kInLog}},
       {"--attention-backend",
        &DeviceFlags::attention_backend,
        "Kernels of attention: auto takes those made for the rows and the processor, "
        "generic those that take any rows, which are slow; to compare",
        {.type = "auto|generic", .check = CLI::IsMember({"auto", "generic"})}},
       {"--disable-fusion", &DeviceFlags::disable_fusion,
        "Run the parts of fused operators one by one; to compare"},
       {"--enable-fusion", &DeviceFlags::enable_fusion,
        "On a GPU, run chains of element-wise operators as one kernel each, compiled for the "
        "model's widths; the log lists them"},
       {"--fusion-max-bs",
        &DeviceFlags::fusion_max_bs,
        "With --enable-fusion: steps of more tokens run their chains operator by operator",
        {.type = "N", .check = CLI::Range(1, 1 << 16)}},
       {"--jit",
        &DeviceFlags::jit,
        "Kernels compiled at run time by NVRTC, where the model or --enable-fusion wants some: "
        "background serves with those built ahead until they are there, wait compiles before it "
        "serves, off compiles none",
        {.type = "off|background|wait", .check = CLI::IsMember({"off", "background", "wait"})}},
       {"--jit-cache-dir",
        &DeviceFlags::jit_cache_dir,
        "Where compiled kernels are kept, a directory of this user's alone; none keeps nothing",
        {.type = "DIR|none", .default_text = "~/.cache/fathom/jit", .shown = Shown::kInLog}},
       {"--nvrtc-library",
        &DeviceFlags::nvrtc_library,
        "File of NVRTC",
        {.type = "FILE", .default_text = "where the system has it", .shown = Shown::kInLog}},
       {"--cpu-threads",
        &DeviceFlags::cpu_threads,
        "Threads that compute",
        {.type = "N", .check = CLI::Range(0, 4096), .default_text = "physical cores"}},
       {"--cpu-backend",
        &DeviceFlags::cpu_backend,
        "fast is vectorised and threaded; reference is plain float32 code to compare with",
        {.type = "fast|reference", .check = CLI::IsMember({"fast", "reference"})}}});
  return table;
}

const FlagTable<LogFlags>& log_flags() {
  static const FlagTable<LogFlags> table(
      "Logging",
      {{"--log-level",
        &LogFlags::log_level,
        "Least important messages to show on standard error; debug includes every effective "
        "setting",
        {.type = "debug|info|warning|error",
         .check = CLI::IsMember({"debug", "info", "warning", "error"}),
         .default_text = "info; warning on a terminal while it starts",
         .parse_rules = [](CLI::Option& option, LogFlags& flags) {
           option.each([&flags](const std::string&) { flags.is_given = true; });
         }}}});
  return table;
}

void add_overlap_flag(CLI::App& app, const std::string& group, EngineFlags& flags) {
  FlagTable<EngineFlags>(group, {overlap_row<EngineFlags>()}).add_to(app, flags);
}

void add_engine_flags(CLI::App& app, EngineFlags& flags) {
  model_flags().add_to(app, flags.model);
  deterministic_flag().add_to(app, flags.model);
  memory_flags().add_to(app, flags.memory);
  speculation_flags().add_to(app, flags.speculation);
  device_flags().add_to(app, flags.device);
  rank_flags().add_to(app, flags.ranks);
  peer_flags().add_to(app, flags.ranks.peers);
  rank_wait_flag().add_to(app, flags.ranks);
  log_flags().add_to(app, flags.log);
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
      ->default_str("random")
      ->check(whole_seed());
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
