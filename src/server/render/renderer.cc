#include "server/render/renderer.h"

#include <utility>

#include "server/render/chat_renderer.h"
#include "server/render/completion_renderer.h"
#include "server/render/generate_renderer.h"

namespace fathom::server {

std::unique_ptr<Renderer> make_renderer(AnswerHead head, const text::Tokenizer& tokenizer) {
  switch (head.endpoint) {
    case Endpoint::kChat:
      return make_chat_renderer(std::move(head), tokenizer);
    case Endpoint::kCompletions:
      return make_completion_renderer(std::move(head), tokenizer);
    case Endpoint::kGenerate:
      break;
  }
  return make_generate_renderer(std::move(head), tokenizer);
}

}  // namespace fathom::server
