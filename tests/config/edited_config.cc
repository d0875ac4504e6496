#include "tests/config/edited_config.h"

#include <fstream>
#include <iterator>

#include "base/json.h"
#include "tests/source_tree.h"

namespace fathom::config {

std::string config_text(const std::string& base) {
  std::ifstream file(source_path("models/configs/") + base + "/config.json");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  FATHOM_CHECK(!text.empty(), "no configuration " << base);
  return text;
}

std::string edit_config(const std::string& text, std::string_view key, std::string_view value) {
  json::Value root = *json::parse(text);
  json::Value* object = &root;
  const size_t dot = key.find('.');
  if (dot != std::string_view::npos) {
    object = &root[std::string(key.substr(0, dot))];
    key.remove_prefix(dot + 1);
  }
  if (value.empty()) {
    object->erase(std::string(key));
  } else {
    (*object)[std::string(key)] = *json::parse(value);
  }
  return json::dump(root);
}

std::string edited_config(const std::string& base, std::string_view key, std::string_view value) {
  return edit_config(config_text(base), key, value);
}

}  // namespace fathom::config
