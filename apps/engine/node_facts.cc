#include "apps/engine/node_facts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "apps/common/commit.h"
#include "apps/common/version.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/host_facts.h"
#include "apps/engine/tuned_choices.h"
#include "base/startup_error.h"
#include "base/whole_file.h"
#include "cuda/inventory.h"
#include "nodes/hmac.h"
#include "weights/checkpoint.h"

namespace fathom::apps {
namespace {

constexpr int64_t kPieceBytes = 4096, kMostConfigBytes = 16 << 20;
constexpr int kPieces = 16;

// The first one has the header, or its beginning; the others are spread over the rest.
void add_pieces(const std::string& path, int64_t file_bytes, std::string& text) {
  std::ifstream file(path, std::ios::binary);
  std::string piece(static_cast<size_t>(kPieceBytes), '\0');
  for (int i = 0; i < kPieces; ++i) {
    const int64_t offset = std::max<int64_t>(0, file_bytes - kPieceBytes) * i / (kPieces - 1);
    file.clear();
    file.seekg(offset);
    file.read(piece.data(), kPieceBytes);
    text.append(piece, 0, static_cast<size_t>(file.gcount()));
  }
}

json::Value model_facts(const ModelFlags& model, const SpeculationFlags& speculation) {
  const std::string config = (std::filesystem::path(model.model_path) / "config.json").string();
  json::Value facts = {
      {"config.json", nodes::sha256_hex(value_or_throw(read_whole_file(config, kMostConfigBytes)))},
      {"checkpoint", model.dummy() ? "random weights" : checkpoint_fingerprint(model.model_path)}};
  if (!speculation.draft_model_path.empty())
    facts["draft checkpoint"] = checkpoint_fingerprint(speculation.draft_model_path);
  return facts;
}

json::Value device_facts(const ops::Backend& backend) {
  // The instructions decide about the last bits; the number of threads behind the comma does not.
  const std::string_view instructions = backend.device.substr(0, backend.device.find(','));
  if (!backend.device_memory) return {{"backend", backend.name}, {"processor", instructions}};
  json::Value gpus = json::Value::array();
  for (const cuda::Gpu& gpu : cuda::list_gpus()) gpus.push_back(gpu.name);
  return {{"backend", backend.name}, {"gpus", gpus}, {"driver", read_host_facts().gpu_driver}};
}

json::Value flag_facts(const EngineFlags& flags, const ops::Backend& backend) {
  const ModelFlags& model = flags.model;
  const MemoryFlags& memory = flags.memory;
  json::Value facts = {{"load_format", model.load_format},
                       {"dequantize", model.dequantize},
                       {"deterministic", model.deterministic},
                       {"dtype", model.dtype},
                       {"kv_cache_dtype", model.kv_cache_dtype},
                       {"absorbed_dtype", model.absorbed_dtype},
                       {"random_seed", model.random_seed},
                       {"max_running_requests", memory.max_running_requests},
                       {"chunked_prefill_size", chunked_prefill_size(flags, backend)},
                       {"cuda_graph_bs", graph_batch_sizes(flags, backend)},
                       {"gemm_backend", flags.device.gemm_backend},
                       {"tuned", tuned_choices_text()},
                       {"attention_backend", flags.device.attention_backend},
                       {"disable_fusion", flags.device.disable_fusion},
                       {"enable_fusion", flags.device.enable_fusion}};
  const auto add = [&](const char* name, const auto& value) {
    facts[name] = value ? json::Value(*value) : json::Value();
  };
  add("num_layers", model.num_layers);
  add("context_length", model.context_length);
  add("mem_fraction_static", memory.mem_fraction_static);
  add("max_total_tokens", memory.max_total_tokens);
  facts.update(rank_settings(flags.ranks));
  json::Value speculation = speculation_settings(flags.speculation);
  speculation.erase("speculative_draft_model_path");  // its checkpoint counts, wherever it lies
  facts.update(speculation);
  return facts;
}

}  // namespace

std::string checkpoint_fingerprint(const std::string& directory) {
  const auto checkpoint = value_or_throw(weights::Checkpoint::open(directory));
  std::string text;
  for (size_t i = 0; i < checkpoint.files().size(); ++i) {
    const std::string& path = checkpoint.files()[i];
    const int64_t bytes = checkpoint.file_bytes()[i];
    text += std::filesystem::path(path).filename().string() + " " + std::to_string(bytes) + "\n";
    add_pieces(path, bytes, text);
  }
  for (const weights::TensorInfo& tensor : checkpoint.tensors())
    text += std::string(tensor.name) + "\n";
  return nodes::sha256_hex(text);
}

json::Value node_facts(const EngineFlags& flags, const ops::Backend& backend) {
  json::Value facts = {{"version", version()}, {"commit", built_from()}};
  facts.update(model_facts(flags.model, flags.speculation));
  facts.update(device_facts(backend));
  facts.update(flag_facts(flags, backend));
  return facts;
}

}  // namespace fathom::apps
