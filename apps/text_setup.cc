#include "apps/text_setup.h"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/startup_error.h"
#include "base/whole_file.h"

namespace fathom::apps {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{4} << 30;  // a data set

// The value of a string key of a JSON file; empty when the file or the key is not there.
std::string json_string(const std::filesystem::path& path, const char* key) {
  if (!std::filesystem::exists(path)) return "";
  Result<json::Value> value = json::parse(read_text_file(path));
  if (!value) throw StartupError(path.string() + ": " + value.error().message);
  if (!value->is_object() || !value->contains(key) || !(*value)[key].is_string()) return "";
  return (*value)[key].get<std::string>();
}

text::CheckpointChatHints chat_hints(const std::filesystem::path& folder) {
  text::CheckpointChatHints hints;
  hints.model_type = json_string(folder / "config.json", "model_type");
  // A chat_template.jinja beside the tokenizer takes the place of the one inside its config.
  const std::filesystem::path jinja = folder / "chat_template.jinja";
  hints.chat_template = std::filesystem::exists(jinja)
                            ? read_text_file(jinja)
                            : json_string(folder / "tokenizer_config.json", "chat_template");
  return hints;
}

}  // namespace

TextSetup load_text(const std::string& model_path, const std::string& chat_format) {
  if (!std::filesystem::is_directory(model_path)) {
    throw StartupError("--model-path " + model_path + " is not a directory");
  }
  TextSetup setup{.tokenizer = value_or_throw(text::Tokenizer::load(model_path)),
                  .chat_format = std::nullopt,
                  .chat_format_problem = ""};
  if (chat_format != "auto") {
    setup.chat_format = text::chat_format_from_name(chat_format);
    if (!setup.chat_format) {
      throw StartupError("--chat-format \"" + chat_format +
                         "\" is unknown, must be auto or one of " + text::chat_format_names());
    }
    return setup;
  }
  const Result<text::ChatFormat> detected = text::detect_chat_format(chat_hints(model_path));
  if (detected) {
    setup.chat_format = *detected;
  } else {
    setup.chat_format_problem = detected.error().message;
  }
  return setup;
}

text::ChatFormat require_chat_format(const TextSetup& setup) {
  if (!setup.chat_format) throw StartupError(setup.chat_format_problem + " (--chat-format)");
  const std::vector<std::string> unknown =
      text::unknown_markup(*setup.chat_format, setup.tokenizer);
  if (!unknown.empty()) {
    throw StartupError("--chat-format " + std::string(text::chat_format_name(*setup.chat_format)) +
                       " needs " + unknown.front() +
                       ", which is no token of this checkpoint's tokenizer");
  }
  return *setup.chat_format;
}

std::vector<int32_t> encode_prompt(const text::Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_bos = tokenizer.add_bos_token() && tokenizer.bos_id() >= 0,
                                 .parse_special = false});
}

std::string read_text_file(const std::string& path) {
  if (path == "-") {
    return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  }
  return value_or_throw(read_whole_file(path, kMaxTextBytes));
}

}  // namespace fathom::apps
