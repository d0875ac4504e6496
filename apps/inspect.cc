// fathom inspect: what a checkpoint is, what it costs, and whether this program would load it, without
// reading weights and without taking memory for them.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/checkpoint_summary.h"
#include "apps/commands.h"
#include "apps/common/text_setup.h"
#include "apps/engine/address_only.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/memory_fit.h"
#include "apps/engine/progress.h"
#include "apps/engine/rank_listing.h"
#include "apps/flags/flags.h"
#include "apps/flags/rank_flags.h"
#include "apps/operator_listing.h"
#include "apps/tuned_listing.h"
#include "base/json.h"
#include "base/startup_error.h"
#include "cuda/backend.h"
#include "layers/weight_builder.h"
#include "weights/read_plan.h"

namespace fathom::apps {
namespace {

struct InspectFlags {
  EngineFlags engine;
  bool tensors = false, operators = false, json = false;
  std::optional<double> gpu_memory_gib;
  std::optional<int> num_gpus;

  std::optional<int64_t> device_bytes() const {
    if (!gpu_memory_gib) return std::nullopt;
    return static_cast<int64_t>(*gpu_memory_gib * (int64_t{1} << 30));
  }
};

// Everything that inspect found out. `problems` is what would make a command fail on this checkpoint.
struct Findings {
  config::ModelConfig config;
  std::optional<weights::Checkpoint> checkpoint;
  ParameterCounts parameters;
  int64_t weight_bytes = 0;  // in memory, with the flags given
  int64_t kv_bytes_per_token = 0;
  std::optional<RankListing> ranks;    // where the flags ask for several, or for a device
  std::optional<MemoryFit> fit;        // in the devices that were asked for, or in this machine
  std::string tokenizer, chat_format;  // for people
  std::vector<TunedListing> tuned;     // of the GPU here, or of those that files ship for
  std::vector<BackendOperators> operators;
  struct Unlisted {
    std::string backend, why;
  };
  std::vector<Unlisted> unlisted;  // backends whose operators are not listed
  std::vector<std::string> problems;
};

// With the draft layer, which other subcommands leave out: its tensors are checked too.
void check_tensors(const InspectFlags& flags, const ops::Backend& backend, Findings& findings) {
  model::ModelOptions options = model_options(flags.engine, backend);
  options.load_mtp = true;
  const auto model = model::Model::create(findings.config, options, backend);
  findings.parameters = count_parameters(findings.config, model->parameters());
  if (!findings.checkpoint) return;
  const Result<weights::ReadPlan> plan =
      weights::plan_reads(*findings.checkpoint, {&model->parameters()},
                          {.ignored_prefixes = ignored_prefixes(flags.engine.model, *model)});
  if (!plan) findings.problems.push_back(plan.error().message);
}

// What each rank would hold, and whether it fits. A GPU's cache is bf16 where nobody asked for another.
void inspect_ranks(const InspectFlags& flags, Findings& findings) {
  const std::optional<int64_t> device_bytes = flags.device_bytes();
  if (flags.engine.ranks.tp_size == 1 && !device_bytes) return;
  try {
    check_ranks(flags.engine.ranks, findings.config);
    const ops::Backend backend = address_only(choose_backend(flags.engine));
    model::ModelOptions options = model_options(flags.engine, backend);
    if (device_bytes && flags.engine.model.kv_cache_dtype == "auto")
      options.kv_cache_dtype = tensor::DType::kBf16;
    findings.ranks = list_ranks(findings.config, options, backend, rank_sizes(flags.engine.ranks));
  } catch (const StartupError& error) {
    findings.problems.push_back(error.what());
  }
}

void inspect_tuned(const InspectFlags& flags, Findings& findings) {
  const layers::WeightTypes types =
      layers::quantised_types(findings.config, flags.engine.model.dequantize);
  for (const DeviceTable& table : tuned_tables(choose_backend(flags.engine).device_memory))
    findings.tuned.push_back(list_tuned(findings.config, types, flags.engine.ranks.tp_size, table));
}

MemoryPlace asked_devices(const InspectFlags& flags) {
  const int ranks = flags.engine.ranks.tp_size;
  return {.name = ranks > 1 ? "each of " + std::to_string(ranks) + " GPUs" : "a GPU",
          .bytes = *flags.device_bytes(),
          .cache_share = flags.engine.memory.mem_fraction_static.value_or(kGpuCacheShare)};
}

// Of one rank, on the devices that were asked for, or on this machine.
void inspect_fit(const InspectFlags& flags, Findings& findings) {
  const bool has_ranks = flags.engine.ranks.tp_size == 1 || findings.ranks;
  if (findings.weight_bytes == 0 || !has_ranks) return;
  const ops::Backend& backend = choose_backend(flags.engine);
  const bool on_gpu = flags.device_bytes() || backend.device_memory;
  MemoryNeeds needs{.weight_bytes = findings.weight_bytes,
                    .step_bytes = on_gpu ? kGpuStepBytes : cpu_step_bytes(findings.config),
                    .kv_bytes_per_token = findings.kv_bytes_per_token};
  if (findings.ranks) {
    needs.weight_bytes = findings.ranks->weight_bytes;
    needs.kv_bytes_per_token = findings.ranks->kv_bytes_per_token;
  }
  findings.fit = fit_in(
      flags.device_bytes() ? asked_devices(flags) : this_machine(flags.engine, backend), needs);
  if (findings.fit->runs()) return;
  std::string way_out;
  if (flags.device_bytes()) {
    way_out = "; more ranks hold less each";
  } else if (!findings.config.index_config) {
    way_out = "; what would hold it: --gpus 8 --gpu-memory 141, other numbers for other machines";
  }
  findings.problems.push_back(fit_problem(*findings.fit) + way_out);
}

void inspect_model(const InspectFlags& flags, Findings& findings) {
  const ops::Backend backend = address_only(choose_backend(flags.engine));
  try {
    const auto model =
        model::Model::create(findings.config, model_options(flags.engine, backend), backend);
    findings.weight_bytes = model->weight_bytes();
    for (const model::KvGroupSpec& group : model->kv_groups()) {
      findings.kv_bytes_per_token += group.block_bytes() / group.block_tokens;
    }
    check_tensors(flags, backend, findings);
  } catch (const StartupError& error) {
    findings.problems.push_back(error.what());
  }
}

// Of every backend that can be used here; a stream of the GPU's is its driver's. Whether or not the flags ask for
// drafts: the draft layer is a part of the model.
void inspect_operators(const InspectFlags& flags, Findings& findings) {
  if (!flags.operators) return;
  if (const cuda::Presence gpu = cuda::find_gpu(); !gpu.usable)
    findings.unlisted.push_back({.backend = "cuda", .why = gpu.why_not});
  for (const ops::Backend* usable : usable_backends()) {
    const ops::Backend& backend = table_of(*usable, flags.engine);
    try {
      model::ModelOptions options = model_options(flags.engine, backend);
      options.load_mtp = true;
      findings.operators.push_back(list_operators(findings.config, options, backend));
    } catch (const StartupError& error) {
      findings.problems.push_back(error.what());
    }
  }
}

void inspect_checkpoint(const InspectFlags& flags, Findings& findings) {
  if (flags.engine.model.dummy()) return;
  Result<weights::Checkpoint> checkpoint = weights::Checkpoint::open(flags.engine.model.model_path);
  if (!checkpoint) {
    findings.problems.push_back(checkpoint.error().message);
    return;
  }
  findings.checkpoint = std::move(*checkpoint);
}

// Random weights need no tokenizer to be counted.
bool is_config_alone(const ModelFlags& flags) {
  const auto is_there = [&](const char* name) {
    return std::filesystem::exists(std::filesystem::path(flags.model_path) / name);
  };
  return flags.dummy() && !is_there("tokenizer.json") && !is_there("tiktoken.model");
}

void inspect_text(const InspectFlags& flags, Findings& findings) {
  if (is_config_alone(flags.engine.model)) {
    findings.tokenizer = "none, which serving needs";
    findings.chat_format = "unknown";
    return;
  }
  try {
    const TextSetup text = load_text(flags.engine.model.model_path, "auto");
    findings.tokenizer = std::to_string(text.tokenizer.vocab_size()) + " tokens";
    findings.chat_format = text.chat_format ? std::string(text::chat_format_name(*text.chat_format))
                                            : "none: " + text.chat_format_problem;
    if (!text.chat_format_warning.empty()) {
      findings.chat_format += " (" + text.chat_format_warning + ")";
    }
    if (text.tokenizer.vocab_size() > findings.config.vocab_size) {
      findings.problems.push_back("tokenizer.json has ids up to " +
                                  std::to_string(text.tokenizer.vocab_size() - 1) +
                                  ", vocab_size is " + std::to_string(findings.config.vocab_size));
    }
  } catch (const StartupError& error) {
    findings.tokenizer = "unusable";
    findings.chat_format = "unknown";
    findings.problems.push_back(error.what());
  }
}

void print_row(const char* name, const std::string& value) {
  std::printf("%-14s %s\n", name, value.c_str());
}

std::string experts_text(const config::ModelConfig& config) {
  if (config.n_routed_experts == 0) return "none (dense)";
  std::string text = std::to_string(config.num_experts_per_tok) + " of " +
                     std::to_string(config.n_routed_experts) + " routed, " +
                     std::to_string(config.n_shared_experts) + " shared, width " +
                     std::to_string(config.moe_intermediate_size);
  if (config.n_group > 1) {
    text += "; best " + std::to_string(config.topk_group) + " of " +
            std::to_string(config.n_group) + " groups";
  }
  return text;
}

std::string attention_text(const config::ModelConfig& config) {
  return std::to_string(config.num_attention_heads) + " heads, q_lora_rank " +
         (config.q_lora_rank ? std::to_string(*config.q_lora_rank) : "none") + ", kv_lora_rank " +
         std::to_string(config.kv_lora_rank) + ", head dims " +
         std::to_string(config.qk_nope_head_dim) + " + " + std::to_string(config.qk_rope_head_dim) +
         " / " + std::to_string(config.v_head_dim);
}

std::string layers_text(const config::ModelConfig& config) {
  int num_moe = 0;
  for (int i = 0; i < config.num_hidden_layers; ++i) num_moe += config.is_moe_layer(i) ? 1 : 0;
  std::string text = std::to_string(config.num_hidden_layers);
  if (num_moe > 0) {
    text += " (" + std::to_string(config.num_hidden_layers - num_moe) + " dense, " +
            std::to_string(num_moe) + " mixture of experts)";
  }
  if (config.num_nextn_predict_layers > 0) {
    text += " and " + std::to_string(config.num_nextn_predict_layers) + " for drafts (MTP)";
  }
  return text;
}

std::string checkpoint_text(const weights::Checkpoint& checkpoint) {
  std::string text = format_bytes(checkpoint.total_bytes()) + " in " +
                     std::to_string(checkpoint.files().size()) + " file(s), " +
                     std::to_string(checkpoint.tensors().size()) + " tensors:";
  const char* separator = " ";
  for (const auto& [dtype, bytes] : bytes_by_dtype(checkpoint)) {
    text += separator + dtype + " " + format_bytes(bytes);
    separator = ", ";
  }
  return text;
}

void print_text(const InspectFlags& flags, const Findings& findings) {
  const config::ModelConfig& config = findings.config;
  print_row("model", flags.engine.model.model_path);
  print_row("architecture", config.architecture_name + " (" + config.model_type + ")");
  print_row("layers", layers_text(config));
  print_row("hidden size", std::to_string(config.hidden_size) + ", vocabulary " +
                               std::to_string(config.vocab_size));
  print_row("attention", attention_text(config));
  print_row("experts", experts_text(config));
  print_row("context", std::to_string(config.max_position_embeddings) + " tokens" +
                           (config.rope_scaling ? " (YaRN)" : ""));
  if (findings.parameters.total > 0) {
    print_row("parameters", format_count(findings.parameters.total) + ", " +
                                format_count(findings.parameters.active) + " active per token" +
                                (findings.parameters.mtp > 0
                                     ? "; draft layer " + format_count(findings.parameters.mtp)
                                     : ""));
  }
  if (config.quantization_config)
    print_row("quantisation",
              std::string(config::quant_method_name(config.quantization_config->method)));
  if (findings.checkpoint) print_row("checkpoint", checkpoint_text(*findings.checkpoint));
  if (findings.weight_bytes > 0) {
    print_row("in memory", format_bytes(findings.weight_bytes) + " of weights, " +
                               std::to_string(findings.kv_bytes_per_token) +
                               " bytes of KV cache per token");
  }
  if (findings.ranks) {
    print_row("each rank", rank_text(*findings.ranks));
  }
  if (findings.fit) {
    const int lanes = findings.ranks ? findings.ranks->sizes.dp : 1;
    const std::string each = lanes > 1 ? ", for each of " + std::to_string(lanes) + " lanes" : "";
    print_row("room", fit_text(*findings.fit, config.max_position_embeddings) + each);
  }
  for (const TunedListing& listing : findings.tuned) print_row("tuned", tuned_text(listing));
  print_row("tokenizer", findings.tokenizer);
  print_row("chat format", findings.chat_format);
  if (findings.problems.empty()) print_row("check", "ok, this program can load it and it fits");
  for (const std::string& problem : findings.problems) print_row("PROBLEM", problem);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

void print_tensors(const weights::Checkpoint& checkpoint) {
  std::printf("\n%-9s %-20s %12s  %-34s %s\n", "dtype", "shape", "bytes", "file", "name");
  for (const weights::TensorInfo& tensor : checkpoint.tensors()) {
    const std::string file = tensor.file.substr(tensor.file.find_last_of('/') + 1);
    std::printf("%-9s %-20s %12lld  %-34s %s\n",
                std::string(tensor::dtype_name(tensor.dtype)).c_str(),
                shape_text(tensor.shape).c_str(), static_cast<long long>(tensor.num_bytes),
                file.c_str(), tensor.name.c_str());
  }
}

json::Value tensors_json(const weights::Checkpoint& checkpoint) {
  json::Value list = json::Value::array();
  for (const weights::TensorInfo& tensor : checkpoint.tensors()) {
    list.push_back({{"name", tensor.name},
                    {"dtype", std::string(tensor::dtype_name(tensor.dtype))},
                    {"shape", tensor.shape},
                    {"bytes", tensor.num_bytes},
                    {"file", tensor.file}});
  }
  return list;
}

void print_json(const InspectFlags& flags, const Findings& findings) {
  const config::ModelConfig& config = findings.config;
  json::Value value = {{"model_path", flags.engine.model.model_path},
                       {"architecture", config.architecture_name},
                       {"model_type", config.model_type},
                       {"num_hidden_layers", config.num_hidden_layers},
                       {"num_nextn_predict_layers", config.num_nextn_predict_layers},
                       {"hidden_size", config.hidden_size},
                       {"vocab_size", config.vocab_size},
                       {"max_position_embeddings", config.max_position_embeddings},
                       {"num_parameters", findings.parameters.total},
                       {"num_active_parameters", findings.parameters.active},
                       {"num_mtp_parameters", findings.parameters.mtp},
                       {"weight_bytes", findings.weight_bytes},
                       {"kv_bytes_per_token", findings.kv_bytes_per_token},
                       {"tokenizer", findings.tokenizer},
                       {"chat_format", findings.chat_format}};
  if (config.quantization_config)
    value["quantisation"] = config::quant_method_name(config.quantization_config->method);
  if (findings.checkpoint) {
    value["checkpoint_bytes"] = findings.checkpoint->total_bytes();
    value["num_files"] = findings.checkpoint->files().size();
    value["num_tensors"] = findings.checkpoint->tensors().size();
    value["bytes_by_dtype"] = bytes_by_dtype(*findings.checkpoint);
    if (flags.tensors) value["tensors"] = tensors_json(*findings.checkpoint);
  }
  for (const BackendOperators& listing : findings.operators)
    value["operators"].push_back(operators_json(listing));
  for (const auto& [backend, why] : findings.unlisted)
    value["operators_unlisted"].push_back({{"backend", backend}, {"why", why}});
  for (const TunedListing& listing : findings.tuned) value["tuned"].push_back(tuned_json(listing));
  if (findings.ranks) value["ranks"] = rank_json(*findings.ranks, flags.device_bytes());
  if (findings.fit) value["fit"] = fit_json(*findings.fit);
  value["problems"] = findings.problems;
  std::printf("%s\n", json::dump(value).c_str());
}

int run(InspectFlags flags) {
  if (flags.num_gpus) flags.engine.ranks.tp_size = *flags.num_gpus;
  Findings findings;
  findings.config = load_config(flags.engine.model);
  inspect_checkpoint(flags, findings);
  inspect_model(flags, findings);
  inspect_ranks(flags, findings);
  inspect_tuned(flags, findings);
  inspect_text(flags, findings);
  inspect_fit(flags, findings);
  inspect_operators(flags, findings);
  if (flags.json) {
    print_json(flags, findings);
  } else {
    print_text(flags, findings);
    if (flags.tensors && findings.checkpoint) print_tensors(*findings.checkpoint);
    for (const BackendOperators& listing : findings.operators)
      std::printf("\n%s", operators_text(listing).c_str());
    for (const auto& [backend, why] : findings.unlisted)
      std::printf("\noperators of %s are not listed: %s\n", backend.c_str(), why.c_str());
  }
  return findings.problems.empty() ? 0 : 1;
}

}  // namespace

Command add_inspect(CLI::App& parent) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* app =
      parent.add_subcommand("inspect", "Describe a checkpoint and check that it would load");
  model_flags().add_to(*app, flags->engine.model);
  deterministic_flag().add_to(*app, flags->engine.model);
  device_flags().add_to(*app, flags->engine.device);
  rank_flags().add_to(*app, flags->engine.ranks);
  peer_flags().add_to(*app, flags->engine.ranks.peers);
  app->add_option("--gpus", flags->num_gpus,
                  "Say what each of N GPUs would hold, as --tp-size N does; none is needed")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->excludes(app->get_option("--tp-size"))
      ->group("Ranks");
  app->add_option(
         "--gpu-memory", flags->gpu_memory_gib,
         "Say how many tokens of cache and requests fit each rank's device of so many GiB, and "
         "whether the weights do, instead of asking this machine")
      ->check(CLI::Range(0.1, 65536.0))
      ->type_name("GIB")
      ->group("Ranks");
  app->add_flag("--tensors", flags->tensors, "List every tensor")->group("Output");
  app->add_flag("--operators", flags->operators,
                "List the operators that steps run, layer by layer, for every backend that this "
                "machine has: fused or in parts, and the type each was chosen by")
      ->group("Output");
  app->add_flag("--json", flags->json, "Print one JSON object")->group("Output");
  set_examples(*app,
               {"fathom inspect --model-path models/demo",
                "fathom inspect --model-path DIR --tensors | less",
                "fathom inspect --model-path DIR --operators",
                "fathom inspect --model-path models/configs/deepseek-v3 --load-format dummy \\",
                "    --gpus 8 --gpu-memory 140.4",
                "fathom inspect --model-path DIR --load-format dummy    # config.json only"});
  return {.app = app, .run = [flags] { return run(*flags); }};
}

}  // namespace fathom::apps
