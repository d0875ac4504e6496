#include "apps/common/config_file.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "base/startup_error.h"
#include "base/whole_file.h"

namespace fathom::apps {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;

std::string place_of(const std::string& path, const YAML::Mark& mark) {
  return mark.is_null() ? path : path + ":" + std::to_string(mark.line + 1);
}

std::string scalar(const YAML::Node& node, const std::string& place, const std::string& name) {
  if (node.IsScalar()) return node.Scalar();
  throw StartupError("--config " + place + ": \"" + name +
                     "\" must be a text, a number, true, false, or a list of these");
}

ConfigEntry entry_of(const std::string& path, const YAML::Node& key, const YAML::Node& value) {
  ConfigEntry entry{.name = {}, .values = {}, .place = place_of(path, key.Mark())};
  if (!key.IsScalar()) throw StartupError("--config " + entry.place + ": a name must be a text");
  entry.name = key.Scalar();
  if (!value.IsSequence()) {
    entry.values.push_back(scalar(value, entry.place, entry.name));
    return entry;
  }
  for (const YAML::Node& item : value)
    entry.values.push_back(scalar(item, entry.place, entry.name));
  return entry;
}

YAML::Node load(const std::string& path) {
  const std::string text = value_or_throw(read_whole_file(path, kMaxConfigBytes));
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw StartupError("--config " + place_of(path, error.mark) + ": " + error.msg);
  }
}

}  // namespace

std::vector<ConfigEntry> read_config_file(const std::string& path) {
  const YAML::Node document = load(path);
  if (document.IsNull()) return {};
  if (!document.IsMap())
    throw StartupError("--config " + path + ": must be one mapping, as in \"port: 30001\"");
  std::vector<ConfigEntry> entries;
  std::set<std::string> seen;
  for (const auto& item : document) {
    entries.push_back(entry_of(path, item.first, item.second));
    const ConfigEntry& entry = entries.back();
    if (!seen.insert(entry.name).second)
      throw StartupError("--config " + entry.place + ": \"" + entry.name + "\" is there twice");
  }
  return entries;
}

}  // namespace fathom::apps
