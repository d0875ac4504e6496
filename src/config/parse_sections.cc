#include "config/parse_sections.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace fathom::config {
namespace {

struct KnownArchitecture {
  std::string_view name;
  Architecture architecture;
  std::vector<std::string_view> model_types;
};

const std::vector<KnownArchitecture>& known_architectures() {
  static const std::vector<KnownArchitecture> known = {
      {"DeepseekV2ForCausalLM", Architecture::kDeepseekV2, {"deepseek_v2"}},
      {"DeepseekV3ForCausalLM", Architecture::kDeepseekV3, {"deepseek_v3", "kimi_k2"}},
      {"DeepseekV32ForCausalLM", Architecture::kDeepseekV32, {"deepseek_v32"}}};
  return known;
}

// One of the three gates of the family: scoring_func and topk_method belong together.
void require_known_gate(JsonReader& reader, const ModelConfig& config) {
  const std::string of = " for " + config.architecture_name;
  if (config.has_v3_gate()) {
    reader.require(config.scoring_func == ScoringFunc::kSigmoid, "scoring_func",
                   "\"sigmoid\"" + of);
    reader.require(config.topk_method == TopkMethod::kNoauxTc, "topk_method", "\"noaux_tc\"" + of);
  } else {
    reader.require(config.scoring_func == ScoringFunc::kSoftmax, "scoring_func",
                   "\"softmax\"" + of);
    reader.require(config.topk_method != TopkMethod::kNoauxTc, "topk_method",
                   "\"greedy\" or \"group_limited_greedy\"" + of);
  }
}

// What newer libraries write a second time, under other names.
void require_same_elsewhere(JsonReader& reader, const ModelConfig& config) {
  for (const std::string_view key : {"num_experts", "num_local_experts"}) {
    const int experts = config.n_routed_experts;
    reader.require(reader.integer64(key, {.min = 0, .max = 4096, .fallback = experts}) == experts,
                   key, "n_routed_experts (" + std::to_string(experts) + ")");
  }
  const json::Value* layers = reader.find("mlp_layer_types");
  if (layers == nullptr) return;
  bool same = layers->is_array() && std::cmp_equal(layers->size(), config.num_hidden_layers);
  for (int i = 0; same && i < config.num_hidden_layers; ++i) {
    same = json::is_text((*layers)[static_cast<size_t>(i)],
                         config.is_moe_layer(i) ? "sparse" : "dense");
  }
  reader.require(
      same, "mlp_layer_types",
      "\"dense\" for the first first_k_dense_replace layers and \"sparse\" for the others");
}

void require_consistent_groups(JsonReader& reader, const ModelConfig& config) {
  const int experts = config.n_routed_experts, groups = config.n_group;
  reader.require(config.num_experts_per_tok <= experts, "num_experts_per_tok",
                 "at most n_routed_experts (" + std::to_string(experts) + ")");
  reader.require(experts % groups == 0, "n_group",
                 "a divisor of n_routed_experts (" + std::to_string(experts) + ")");
  reader.require(config.topk_group <= groups, "topk_group",
                 "at most n_group (" + std::to_string(groups) + ")");
  if (!reader.ok() || config.topk_method == TopkMethod::kGreedy) return;
  const int group_experts = experts / groups;
  if (config.topk_method == TopkMethod::kNoauxTc) {
    reader.require(group_experts >= 2, "n_group",
                   "at most half of n_routed_experts (" + std::to_string(experts) +
                       "): noaux_tc scores a group by its two best experts");
  }
  const int available = group_experts * config.topk_group;
  reader.require(config.num_experts_per_tok <= available, "num_experts_per_tok",
                 "at most the experts of topk_group groups (" + std::to_string(available) + ")");
}

// One of the two places of the rotary settings. What newer libraries write beside DeepSeek's keys is taken with the
// value that changes nothing.
struct RopeSection {
  std::optional<double> rope_theta;
  std::optional<YarnConfig> yarn;
};

YarnConfig read_yarn(JsonReader& reader) {
  for (const std::string_view type_key : {"type", "rope_type"}) {
    if (reader.find(type_key) != nullptr) reader.choice(type_key, {"yarn"}, -1);
  }
  YarnConfig yarn;
  yarn.factor = reader.number("factor", {.min = 1, .max = 10000});
  yarn.beta_fast =
      reader.number("beta_fast", {.min = 1e-3, .max = 1e6, .fallback = yarn.beta_fast});
  yarn.beta_slow =
      reader.number("beta_slow", {.min = 1e-3, .max = 1e6, .fallback = yarn.beta_slow});
  yarn.mscale = reader.number("mscale", {.min = 0, .max = 100, .fallback = yarn.mscale});
  yarn.mscale_all_dim =
      reader.number("mscale_all_dim", {.min = 0, .max = 100, .fallback = yarn.mscale_all_dim});
  yarn.original_max_position_embeddings =
      reader.integer64("original_max_position_embeddings", {.min = 1, .max = 1 << 26});
  reader.require(yarn.beta_slow <= yarn.beta_fast, "beta_slow", "at most beta_fast");
  reader.require(reader.boolean("truncate", true), "truncate",
                 "true: the corrected range is rounded to whole frequencies");
  return yarn;
}

// True for {"rope_type": "default"}: written by newer libraries where there is no scaling.
bool is_default_rope(const json::Value& section) {
  for (const char* key : {"rope_type", "type"}) {
    const auto it = section.find(key);
    if (it != section.end()) return json::is_text(*it, "default");
  }
  return false;
}

std::optional<RopeSection> read_rope_section(JsonReader& outer, std::string_view key) {
  const json::Value* section = outer.find(key);
  if (section == nullptr) return std::nullopt;
  outer.require(section->is_object(), key, "an object or null");
  if (!section->is_object()) return std::nullopt;
  JsonReader reader(*section, std::string(key) + ".");
  RopeSection read;
  if (reader.find("rope_theta") != nullptr) {
    read.rope_theta = reader.number("rope_theta", {.min = 2, .max = 1e12});
  }
  if (reader.find("partial_rotary_factor") != nullptr) {
    reader.number("partial_rotary_factor", {.min = 1, .max = 1});
  }
  if (!is_default_rope(*section)) {
    const bool has_type = reader.find("type") != nullptr || reader.find("rope_type") != nullptr;
    outer.require(has_type, key, "an object with a \"type\", only \"yarn\" is supported");
    if (!has_type) return std::nullopt;
    read.yarn = read_yarn(reader);
    reader.refuse_unread("absent: this changes the rotary embedding and is not supported");
  }
  if (!reader.ok()) outer.fail(reader.error().message);
  return read;
}

}  // namespace

