#pragma once
// The answers of /v1/chat/completions: see renderer.h and docs/contracts/streaming.md.

#include <memory>

#include "answer/renderer.h"

namespace fathom::answer {

std::unique_ptr<Renderer> make_chat_renderer(api::ShownForm form, const text::Tokenizer& tokenizer);

}  // namespace fathom::answer
