#pragma once
// FedAnswer: an answer of one choice with its renderer, without a server: tests feed it text of the demo model's
// tokenizer and look at the bytes.
//
//   FedAnswer answer(shown_form(api::Endpoint::kChat), parsed_choice({.starts_in_reasoning = true}));
//   std::string events = answer.feed("I think</think>so", /*step_tokens=*/2);
//   answer.end(core::FinishReason::kStopToken);
//   events += answer.last_events();        // or, without events: answer.body()

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/choice.h"
#include "answer/renderer.h"
#include "tests/api/demo_served_model.h"

namespace fathom::answer::tests {

inline api::ShownForm shown_form(api::Endpoint endpoint, std::string id = "id") {
  return {.endpoint = endpoint, .id = std::move(id), .model = "demo", .stream = true, .created = 7};
}

// For a prompt of 5 tokens. Without a parser all of the output is text.
inline ChoiceSetup plain_choice() {
  const std::shared_ptr<const text::Tokenizer> tokenizer = api::tests::demo_tokenizer();
  ChoiceSetup setup;
  setup.tokenizer = tokenizer.get();
  setup.id = "rid";
  setup.prompt_tokens = 5;
  std::vector<int32_t> ids;
  for (const std::string_view marker : text::output_markers(text::ChatFormat::kV31)) {
    ids.push_back(tokenizer->token_id(marker).value());
  }
  setup.marker_ids = std::make_shared<const std::vector<int32_t>>(std::move(ids));
  return setup;
}

inline ChoiceSetup parsed_choice(text::OutputParser::Options options) {
  ChoiceSetup setup = plain_choice();
  setup.parser.emplace(text::ChatFormat::kV31, options);
  return setup;
}

struct FedAnswer {
  FedAnswer(api::ShownForm form, ChoiceSetup setup)
      : renderer(make_renderer(std::move(form), *api::tests::demo_tokenizer())) {
    choices.emplace_back(std::move(setup));
  }

  // What a stream shows before the first token.
  std::string begin() {
    std::string events;
    renderer->write_begin(choices, events);
    return events;
  }
  // In steps of so many tokens; the events of a stream, and none where step_tokens is 0.
  std::string feed(std::string_view text, size_t step_tokens) {
    std::string events;
    size_t num_fed = 0;
    for (const int32_t id : api::tests::demo_tokenizer()->encode(text)) {
      const core::SampledToken token{.token = id};
      choices[0].push({&token, 1}, /*last_is_stop_token=*/false);
      if (step_tokens > 0 && ++num_fed % step_tokens == 0) renderer->write_news(choices[0], events);
    }
    return events;
  }
  void end(core::FinishReason reason) {
    engine::RequestEnd request_end;
    request_end.reason = reason;
    choices[0].end(request_end);
  }
  // Of a stream, after end().
  std::string last_events() {
    std::string events;
    renderer->write_news(choices[0], events);
    renderer->write_end(choices, events);
    return events;
  }
  std::string body() { return renderer->body(choices); }

  std::vector<Choice> choices;
  std::unique_ptr<Renderer> renderer;
};

}  // namespace fathom::answer::tests
