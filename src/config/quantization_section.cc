#include "config/quantization_section.h"

#include <string>
#include <vector>

#include "base/json.h"

namespace fathom::config {
namespace {

constexpr std::string_view kUnknown = "absent: this changes the quantisation and is not supported";

// A list of modules that are left as they are; null = none.
std::vector<std::string> read_module_names(JsonReader& reader, std::string_view key) {
  std::vector<std::string> modules;
  const json::Value* names = reader.find(key);
  if (names == nullptr) return modules;
  bool are_texts = names->is_array();
  if (are_texts) {
    for (const json::Value& name : *names) are_texts = are_texts && name.is_string();
  }
  reader.require(are_texts, key, "a list of names of modules");
  if (are_texts) modules = names->get<std::vector<std::string>>();
  return modules;
}

// Which of the names tensors may have is known only by the names: a pattern would be a guess.
void read_unquantised(JsonReader& reader, QuantizationConfig& quantization) {
  for (const std::string_view key : {"modules_to_not_convert", "ignored_layers", "ignore"}) {
    for (std::string& name : read_module_names(reader, key)) {
      reader.require(!name.starts_with("re:") && !name.empty(), key,
                     "a list of names of modules, without patterns (\"re:\")");
      quantization.unquantised_modules.push_back(std::move(name));
    }
  }
}

void require_blocks(JsonReader& reader) {
  reader.choice("activation_scheme", {"dynamic"}, -1);
  const json::Value* block = reader.find("weight_block_size");
  const json::Value blocks_of_128 = json::Value::array({128, 128});
  reader.require(block != nullptr && *block == blocks_of_128, "weight_block_size", "[128, 128]");
}

// What is FP8 is told by each tensor's own dtype, so the names of modules may be any.
void read_fp8(JsonReader& reader, QuantizationConfig& quantization) {
  reader.choice("fmt", {"e4m3"}, 0);
  require_blocks(reader);
  quantization.scale_ue8m0 = reader.choice("scale_fmt", {"float", "ue8m0"}, 0) == 1;
  reader.choice("expert_dtype", {"fp8"}, 0);
  reader.require(!reader.boolean("dequantize", false), "dequantize",
                 "false: --dequantize does that here");
  for (const std::string_view key : {"modules_to_not_convert", "ignored_layers"})
    read_module_names(reader, key);
}

// Those who made such checkpoints calibrated a scale of activations for each expert, and others quantise by the largest
// of them. Rows are quantised here as in FP8, each with scales of its own, which is closer to what they hold: so
// "static" and the scales change nothing.
void read_w4afp8(JsonReader& reader, QuantizationConfig& quantization) {
  quantization.method = QuantMethod::kW4AFp8;
  reader.choice("fmt", {"e4m3"}, 0);
  reader.choice("activation_scheme", {"dynamic", "static"}, 0);
  reader.choice("linear_activation_scheme", {"dynamic"}, 0);
  reader.choice("moe_activation_scheme", {"static", "dynamic"}, 0);
  const json::Value* block = reader.find("weight_block_size");
  const json::Value blocks_of_128 = json::Value::array({128, 128});
  reader.require(block == nullptr || *block == blocks_of_128, "weight_block_size", "[128, 128]");
  if (reader.find("group_size") != nullptr) reader.integer("group_size", {.min = 128, .max = 128});
  quantization.scale_ue8m0 = reader.choice("scale_fmt", {"float", "ue8m0"}, 0) == 1;
  for (const std::string_view key : {"modules_to_not_convert", "ignored_layers"})
    read_module_names(reader, key);
}

void read_blockwise_int8(JsonReader& reader, QuantizationConfig& quantization) {
  quantization.method = QuantMethod::kInt8Blocks;
  require_blocks(reader);
  read_unquantised(reader, quantization);
}

// is_dynamic and packed_modules_mapping tell other programs how they fuse.
void read_w8a8_int8(JsonReader& reader, QuantizationConfig& quantization) {
  quantization.method = QuantMethod::kInt8Channels;
  reader.choice("activation_scheme", {"dynamic"}, 0);
  reader.boolean("is_dynamic", true);
  reader.find("packed_modules_mapping");
  read_unquantised(reader, quantization);
}

// AutoAWQ's "gemm" packing, which nearly all published AWQ checkpoints have. Its kernels cannot take groups of 128 of
// this family's sizes, so group_size is mostly 64.
void read_awq(JsonReader& reader, QuantizationConfig& quantization) {
  quantization.method = QuantMethod::kAwq;
  reader.integer("bits", {.min = 4, .max = 4});
  reader.choice("version", {"gemm", "GEMM"}, 0);
  reader.require(reader.boolean("zero_point", false), "zero_point", "true");
  constexpr std::string_view kGroupSize = "group_size";
  const int group_size = reader.integer(kGroupSize, {.min = -1, .max = 1 << 20});
  reader.require(group_size == 32 || group_size == 64 || group_size == 128, kGroupSize,
                 "32, 64 or 128");
  quantization.group_size = group_size;
  read_unquantised(reader, quantization);
}

// One of the two things that a group of compressed-tensors quantises. Observers made the scales.
struct CompressedPart {
  std::string_view key, strategy;
  bool dynamic = false;
};

void read_compressed_part(JsonReader& group, const std::string& prefix,
                          const CompressedPart& part) {
  const json::Value* section = group.find(part.key);
  group.require(section != nullptr && section->is_object(), part.key,
                "an object: int8 with strategy \"" + std::string(part.strategy) + "\"");
  if (!group.ok()) return;
  JsonReader reader(*section, prefix + std::string(part.key) + ".");
  reader.integer("num_bits", {.min = 8, .max = 8});
  reader.choice("type", {"int"}, -1);
  reader.choice("strategy", {part.strategy}, -1);
  reader.require(reader.boolean("symmetric", true), "symmetric", "true");
  reader.require(reader.boolean("dynamic", false) == part.dynamic, "dynamic",
                 part.dynamic ? "true" : "false");
  if (reader.find("group_size") != nullptr) reader.integer("group_size", {.min = -1, .max = -1});
  for (const std::string_view key : {"observer", "observer_kwargs"}) reader.find(key);
  reader.refuse_unread(kUnknown);
  if (!reader.ok()) group.fail(reader.error().message);
}

void read_compressed_group(JsonReader& outer, const std::string& name, const json::Value& value) {
  const std::string prefix = "config_groups." + name + ".";
  outer.require(value.is_object(), "config_groups", "an object of objects");
  if (!outer.ok()) return;
  JsonReader group(value, prefix);
  const json::Value* targets = group.find("targets");
  const json::Value linear_layers = json::Value::array({"Linear"});
  const bool of_linear_layers = targets != nullptr && *targets == linear_layers;
  group.require(of_linear_layers, "targets", "[\"Linear\"]");
  group.choice("format", {"int-quantized"}, 0);
  read_compressed_part(group, prefix, {.key = "weights", .strategy = "channel"});
  read_compressed_part(group, prefix,
                       {.key = "input_activations", .strategy = "token", .dynamic = true});
  group.refuse_unread(kUnknown);
  if (!group.ok()) outer.fail(group.error().message);
}

void read_compressed_tensors(JsonReader& reader, QuantizationConfig& quantization) {
  quantization.method = QuantMethod::kInt8Channels;
  reader.choice("format", {"int-quantized"}, -1);
  reader.choice("quantization_status", {"compressed"}, 0);
  for (const std::string_view key : {"global_compression_ratio", "version"}) reader.find(key);
  const json::Value* groups = reader.find("config_groups");
  const bool one_group = groups != nullptr && groups->is_object() && groups->size() == 1;
  reader.require(one_group, "config_groups", "an object of one group");
  if (one_group && reader.ok())
    read_compressed_group(reader, groups->begin().key(), groups->begin().value());
  read_unquantised(reader, quantization);
}

}  // namespace

void read_quantization(JsonReader& outer, ModelConfig& config) {
  const json::Value* section = outer.find("quantization_config");
  if (section == nullptr) return;
  outer.require(section->is_object(), "quantization_config", "an object or null");
  if (!section->is_object()) return;
  JsonReader reader(*section, "quantization_config.");
  QuantizationConfig quantization;
  constexpr void (*kForms[])(JsonReader&, QuantizationConfig&) = {
      read_fp8, read_blockwise_int8, read_w8a8_int8, read_compressed_tensors, read_w4afp8,
      read_awq};
  const int form = reader.choice(
      "quant_method", {"fp8", "blockwise_int8", "w8a8_int8", "compressed-tensors", "w4afp8", "awq"},
      -1);
  if (reader.ok()) kForms[form](reader, quantization);
  reader.refuse_unread(kUnknown);
  if (!reader.ok()) return outer.fail(reader.error().message);
  config.quantization_config = std::move(quantization);
}

std::string_view quant_method_name(QuantMethod method) {
  switch (method) {
    case QuantMethod::kFp8Blocks:
      return "FP8, scales of 128x128 blocks";
    case QuantMethod::kInt8Blocks:
      return "INT8, scales of 128x128 blocks, activations per token and 128 channels";
    case QuantMethod::kInt8Channels:
      return "INT8, scales of channels, activations per token";
    case QuantMethod::kW4AFp8:
      return "routed experts in INT4, scales of 128 channels of an output; all else in FP8, scales "
             "of 128x128 blocks";
    case QuantMethod::kAwq:
      return "INT4 (AWQ), scales and zero points of groups of channels of an output, activations "
             "not quantised";
  }
  return "?";
}

}  // namespace fathom::config
