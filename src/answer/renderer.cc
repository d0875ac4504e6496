#include "answer/renderer.h"

#include <utility>

#include "answer/chat_renderer.h"
#include "answer/completion_renderer.h"
#include "answer/generate_renderer.h"
#include "answer/messages_renderer.h"
#include "answer/pieces/json_text.h"
#include "answer/responses_renderer.h"
#include "answer/score_renderer.h"

namespace fathom::answer {

std::string chunk_prefix(const api::ShownForm& form, std::string_view object) {
  std::string prefix = R"({"id":)";
  append_json(prefix, form.id);
  prefix += R"(,"object":)";
  append_json(prefix, object);
  prefix += R"(,"created":)";
  append_json(prefix, form.created);
  prefix += R"(,"model":)";
  append_json(prefix, form.model);
  prefix += R"(,"choices":[)";
  return prefix;
}

void Renderer::write_error(const api::ApiError& error, std::string& events) {
  events += "data: " + api::to_json(error) + "\n\n";
}

std::unique_ptr<Renderer> make_renderer(api::ShownForm form, const text::Tokenizer& tokenizer) {
  switch (form.endpoint) {
    case api::Endpoint::kChat:
      return make_chat_renderer(std::move(form), tokenizer);
    case api::Endpoint::kCompletions:
      return make_completion_renderer(std::move(form), tokenizer);
    case api::Endpoint::kMessages:
      return make_messages_renderer(std::move(form));
    case api::Endpoint::kResponses:
      return make_responses_renderer(std::move(form), tokenizer);
    case api::Endpoint::kScore:
      return make_score_renderer(std::move(form));
    case api::Endpoint::kGenerate:
      break;
  }
  return make_generate_renderer(std::move(form), tokenizer);
}

}  // namespace fathom::answer
