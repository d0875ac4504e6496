#include "apps/common/text_setup.h"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <utility>

#include "apps/common/chat_templates.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "base/whole_file.h"

namespace fathom::apps {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{4} << 30;  // a data set

}  // namespace

namespace {

text::Tokenizer load_tokenizer(const std::string& model_path) {
  Result<text::Tokenizer> tokenizer = text::Tokenizer::load(model_path);
  if (tokenizer) return std::move(*tokenizer);
  std::string why = tokenizer.error().message;
  if (why.find("holds no tokenizer.json") != why.npos)
    why += "; put the model's beside config.json (--load-format dummy makes weights alone)";
  throw StartupError(why);
}

}  // namespace

TextSetup load_text(const std::string& model_path, const std::string& chat_format) {
  if (!std::filesystem::is_directory(model_path)) {
    throw StartupError("--model-path " + model_path + " is not a directory");
  }
  TextSetup setup{.tokenizer = load_tokenizer(model_path),
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
  const Result<text::ChatFormat> detected = chat_format_of(model_path);
  if (detected) {
    setup.chat_format = *detected;
    setup.chat_format_warning = chat_template_warning(model_path, *detected);
    if (!setup.chat_format_warning.empty()) {
      FATHOM_LOG(kWarning, "apps", "a chat template that was not published",
                 {{"what", setup.chat_format_warning}});
    }
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
