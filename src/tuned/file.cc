#include "tuned/file.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <variant>

#include "base/json.h"
#include "base/whole_file.h"

namespace fathom::tuned {
namespace {

using tensor::DType;

constexpr std::string_view kF8Suffix = ",dtype=fp8_w8a8,block_shape=[128, 128]", kEnding = ".json";
constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr int64_t kMaxSize = 1 << 24;

constexpr std::pair<MatrixKernel, const char*> kMatrixKernels[] = {
    {MatrixKernel::kDefault, "default"},
    {MatrixKernel::kStreaming, "streaming"},
    {MatrixKernel::kBatch, "batch"},
    {MatrixKernel::kTiled, "tiled"},
    {MatrixKernel::kLibrary, "cublaslt"}};
constexpr std::pair<ExpertKernel, const char*> kExpertKernels[] = {
    {ExpertKernel::kDefault, "default"},
    {ExpertKernel::kPairs, "pairs"},
    {ExpertKernel::kNarrow, "narrow"},
    {ExpertKernel::kWide, "wide"},
    {ExpertKernel::kTiled, "tiled"}};
constexpr std::pair<Tile, const char*> kTiles[] = {
    {Tile::kDefault, "default"}, {Tile::kSmall, "small"}, {Tile::kLarge, "large"}};

template <class Value, size_t kCount>
std::string name_in(const std::pair<Value, const char*> (&names)[kCount], Value value) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return "?";
}

template <class Value, size_t kCount>
std::optional<Value> value_in(const std::pair<Value, const char*> (&names)[kCount],
                              const json::Value& text) {
  for (const auto& [value, name] : names)
    if (json::is_text(text, name)) return value;
  return std::nullopt;
}

// Takes what begins `text`; whether it was there.
bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}
bool take_number(std::string_view& text, int64_t& number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || number < 1 || number > kMaxSize) return false;
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  return true;
}

using Named = std::variant<MatrixChoices, ExpertChoices>;

std::optional<Named> parse_name(std::string_view name) {
  int64_t first = 0, second = 0;
  const bool is_matrix = take(name, "N=");
  if (!is_matrix && !take(name, "E=")) return std::nullopt;
  if (!take_number(name, first) || !take(name, is_matrix ? ",K=" : ",N=") ||
      !take_number(name, second) || !take(name, ",device_name="))
    return std::nullopt;
  if (!name.ends_with(kEnding)) return std::nullopt;
  name.remove_suffix(kEnding.size());
  const bool is_f8 = name.ends_with(kF8Suffix);
  if (is_f8) name.remove_suffix(kF8Suffix.size());
  if (name.empty() || name.find_first_of(", =/") != name.npos) return std::nullopt;
  const DType dtype = is_f8 ? DType::kF8E4M3 : DType::kBf16;
  if (is_matrix)
    return MatrixChoices{.device = std::string(name),
                         .shape = {.dtype = dtype, .n = first, .k = second},
                         .entries = {},
                         .from = {}};
  return ExpertChoices{.device = std::string(name),
                       .shape = {.dtype = dtype, .experts = first, .inter = second},
                       .entries = {},
                       .from = {}};
}

