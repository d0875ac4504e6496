#include "server/render/renderer.h"

#include <utility>

#include "server/render/chat_renderer.h"
#include "server/render/completion_renderer.h"
#include "server/render/generate_renderer.h"
#include "server/render/json_text.h"

namespace fathom::server {

std::string chunk_prefix(const AnswerHead& head, std::string_view object) {
  std::string prefix = R"({"id":)";
  append_json(prefix, head.id);
  prefix += R"(,"object":)";
  append_json(prefix, object);
  prefix += R"(,"created":)";
  append_json(prefix, head.created);
  prefix += R"(,"model":)";
  append_json(prefix, head.model);
  prefix += R"(,"choices":[)";
  return prefix;
}

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
