#pragma once
// A file of flags, in YAML: one mapping of their names, with dashes or underscores and without the two in front.
//
//   # model-path: /srv/models/DeepSeek-V2-Lite
//   # served_model_name: [v2-lite, default]
//   for (const ConfigEntry& entry : read_config_file("fathom.yaml")) ...
//
// Values are texts, as they would be on the command line; what they may be is the flag's to say. Throws StartupError
// that names the file and the line. No state.

#include <string>
#include <vector>

namespace fathom::apps {

struct ConfigEntry {
  std::string name;                 // as written
  std::vector<std::string> values;  // several of a list; none of an empty one
  std::string place;                // "fathom.yaml:3"
};

std::vector<ConfigEntry> read_config_file(const std::string& path);

}  // namespace fathom::apps
