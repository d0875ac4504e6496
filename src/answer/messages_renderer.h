#pragma once
// Renderer of POST /v1/messages: a `message` of content blocks, or the events of a stream of them. Internal to answer/.

#include "answer/renderer.h"

namespace fathom::answer {

std::unique_ptr<Renderer> make_messages_renderer(api::ShownForm form);

}  // namespace fathom::answer
