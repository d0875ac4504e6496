#pragma once
// Flags that several subcommands share, by group. Names and meanings are SGLang's; each struct is filled by
// the parser and passed down by part, so no code sees the whole command line.
//
//   ModelFlags model;
//   model_flags().add_to(*subcommand, model);   // adds --model-path and its group to the help
//
// The structs must outlive the parse. Values are checked twice: form and range by the parser (exit status
// 2), meaning by the code that uses them (exit status 1).

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/flags/flag_table.h"
#include "apps/flags/node_flags.h"
#include "apps/flags/rank_flags.h"
#include "apps/flags/speculation_flags.h"
#include "core/sampling_params.h"

namespace fathom::apps {

struct ModelFlags {
  std::string model_path;
  std::string load_format = "auto";  // auto, dummy
  std::optional<int> num_layers;
  bool dequantize = false;
  bool deterministic = false;
  std::string dtype = "auto";           // auto, float32, bfloat16
  std::string kv_cache_dtype = "auto";  // auto, float32, bfloat16 or bf16, fp8_e4m3
  std::string absorbed_dtype = "auto";  // auto, bfloat16, fp8_e4m3
  std::optional<int64_t> context_length;
  uint64_t random_seed = 1;

  bool dummy() const { return load_format == "dummy"; }
};

struct MemoryFlags {
  std::optional<double> mem_fraction_static;  // none = the runner's default for the device
  std::optional<int64_t> max_total_tokens;
  int max_running_requests = 64;
  std::optional<int> chunked_prefill_size;  // none = the backend's default
};

struct DeviceFlags {
  std::string device = "auto";       // auto, cpu, cuda
  int cpu_threads = 0;               // 0 = one per physical core
  std::string cpu_backend = "fast";  // fast, reference
  bool disable_cuda_graph = false;
  std::optional<int> cuda_graph_max_bs;    // none = the backend's default
  std::vector<int> cuda_graph_bs;          // empty = up to cuda_graph_max_bs
  std::string gemm_backend = "auto";       // auto, fathom, cublaslt
  std::string attention_backend = "auto";  // auto, generic
  std::string tuned_dir;                   // empty = what ships; none = nothing, not even that
  bool disable_fusion = false;
  bool enable_fusion = false;
  int fusion_max_bs = 128;
  std::string jit = "background";  // off, background, wait
  std::string jit_cache_dir;       // empty = the user's; none = nothing is kept
  std::string nvrtc_library;       // empty = where the system has it
};

struct LogFlags {
  std::string log_level = "info";
  bool is_given = false;
  bool is_json = false;

  // On a terminal, unless somebody asked for a level: what a person does not wait for stays out.
  bool is_quiet() const;
};

// Everything that engine_setup needs.
struct EngineFlags {
  ModelFlags model;
  MemoryFlags memory;
  DeviceFlags device;
  RankFlags ranks;
  NodeFlags nodes{.num_nodes = 1};  // of commands that have no flags of nodes, whoever started them
  SpeculationFlags speculation;
  LogFlags log;
  bool disable_overlap_schedule = false;
};

// The command-line form of core::SamplingParams; logit_bias and stop_token_ids arrive as text.
struct SamplingFlags {
  core::SamplingParams params;
  std::vector<std::string> logit_bias;  // "id:value"
};

const FlagTable<ModelFlags>& model_flags();
// --deterministic, for subcommands that compute tokens.
const FlagTable<ModelFlags>& deterministic_flag();
const FlagTable<MemoryFlags>& memory_flags();
const FlagTable<DeviceFlags>& device_flags();
const FlagTable<LogFlags>& log_flags();
// --disable-overlap-schedule, for subcommands that have an engine's loop.
template <class Flags>
FlagRow<Flags> overlap_row() {
  return {"--disable-overlap-schedule", &Flags::disable_overlap_schedule,
          "Plan a step only when the one before has ended"};
}
void add_overlap_flag(CLI::App& app, const std::string& group, EngineFlags& flags);
// All of these that engine_setup needs, but for those of nodes.
void add_engine_flags(CLI::App& app, EngineFlags& flags);
void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

// Sets the program's log level.
void apply_log_flags(const LogFlags& flags);
// The parameters with --logit-bias parsed. Throws StartupError.
core::SamplingParams sampling_params(const SamplingFlags& flags);

}  // namespace fathom::apps