// The members of an entry, each read by `read`; an empty answer: it is one that is known, with a value that is.
template <class Read>
std::string read_members(const json::Value& value, const Read& read) {
  if (!value.is_object()) return "is " + json::shown(value) + ", must be an object";
  for (const auto& [key, member] : value.items()) {
    std::string problem = read(key, member);
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string unknown_value(std::string_view key, const json::Value& value) {
  return std::string(key) + " is " + json::shown(value) + ", which this program does not know";
}

std::string read_count(std::string_view key, const json::Value& value, int& to) {
  constexpr int kMost = 64;
  if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kMost)
    return std::string(key) + " is " + json::shown(value) + ", must be a number from 1 to 64";
  to = value.get<int>();
  return {};
}
std::string read_us(std::string_view key, const json::Value& value, double& to) {
  if (!value.is_number() || !(value.get<double>() > 0))
    return std::string(key) + " is " + json::shown(value) + ", must be above 0";
  to = value.get<double>();
  return {};
}
template <class Value, size_t kCount>
std::string read_name(const std::pair<Value, const char*> (&names)[kCount], std::string_view key,
                      const json::Value& value, Value& to) {
  const std::optional<Value> known = value_in(names, value);
  if (!known) return unknown_value(key, value);
  to = *known;
  return {};
}

std::string unknown_key(const std::string& key) {
  std::string text = json::shown_text(key) + " is no key of these files";
  if (key.starts_with("BLOCK_SIZE_") || key == "num_warps" || key == "num_stages" ||
      key == "GROUP_SIZE_M")
    text += ": it is of SGLang's Triton kernels, which this program has not";
  return text;
}

template <class Choice>
std::string read_times(const std::string& key, const json::Value& value, Entry<Choice>& to) {
  if (key == "us") return read_us(key, value, to.us);
  if (key == "default_us") return read_us(key, value, to.default_us);
  return unknown_key(key);
}

std::string read_entry(const json::Value& value, Entry<MatrixChoice>& to) {
  MatrixChoice& choice = to.choice;
  return read_members(value, [&](const std::string& key, const json::Value& member) {
    if (key == "kernel") return read_name(kMatrixKernels, key, member, choice.kernel);
    if (key == "cluster") return read_count(key, member, choice.cluster);
    if (key == "warps") return read_count(key, member, choice.warps);
    if (key == "stages") return read_count(key, member, choice.stages);
    if (key == "tile") return read_name(kTiles, key, member, choice.tile);
    if (key == "raster") return read_count(key, member, choice.raster);
    return read_times(key, member, to);
  });
}

std::string read_entry(const json::Value& value, Entry<ExpertChoice>& to) {
  ExpertChoice& choice = to.choice;
  return read_members(value, [&](const std::string& key, const json::Value& member) {
    if (key == "kernel") return read_name(kExpertKernels, key, member, choice.kernel);
    if (key == "gate_up_stages") return read_count(key, member, choice.gate_up_stages);
    if (key == "down_stages") return read_count(key, member, choice.down_stages);
    if (key == "down_tile") return read_name(kTiles, key, member, choice.down_tile);
    return read_times(key, member, to);
  });
}

// An order of sums for each class of rows; the default is one.
template <class Choices>
std::string why_not_one_order(const Choices& choices) {
  for (const auto& a : choices.entries)
    for (const auto& b : choices.entries) {
      // For many rows every kernel is a class of its own.
      if (a.rows > kMaxBatchRows || !is_one_class(choices.shape, a.rows, b.rows)) continue;
      if (!has_same_sums(a.choice, b.choice))
        return std::to_string(a.rows) + " and " + std::to_string(b.rows) +
               " rows would have sums of another order: they are of one class";
    }
  return {};
}

template <class Choices>
std::string read_entries(const json::Value& value, Choices& choices) {
  if (!value.is_object() || value.empty())
    return "is " + json::shown(value) + ", must be an object of numbers of rows";
  for (const auto& [key, member] : value.items()) {
    auto& entry = choices.entries.emplace_back();
    std::string_view digits = key;
    if (!take_number(digits, entry.rows) || !digits.empty())
      return json::shown_text(key) + " is no number of rows";
    std::string problem = read_entry(member, entry);
    if (problem.empty()) problem = why_not(choices.shape, entry.rows, entry.choice);
    if (!problem.empty()) return "for " + key + " rows: " + problem;
  }
  std::sort(choices.entries.begin(), choices.entries.end(),
            [](const auto& a, const auto& b) { return a.rows < b.rows; });
  return why_not_one_order(choices);
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

class EntryText {
 public:
  explicit EntryText(const std::string& kernel) : text_("{\"kernel\": \"" + kernel + "\"") {}
  EntryText& count(const char* key, int value) {
    return value > 0 ? add(key, std::to_string(value)) : *this;
  }
  EntryText& tile(const char* key, Tile value) {
    return value == Tile::kDefault ? *this : add(key, "\"" + name_in(kTiles, value) + "\"");
  }
  EntryText& us(const char* key, double value) {
    return value > 0 ? add(key, number_text(value)) : *this;
  }
  std::string end() const { return text_ + "}"; }

 private:
  EntryText& add(const char* key, const std::string& value) {
    text_ += std::string(", \"") + key + "\": " + value;
    return *this;
  }
  std::string text_;
};

std::string entry_text(const Entry<MatrixChoice>& entry) {
  const MatrixChoice& choice = entry.choice;
  return EntryText(kernel_name(choice.kernel))
      .count("cluster", choice.cluster)
      .count("warps", choice.warps)
      .count("stages", choice.stages)
      .tile("tile", choice.tile)
      .count("raster", choice.raster)
      .us("us", entry.us)
      .us("default_us", entry.default_us)
      .end();
}

std::string entry_text(const Entry<ExpertChoice>& entry) {
  const ExpertChoice& choice = entry.choice;
  return EntryText(kernel_name(choice.kernel))
      .count("gate_up_stages", choice.gate_up_stages)
      .count("down_stages", choice.down_stages)
      .tile("down_tile", choice.down_tile)
      .us("us", entry.us)
      .us("default_us", entry.default_us)
      .end();
}

template <class Choices>
std::string entries_text(const Choices& choices) {
  std::string text = "{\n";
  for (const auto& entry : choices.entries)
    text += (text.size() > 2 ? ",\n  \"" : "  \"") + std::to_string(entry.rows) +
            "\": " + entry_text(entry);
  return text + "\n}\n";
}

std::string size_in_name(const char* key, int64_t size) {
  return std::string(key) + "=" + std::to_string(size) + ",";
}
std::string name_of(const std::string& sizes, const std::string& device, DType dtype) {
  return sizes + "device_name=" + device + (dtype == DType::kF8E4M3 ? std::string(kF8Suffix) : "") +
         std::string(kEnding);
}

std::string with_count(const char* what, int value) {
  return value > 0 ? std::string(", ") + what + " " + std::to_string(value) : std::string();
}
std::string with_tile(const char* what, Tile tile) {
  return tile == Tile::kDefault ? std::string() : ", " + name_in(kTiles, tile) + " " + what;
}

}  // namespace

std::string device_name_in_files(std::string_view device) {
  std::string name(device);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::string file_name(const MatrixChoices& choices) {
  const MatrixShape& shape = choices.shape;
  return name_of(size_in_name("N", shape.n) + size_in_name("K", shape.k), choices.device,
                 shape.dtype);
}
std::string file_name(const ExpertChoices& choices) {
  const ExpertShape& shape = choices.shape;
  return name_of(size_in_name("E", shape.experts) + size_in_name("N", shape.inter), choices.device,
                 shape.dtype);
}
std::string file_text(const MatrixChoices& choices) { return entries_text(choices); }
std::string file_text(const ExpertChoices& choices) { return entries_text(choices); }

std::string kernel_name(MatrixKernel kernel) { return name_in(kMatrixKernels, kernel); }
std::string kernel_name(ExpertKernel kernel) { return name_in(kExpertKernels, kernel); }

std::string choice_text(const MatrixChoice& choice) {
  return kernel_name(choice.kernel) + with_count("cluster", choice.cluster) +
         with_count("warps", choice.warps) + with_count("stages", choice.stages) +
         with_tile("tiles", choice.tile) + with_count("raster", choice.raster);
}
std::string choice_text(const ExpertChoice& choice) {
  return kernel_name(choice.kernel) + with_count("stages", choice.gate_up_stages) +
         with_count("then", choice.down_stages) + with_tile("tiles of down", choice.down_tile);
}

Status add_file(const NamedText& file, std::string_view device, Table& table) {
  const auto refuse = [&](const std::string& why) {
    return invalid_argument(file.from + ": " + why);
  };
  std::optional<Named> named = parse_name(file.name);
  if (!named)
    return refuse("is not named as files of tuned choices are (N=...,K=...,device_name=....json)");
  const Result<json::Value> value = json::parse(file.text);
  if (!value) return refuse(value.error().message);
  return std::visit(
      [&](auto& choices) -> Status {
        if (!device.empty() && choices.device != device)
          return refuse("is for " + choices.device + ", not for " + std::string(device));
        const std::string problem = read_entries(*value, choices);
        if (!problem.empty()) return refuse(problem);
        choices.from = file.from;
        table.put(std::move(choices));
        return {};
      },
      *named);
}

Status add_directory(const std::string& path, std::string_view device, Table& table) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (auto at = std::filesystem::directory_iterator(path, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error))
    if (at->path().extension() == kEnding) files.push_back(at->path());
  if (error) return invalid_argument(path + ": " + error.message());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    Result<std::string> text = read_whole_file(file.string(), kMaxFileBytes);
    if (!text) return text.error();
    Status added = add_file(
        {.name = file.filename().string(), .text = std::move(*text), .from = file.string()}, device,
        table);
    if (!added) return added;
  }
  return {};
}

}  // namespace fathom::tuned
