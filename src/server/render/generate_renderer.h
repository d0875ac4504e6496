#pragma once
// The answers of /generate: see renderer.h and docs/contracts/streaming.md.

#include <memory>

#include "server/render/renderer.h"

namespace fathom::server {

std::unique_ptr<Renderer> make_generate_renderer(AnswerHead head, const text::Tokenizer& tokenizer);

}  // namespace fathom::server
