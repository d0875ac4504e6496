#pragma once
// Prompts that are not conversations: texts and token ids, one or many.
//
//   const json::Value* prompt = reader.find("prompt");
//   RawPrompts prompts = read_prompts(*prompt, "prompt", model, problem);
//
// A text is encoded as the checkpoint's tokenizer does it for everyone: with the start token where it says
// so, and with special tokens where the text spells them. A caller of these endpoints writes the whole
// prompt, as token ids if it likes; messages of a chat never become special tokens.
//
// Pure, thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "api/served_model.h"
#include "api/tables/field_reader.h"
#include "text/chat_encoder.h"

namespace fathom::api {

struct RawPrompt {
  std::string path;  // "prompt", "prompt[3]"
  std::string text;  // empty for token ids
  std::vector<int32_t> ids;
};

struct RawPrompts {
  std::vector<RawPrompt> prompts;  // empty after a problem
  bool is_batch = false;           // several were given, or a list of one
};

// A text, an array of texts, an array of token ids, or an array of those.
RawPrompts read_prompts(const json::Value& value, const std::string& path, const ServedModel& model,
                        FieldProblem& problem);

// Token ids in [0, vocab_size); more than fit the context are a problem before they are read.
std::vector<int32_t> read_token_ids(const json::Value& value, const std::string& path,
                                    const ServedModel& model, FieldProblem& problem);

std::vector<int32_t> encode_raw(const std::string& text, bool add_special_tokens,
                                const ServedModel& model);

// A text of so many bytes has too many tokens whatever it says. Checked before encoding, so that no text
// costs more than one that fits.
void check_text_fits(size_t num_bytes, const std::string& path, const ServedModel& model,
                     FieldProblem& problem);

}  // namespace fathom::api