void read_architecture(JsonReader& reader, ModelConfig& config) {
  const json::Value* names = reader.find("architectures");
  const bool valid =
      names != nullptr && names->is_array() && names->size() == 1 && (*names)[0].is_string();
  reader.require(valid, "architectures", "a list of one name");
  if (!valid) return;
  config.architecture_name = (*names)[0].get<std::string>();
  std::string supported;
  for (const KnownArchitecture& known : known_architectures()) {
    supported += (supported.empty() ? "" : ", ") + std::string(known.name);
    if (known.name != config.architecture_name) continue;
    config.architecture = known.architecture;
    config.model_type = reader.text("model_type", known.model_types.front());
    std::string rule;
    for (const std::string_view type : known.model_types) {
      if (type == config.model_type) return;
      rule += (rule.empty() ? "\"" : " or \"") + std::string(type) + "\"";
    }
    return reader.require(false, "model_type", rule + " for " + config.architecture_name);
  }
  reader.fail("\"architectures\" is [" + json::shown((*names)[0]) +
              "], which is not supported; supported: " + supported);
}

void read_experts(JsonReader& reader, ModelConfig& config) {
  const bool is_v3 = config.has_v3_gate();
  config.n_routed_experts =
      reader.integer("n_routed_experts", {.min = 0, .max = 4096, .fallback = 0});
  const bool has_experts = config.n_routed_experts > 0;
  // Without experts the keys may be missing, but what is there must still be sane.
  const auto needed = [&](int64_t min, int64_t max) {
    return JsonReader::IntRule{
        .min = min, .max = max, .fallback = has_experts ? std::nullopt : std::optional<int64_t>(0)};
  };
  config.num_experts_per_tok = reader.integer("num_experts_per_tok", needed(has_experts, 256));
  config.moe_intermediate_size =
      reader.integer("moe_intermediate_size", needed(has_experts, 1 << 18));
  config.n_shared_experts =
      reader.integer("n_shared_experts", {.min = 0, .max = 64, .fallback = 0});
  config.first_k_dense_replace = reader.integer(
      "first_k_dense_replace", {.min = 0, .max = config.num_hidden_layers, .fallback = 0});
  constexpr ScoringFunc kScoring[] = {ScoringFunc::kSoftmax, ScoringFunc::kSigmoid};
  constexpr TopkMethod kMethods[] = {TopkMethod::kGreedy, TopkMethod::kGroupLimitedGreedy,
                                     TopkMethod::kNoauxTc};
  config.scoring_func =
      kScoring[reader.choice("scoring_func", {"softmax", "sigmoid"}, is_v3 ? 1 : 0)];
  config.topk_method = kMethods[reader.choice(
      "topk_method", {"greedy", "group_limited_greedy", "noaux_tc"}, is_v3 ? 2 : 0)];
  // Only a greedy gate can do without groups; a default would silently route differently.
  const bool has_groups = has_experts && config.topk_method != TopkMethod::kGreedy;
  const JsonReader::IntRule groups{
      .min = 1, .max = 4096, .fallback = has_groups ? std::nullopt : std::optional<int64_t>(1)};
  config.n_group = reader.integer("n_group", groups);
  config.topk_group = reader.integer("topk_group", groups);
  config.norm_topk_prob = reader.boolean("norm_topk_prob", is_v3);
  config.routed_scaling_factor =
      reader.number("routed_scaling_factor", {.min = 1e-3, .max = 1e3, .fallback = 1.0});
  if (reader.ok()) require_same_elsewhere(reader, config);
  if (!has_experts || !reader.ok()) return;
  require_known_gate(reader, config);
  require_consistent_groups(reader, config);
}

