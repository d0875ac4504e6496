#include "apps/engine/engine_setup.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "apps/engine/address_only.h"
#include "apps/engine/node_setup.h"
#include "apps/engine/progress.h"
#include "apps/engine/rank_listing.h"
#include "apps/engine/tuned_choices.h"
#include "apps/flags/rank_flags.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "config/draft_config.h"
#include "cpu/fast/cpu_topology.h"
#include "cuda/backend.h"
#include "cuda/gemm/library.h"
#include "cuda/jit/jit.h"
#include "cuda/profile/profile.h"
#include "model/draft_checkpoint.h"
#include "ops/uploader.h"
#include "runner/model_runner.h"
#include "runner/rank_thread.h"
#include "runner/ranks/rank_group.h"
#include "weights/checkpoint.h"
#include "weights/loader.h"

namespace fathom::apps {
namespace {

using tensor::DType;

std::optional<DType> dtype_flag(const std::string& name) {
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBf16;
  if (name == "fp8_e4m3") return DType::kF8E4M3;
  return std::nullopt;
}

DType kv_cache_dtype(const std::string& name, const ops::Backend& backend) {
  if (name == "bf16") return DType::kBf16;
  return dtype_flag(name).value_or(backend.defaults.kv_cache_dtype);
}

int num_threads(const DeviceFlags& flags) {
  return flags.cpu_threads > 0 ? flags.cpu_threads : cpu::num_physical_cores();
}

// The ranks of a CPU share its threads.
int threads_of_rank(const EngineFlags& flags) {
  return std::max(1, num_threads(flags.device) / num_local_ranks(flags));
}

void log_ranks(const EngineFlags& flags, const runner::RankGroup& ranks) {
  const int cores = cpu::num_physical_cores();
  FATHOM_LOG(kInfo, "apps", "ranks",
             {{"tp_size", flags.ranks.tp_size},
              {"dp_size", flags.ranks.num_lanes()},
              {"ep_size", flags.ranks.experts_apart ? flags.ranks.tp_size : 1},
              {"deterministic_tp", flags.ranks.deterministic_tp},
              {"cpu_threads_each", threads_of_rank(flags)}});
  if (ranks.size() > cores)
    FATHOM_LOG(kWarning, "apps", "more ranks than cores: they take turns, which is slow",
               {{"tp_size", ranks.size()}, {"cores", cores}});
}

void log_model(const ModelFlags& flags, const runner::RankGroup& ranks) {
  const model::Model& model = ranks.model();
  const config::ModelConfig& config = model.config();
  const bool quantised = config.quantization_config.has_value() && !flags.dequantize;
  const auto matrices = [&] {
    switch (config.quantization_config->method) {
      case config::QuantMethod::kFp8Blocks:
        return "f8_e4m3";
      case config::QuantMethod::kW4AFp8:
        return "f8_e4m3, routed experts i4x2";
      case config::QuantMethod::kAwq:
        return "u4x2";
      case config::QuantMethod::kInt8Blocks:
      case config::QuantMethod::kInt8Channels:
        return "i8";
    }
    return "?";
  };
  FATHOM_LOG(kInfo, "apps", "model",
             {{"model_path", flags.model_path},
              {"architecture", config.architecture_name},
              {"num_hidden_layers", config.num_hidden_layers},
              {"load_format", flags.load_format},
              {"random_seed", flags.random_seed},
              {"dequantize", flags.dequantize},
              {"deterministic", flags.deterministic},
              {"matrices", quantised ? matrices() : "as other weights"},
              {"dtype", flags.dtype == "auto" ? "auto (" + config.torch_dtype + ")" : flags.dtype},
              {"kv_cache_dtype", tensor::dtype_name(model.options().kv_cache_dtype)},
              {"absorbed_dtype", tensor::dtype_name(model.absorbed_dtype())},
              {"weight_bytes", ranks.weight_bytes()}});
}

// Asking starts the driver, so a run on the CPU does not ask.
std::string gpu_state(const DeviceFlags& flags) {
  if (flags.device == "cpu") return "not asked for";
  const cuda::Presence gpu = cuda::find_gpu();
  return gpu.usable ? "usable" : gpu.why_not;
}

void log_device(const DeviceFlags& flags, const ops::Backend& backend) {
  FATHOM_LOG(kInfo, "apps", "device",
             {{"device", flags.device},
              {"gpu", gpu_state(flags)},
              {"backend", backend.name},
              {"gemm_backend", flags.gemm_backend},
              {"tuned", tuned_choices_text()},
              {"attention_backend", flags.attention_backend},
              {"disable_fusion", flags.disable_fusion},
              {"enable_fusion", flags.enable_fusion},
              {"jit", flags.jit},
              {"cpu_backend", flags.cpu_backend},
              {"cpu_threads", num_threads(flags)},
              {"runs_on", backend.device}});
}

std::string joined(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text.empty() ? "none" : text;
}

void log_speculation(const SpeculationFlags& flags) {
  if (!flags.enabled()) return;
  const json::Value settings = speculation_settings(flags);
  std::vector<LogField> fields;
  for (const auto& [name, value] : settings.items())
    fields.emplace_back(name, value.is_string() ? value.get<std::string>() : json::dump(value));
  write_log(LogLevel::kInfo, "apps", "speculation", std::span<const LogField>(fields));
}

void log_runner(const EngineFlags& flags, const ops::Backend& backend,
                const runner::RunnerInfo& info) {
  FATHOM_LOG(kInfo, "apps", "runner",
             {{"context_length", info.max_context_tokens},
              {"max_running_requests", info.max_slots},
              {"chunked_prefill_size", chunked_prefill_size(flags, backend)},
              {"max_batch_tokens", info.max_batch_tokens},
              {"cuda_graph_bs", joined(graph_batch_sizes(flags, backend))}});
}

// Before the weights are read, since nothing of it depends on them.
void check_simulated_acceptance(const SpeculationFlags& flags) {
  // How deep the first branch of a tree goes depends on what is drafted.
  if (flags.simulate_accept_length && drafter_shape(flags).top_k > 1)
    throw StartupError("--simulate-accept-length needs --speculative-eagle-topk 1, is " +
                       std::to_string(drafter_shape(flags).top_k));
}

runner::CodeVersion compiled_version() {
  const jit::Progress progress = cuda::jit_progress();
  return {.number = progress.num_compiled, .is_final = progress.is_done};
}

runner::RunnerConfig runner_config(const EngineFlags& flags, const ops::Backend& backend) {
  const int slots = slots_of_lane(flags.ranks, flags.memory.max_running_requests);
  const SpeculationFlags& speculation = flags.speculation;
  const runner::DrafterInfo drafter = drafter_shape(speculation);
  std::optional<float> agreement;
  if (speculation.simulate_accept_length)
    agreement =
        static_cast<float>(agreement_for(*speculation.simulate_accept_length, drafter.num_steps));
  return {.max_slots = slots,
          // A step must hold a decode of every running request.
          .max_batch_tokens =
              std::max(chunked_prefill_size(flags, backend), slots * flags.ranks.num_lanes()),
          .context_length = flags.model.context_length,
          .mem_fraction_static = flags.memory.mem_fraction_static,
          .max_total_tokens = flags.memory.max_total_tokens,
          .num_threads = threads_of_rank(flags),
          .graph_batch_sizes = graph_batch_sizes(flags, backend),
          .drafter = drafter,
          .simulated_agreement = agreement,
          .code_version = backend.device_memory ? compiled_version : runner::GetCodeVersion()};
}

void load_checkpoint(const EngineFlags& flags, const weights::Checkpoint& checkpoint,
                     const runner::RankGroup& ranks, const weights::LoadOptions& options) {
  const std::string& draft_path = flags.speculation.draft_model_path;
  if (draft_path.empty()) {
    throw_on_error(weights::load_parameters_of_ranks(checkpoint, ranks.parameters(), options));
    return;
  }
  const auto draft_config =
      value_or_throw(config::load_draft_config(draft_path, ranks.model().config()));
  const auto draft = value_or_throw(weights::Checkpoint::open(draft_path));
  std::vector<const model::Model*> models;
  for (int rank = 0; rank < ranks.size(); ++rank) models.push_back(&ranks.model(rank));
  throw_on_error(
      model::load_with_draft_layer(checkpoint, {&draft, draft_config.layer_idx}, models, options));
}

}  // namespace

config::ModelConfig load_config(const ModelFlags& flags) {
  if (!std::filesystem::is_directory(flags.model_path)) {
    throw StartupError("--model-path " + flags.model_path + " is not a directory");
  }
  config::ModelConfig config = value_or_throw(config::load_model_config(flags.model_path));
  if (flags.num_layers) {
    config = value_or_throw(config::with_num_layers(std::move(config), *flags.num_layers));
  }
  if (flags.context_length && *flags.context_length > config.max_position_embeddings) {
    throw StartupError("--context-length is " + std::to_string(*flags.context_length) +
                       ", must be at most " + std::to_string(config.max_position_embeddings) +
                       " (max_position_embeddings)");
  }
  return config;
}

int chunked_prefill_size(const EngineFlags& flags, const ops::Backend& backend) {
  return flags.memory.chunked_prefill_size.value_or(backend.defaults.chunked_prefill_size);
}

std::vector<int> graph_batch_sizes(const EngineFlags& flags, const ops::Backend& backend) {
  const DeviceFlags& device = flags.device;
  if (device.disable_cuda_graph) return {};
  std::vector<int> sizes = device.cuda_graph_bs;
  if (sizes.empty()) {
    const int most = device.cuda_graph_max_bs.value_or(backend.defaults.cuda_graph_max_bs);
    for (int size = 1; size < most; size += size < 8 ? std::min(size, 4) : 8) sizes.push_back(size);
    if (most > 0) sizes.push_back(most);
  }
  // Of a lane, where there are several: all of them are padded to the longest.
  const int most_slots = slots_of_lane(flags.ranks, flags.memory.max_running_requests);
  for (int& size : sizes) size = std::min(size, most_slots);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

config::ModelConfig load_config(const EngineFlags& flags) {
  config::ModelConfig config = load_config(flags.model);
  const SpeculationFlags& speculation = flags.speculation;
  if (!speculation.enabled()) return config;
  if (!speculation.draft_model_path.empty()) {
    if (flags.model.dummy()) {
      throw StartupError("--speculative-draft-model-path needs --load-format auto, is dummy");
    }
    value_or_throw(config::load_draft_config(speculation.draft_model_path, config));
    config.num_nextn_predict_layers = 1;
    return config;
  }
  const bool has_layer =
      value_or_throw(config::load_model_config(flags.model.model_path)).num_nextn_predict_layers >
      0;
  if (!has_layer) {
    throw StartupError("--speculative-algorithm " + speculation.algorithm +
                       " needs a draft layer: num_nextn_predict_layers is 0 in " +
                       flags.model.model_path +
                       "/config.json, and there is no "
                       "--speculative-draft-model-path");
  }
  // Random weights fit any number of layers.
  if (flags.model.dummy()) config.num_nextn_predict_layers = 1;
  if (config.num_nextn_predict_layers == 0) {
    throw StartupError("--speculative-algorithm " + speculation.algorithm +
                       " with --num-layers needs --load-format dummy: the draft layer was made for "
                       "the whole model");
  }
  return config;
}

model::ModelOptions model_options(const EngineFlags& flags, const ops::Backend& backend) {
  return {.dequantize = flags.model.dequantize,
          .weight_dtype = dtype_flag(flags.model.dtype),
          .absorbed_dtype = dtype_flag(flags.model.absorbed_dtype),
          .kv_cache_dtype = kv_cache_dtype(flags.model.kv_cache_dtype, backend),
          // When nothing drafts, the draft layer would only take memory.
          .load_mtp = flags.speculation.enabled(),
          .fp8_drafts = !flags.speculation.draft_model_quantization.empty(),
          .attention_form = flags.model.deterministic ? model::AttentionForm::kAbsorbed
                                                      : model::AttentionForm::kAuto,
          .expand_chunk_tokens = backend.defaults.expand_chunk_tokens};
}

std::vector<std::string> ignored_prefixes(const ModelFlags& flags, const model::Model& model) {
  std::vector<std::string> prefixes = model.ignored_prefixes();
  if (!flags.num_layers) return prefixes;
  const config::ModelConfig whole = value_or_throw(config::load_model_config(flags.model_path));
  const int end = whole.num_hidden_layers + whole.num_nextn_predict_layers;
  for (int i = model.config().num_hidden_layers; i < end; ++i) {
    prefixes.push_back("model.layers." + std::to_string(i) + ".");
  }
  return prefixes;
}

namespace {

// Copies host memory to whichever device a rank's parameters are on, through page-locked memory.
class RankUploaders {
 public:
  RankUploaders(const ops::Backend& backend, int num_devices, int num_threads) : backend_(backend) {
    for (int device = 0; device < num_devices; ++device) {
      backend.use_device(device);
      uploaders_.push_back(
          std::make_unique<ops::Uploader>(backend, (num_threads + num_devices - 1) / num_devices));
    }
    backend.use_device(0);
  }
  void copy(void* to, const void* from, int64_t bytes) {
    const int device = backend_.device_of(to);
    backend_.use_device(device);
    uploaders_[static_cast<size_t>(device)]->copy(to, from, bytes);
  }
  void finish() {
    for (const auto& uploader : uploaders_) uploader->finish();
  }

 private:
  const ops::Backend& backend_;
  std::vector<std::unique_ptr<ops::Uploader>> uploaders_;  // [device]
};

void load_from_checkpoint(const EngineFlags& flags, runner::RankGroup& ranks,
                          weights::LoadOptions options) {
  const model::Model& model = ranks.model();
  std::optional<RankUploaders> uploaders;
  if (model.backend().device_memory) {
    uploaders.emplace(model.backend(), ranks.size(), options.num_threads);
    options.copy = [&uploaders](void* to, const void* from, int64_t bytes) {
      uploaders->copy(to, from, bytes);
    };
  }
  const auto checkpoint = value_or_throw(weights::Checkpoint::open(flags.model.model_path));
  load_checkpoint(flags, checkpoint, ranks, options);
  if (uploaders) uploaders->finish();
}

// Random weights are made where they lie.
void fill_weights(const runner::RankGroup& ranks, int rank, const weights::LoadOptions& options) {
  const model::Model& model = ranks.model(rank);
  if (!model.backend().device_memory)
    return throw_on_error(weights::fill_dummy(model.parameters(), options));
  const auto stream = model.backend().make_stream({.num_threads = options.num_threads});
  throw_on_error(weights::fill_dummy(model.parameters(), options, *stream));
}

}  // namespace

void load_weights(const EngineFlags& flags, runner::RankGroup& ranks,
                  const LoadObserver& observer) {
  LoadProgressBar bar(flags.model.dummy() ? "Filling weights" : "Loading weights");
  const bool fills = flags.model.dummy();
  weights::LoadOptions options{.num_threads = num_threads(flags.device),
                               .dummy_seed = flags.model.random_seed,
                               .on_progress =
                                   [&bar, &observer](const weights::LoadProgress& progress) {
                                     bar.update(progress);
                                     if (observer) observer("weights", fraction_done(progress));
                                   },
                               .ignored_prefixes = ignored_prefixes(flags.model, ranks.model())};
  if (fills) {
    options.num_threads = threads_of_rank(flags);
    weights::LoadOptions unseen = options;
    unseen.on_progress = {};
    // They take about the same time, so the first one's progress is everybody's.
    ranks.on_every_rank([&](int rank) { fill_weights(ranks, rank, rank == 0 ? options : unseen); });
  } else if (ranks.size() == 1) {
    // On the rank's thread, near which its memory then lies.
    ranks.on_every_rank([&](int) { load_from_checkpoint(flags, ranks, options); });
  } else {
    load_from_checkpoint(flags, ranks, options);
  }
  bar.finish();
  const LiveLine line = start_phase("Preparing the weights");
  ranks.finish_loading(threads_of_rank(flags));
}

namespace {

// Of the device that has the least.
int64_t free_on_every_device(const ops::Backend& backend, int num_ranks) {
  if (backend.use_device == nullptr) return backend.free_memory_bytes();
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int device = 0; device < num_ranks; ++device) {
    backend.use_device(device);
    least = std::min(least, backend.free_memory_bytes());
  }
  backend.use_device(0);
  return least;
}

// Before any of it is taken: a machine that is short of memory takes minutes to say so.
void check_memory(const EngineFlags& flags, const config::ModelConfig& config,
                  const ops::Backend& backend) {
  const runner::RankSizes sizes = rank_sizes(flags.ranks);
  // Ranks share a host's memory, and each GPU has its own.
  const int num_sharers = backend.device_memory ? 1 : num_local_ranks(flags);
  const int64_t weights = num_sharers * rank_weight_bytes(config, model_options(flags, backend),
                                                          address_only(backend), sizes);
  const int64_t free = free_on_every_device(backend, num_local_ranks(flags));
  if (weights <= free) return;
  const std::string ranks = " of --tp-size " + std::to_string(sizes.count());
  const std::string where = sizes.count() == 1      ? ""
                            : backend.device_memory ? " on each GPU" + ranks
                                                    : " in all ranks" + ranks;
  throw StartupError("weights larger than memory: they take " + format_bytes(weights) + where +
                     ", and " + format_bytes(free) + " are free on " + std::string(backend.device) +
                     "; what would hold them says: fathom inspect --model-path " +
                     flags.model.model_path + " --gpus 8 --gpu-memory 141");
}

// The ranks of this node, ready for steps. total: since the start.
void make_ranks(const EngineFlags& flags, const LoadObserver& observer, const Stopwatch& total,
                ReadyModel& ready) {
  if (ready.backend->device_memory) cuda::join_traces();
  if (ready.backend->device_memory && !ready.backend->batch_invariant &&
      flags.device.gemm_backend != "fathom")
    cuda::open_cublaslt_soon();  // while the weights are read
  cuda::PeerOptions peers = flags.ranks.peers;
  peers.deadline = rank_standstill(flags.ranks);
  // NCCL adds in another order for other numbers of rows.
  if (ready.backend->batch_invariant) peers.use_nccl = false;
  ready.ranks = std::make_unique<runner::RankGroup>(
      rank_sizes(flags.ranks), *ready.backend,
      ready.backend->device_memory ? cuda::make_peer_ranks(peers) : comm::MakeGroup(),
      rank_standstill(flags.ranks), place_among(ready.cluster.get(), flags, *ready.backend));
  ready.ranks->create_models(ready.config, model_options(flags, *ready.backend));
  log_model(flags.model, *ready.ranks);
  log_ranks(flags, *ready.ranks);
  const double create_seconds = total.seconds();
  load_weights(flags, *ready.ranks, observer);
  const double load_seconds = total.seconds() - create_seconds;
  if (observer) observer("memory plan", 0);
  LiveLine line = start_phase("Planning the memory");
  ready.ranks->start(runner_config(flags, *ready.backend));
  line.finish();
  const double plan_seconds = total.seconds() - create_seconds - load_seconds;
  if (ready.backend->device_memory) {
    cuda::wait_for_cublaslt();
    cuda::settle_jit();
  }
  if (!is_follower(flags)) log_runner(flags, *ready.backend, ready.runner().info());
  log_speculation(flags.speculation);
  FATHOM_LOG(kInfo, "apps", "ready",
             {{"create_s", create_seconds},
              {"load_s", load_seconds},
              {"memory_plan_s", plan_seconds},
              {"total_s", total.seconds()}});
}

}  // namespace

ReadyModel make_ready_model(const EngineFlags& flags, const LoadObserver& observer) {
  apply_log_flags(flags.log);
  drafter_shape(flags.speculation);  // refuses what contradicts itself
  check_simulated_acceptance(flags.speculation);
  const Stopwatch total;
  ReadyModel ready;
  ready.config = load_config(flags);
  check_ranks(flags.ranks, ready.config);
  ready.backend = &choose_backend(flags);
  const int local_ranks = num_local_ranks(flags);
  check_nodes_on(flags, *ready.backend);
  check_ranks_on(flags.ranks, local_ranks, *ready.backend);
  log_device(flags.device, *ready.backend);
  check_memory(flags, ready.config, *ready.backend);
  if (observer) observer("nodes", 0);
  ready.cluster = join_nodes(flags, *ready.backend);
  try {
    make_ranks(flags, observer, total, ready);
  } catch (const StartupError& error) {
    // The other nodes hear why, and not only that this one has ended.
    if (ready.cluster) ready.cluster->leave(error.what());
    throw;
  }
  return ready;
}

engine::StepLoopConfig step_loop_config(const EngineFlags& flags, const ReadyModel& ready) {
  return {.chunked_prefill_size = chunked_prefill_size(flags, *ready.backend),
          .max_running_requests = flags.memory.max_running_requests,
          .overlap = !flags.disable_overlap_schedule,
          .speculation = speculation_config(flags.speculation),
          .eos_token_ids = ready.config.eos_token_ids,
          .random_seed = entropy_bits()};
}

}  // namespace fathom::apps
