#pragma once
// The chat format that a checkpoint's files ask for: where its chat template may stand, and which of several counts.
//
//   Result<text::ChatFormat> format = chat_format_of("models/demo");
//   if (!format) complain(format.error().message);   // none is known; not an error of the files
//
// Looked for in this order: chat_template.jinja (with additional_chat_templates/tool_use.jinja), the "chat_template" of
// tokenizer_config.json, and that of chat_template.json. Named templates count as in Hugging Face transformers:
// "default", and "tool_use" where there are tools; since one format has both, the two must be of one. Throws
// StartupError for a file that cannot be read. Thread-safe (no state).

#include <string>

#include "base/result.h"
#include "text/chat_format.h"

namespace fathom::apps {

Result<text::ChatFormat> chat_format_of(const std::string& model_path);
// How the checkpoint's template differs from those published for the format that it was recognised as; empty: it does
// not. A format is written in the program, so what somebody has put into its template does not reach the prompts.
std::string chat_template_warning(const std::string& model_path, text::ChatFormat format);

}  // namespace fathom::apps