void read_rope(JsonReader& reader, ModelConfig& config) {
  // Newer libraries save both values in one section under another name; a file that went through both may have all.
  const std::optional<RopeSection> parameters = read_rope_section(reader, "rope_parameters");
  const std::optional<RopeSection> scaling = read_rope_section(reader, "rope_scaling");
  const JsonReader::NumberRule theta_rule{.min = 2, .max = 1e12, .fallback = config.rope_theta};
  config.rope_theta = reader.number("rope_theta", theta_rule);
  bool has_theta = reader.find("rope_theta") != nullptr;
  for (const auto& [key, section] :
       {std::pair{"rope_parameters", &parameters}, std::pair{"rope_scaling", &scaling}}) {
    if (!*section || !(*section)->rope_theta) continue;
    const double theta = *(*section)->rope_theta;
    if (has_theta && theta != config.rope_theta) {
      reader.fail("\"" + std::string(key) + ".rope_theta\" is " + json::dump(json::Value(theta)) +
                  ", another place of the file says " + json::dump(json::Value(config.rope_theta)) +
                  ": the two must be equal");
    }
    config.rope_theta = theta;
    has_theta = true;
  }
  if (parameters && scaling && parameters->yarn != scaling->yarn) {
    reader.fail(
        "\"rope_parameters\" and \"rope_scaling\" differ, must be equal where both are given");
  }
  const std::optional<RopeSection>& chosen = parameters ? parameters : scaling;
  if (chosen) config.rope_scaling = chosen->yarn;
}

}  // namespace fathom::config
