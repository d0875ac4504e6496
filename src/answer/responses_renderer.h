#pragma once
// Renderer of POST /v1/responses: a `response` with its output items, or the events of a stream of them. Internal to
// answer/.

#include "answer/renderer.h"

namespace fathom::answer {

std::unique_ptr<Renderer> make_responses_renderer(api::ShownForm form,
                                                  const text::Tokenizer& tokenizer);

}  // namespace fathom::answer
