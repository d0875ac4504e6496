#include "apps/common/chat_templates.h"

#include <filesystem>
#include <optional>

#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/startup_error.h"
#include "base/whole_file.h"
#include "text/known_templates.h"

namespace fathom::apps {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

struct Templates {
  std::string plain = {};       // empty: none
  std::string with_tools = {};  // empty: the same
  std::string names = {};       // of named ones, for messages
};

std::string read_file(const fs::path& path) {
  std::string text = value_or_throw(read_whole_file(path.string(), kMaxFileBytes));
  if (is_lfs_pointer(text)) throw StartupError(lfs_pointer_error(path.string()).message);
  return text;
}

// The value of a key of a JSON file; nothing when the file or the key is not there.
std::optional<json::Value> json_value(const fs::path& path, const char* key) {
  if (!fs::exists(path)) return std::nullopt;
  Result<json::Value> value = json::parse(read_file(path));
  if (!value) throw StartupError(path.string() + ": " + value.error().message);
  if (!value->is_object() || !value->contains(key)) return std::nullopt;
  return (*value)[key];
}

std::string text_at(const json::Value& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// A template, or [{"name": "default", "template": ...}, ...].
Templates templates_in(const json::Value& value) {
  Templates templates;
  if (value.is_string()) templates.plain = value.get<std::string>();
  if (!value.is_array()) return templates;
  for (const json::Value& entry : value) {
    const std::string name = text_at(entry, "name");
    if (name.empty()) continue;
    templates.names += (templates.names.empty() ? "" : ", ") + json::shown_text(name);
    if (name == "default") templates.plain = text_at(entry, "template");
    if (name == "tool_use") templates.with_tools = text_at(entry, "template");
  }
  return templates;
}

Templates find_templates(const fs::path& folder) {
  const fs::path jinja = folder / "chat_template.jinja";
  const fs::path tool_use = folder / "additional_chat_templates" / "tool_use.jinja";
  if (fs::exists(jinja)) {
    return {.plain = read_file(jinja),
            .with_tools = fs::exists(tool_use) ? read_file(tool_use) : ""};
  }
  for (const char* file : {"tokenizer_config.json", "chat_template.json"}) {
    const std::optional<json::Value> value = json_value(folder / file, "chat_template");
    if (!value) continue;
    Templates templates = templates_in(*value);
    if (!templates.plain.empty() || !templates.names.empty()) return templates;
  }
  return {};
}

text::ChatFormat form_with_tools(text::ChatFormat format) {
  text::Conversation conversation;
  conversation.tools = json::Value::array({json::Value::object()});
  return text::format_for(format, conversation);
}

}  // namespace

Result<text::ChatFormat> chat_format_of(const std::string& model_path) {
  const fs::path folder(model_path);
  const Templates templates = find_templates(folder);
  if (templates.plain.empty() && !templates.names.empty()) {
    return invalid_argument("chat template: of the named templates " + templates.names +
                            " none is \"default\"; --chat-format takes " +
                            text::chat_format_names());
  }
  const std::optional<json::Value> model_type = json_value(folder / "config.json", "model_type");
  const text::CheckpointChatHints hints{
      .model_type = model_type && model_type->is_string() ? model_type->get<std::string>() : "",
      .chat_template = templates.plain};
  Result<text::ChatFormat> plain = text::detect_chat_format(hints);
  if (!plain || templates.with_tools.empty()) return plain;
  const Result<text::ChatFormat> with_tools = text::detect_chat_format(
      {.model_type = hints.model_type, .chat_template = templates.with_tools});
  if (!with_tools) return invalid_argument("\"tool_use\" " + with_tools.error().message);
  if (form_with_tools(*plain) == form_with_tools(*with_tools)) return plain;
  return invalid_argument("chat template: \"default\" is that of " +
                          std::string(text::chat_format_name(*plain)) + ", \"tool_use\" that of " +
                          std::string(text::chat_format_name(*with_tools)) +
                          ": --chat-format chooses one");
}

std::string chat_template_warning(const std::string& model_path, text::ChatFormat format) {
  const std::string source = find_templates(fs::path(model_path)).plain;
  if (source.empty()) return "";
  const std::optional<text::UnpublishedPart> part = text::unpublished_part(format, source);
  if (!part) return "";
  const std::string name(text::chat_format_name(format));
  const std::string place =
      part->text.empty() ? "ends in line " + std::to_string(part->line) + ", before those do"
                         : "differs in line " + std::to_string(part->line) + " at " + part->text;
  return "the checkpoint's chat template is none of those published for " + name + ": it " + place +
         "; prompts are what the published ones make, --chat-format " + name +
         " says that this is right";
}

}  // namespace fathom::apps
