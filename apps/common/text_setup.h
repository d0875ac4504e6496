#pragma once
// The text side of a checkpoint: its tokenizer and its chat format.
//
//   TextSetup text = load_text("models/demo", /*chat_format=*/"auto");
//   std::vector<int32_t> ids = encode_prompt(text.tokenizer, "Hello");
//
// Throws StartupError. Immutable after loading, thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_encoder.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace fathom::apps {

struct TextSetup {
  text::Tokenizer tokenizer;
  std::optional<text::ChatFormat> chat_format;
  std::string chat_format_problem;  // why there is none
  // How the checkpoint's template differs from those published for the format; empty: it does not, or --chat-format
  // said that the format is right.
  std::string chat_format_warning = {};
};

// `chat_format` is "auto" (chosen from the checkpoint; none found is no error yet) or a name. A warning is logged.
TextSetup load_text(const std::string& model_path, const std::string& chat_format);

// The chat format, or a StartupError that says why there is none and what to do.
text::ChatFormat require_chat_format(const TextSetup& setup);

// A plain prompt: the start token where the checkpoint wants one, then the text, in which nothing becomes
// a special token.
std::vector<int32_t> encode_prompt(const text::Tokenizer& tokenizer, std::string_view text);

// The whole file, or standard input for "-".
std::string read_text_file(const std::string& path);

}  // namespace fathom::apps
