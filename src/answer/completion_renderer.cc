#include "answer/completion_renderer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "answer/finish.h"
#include "answer/pieces/json_text.h"
#include "answer/pieces/logprobs.h"
#include "answer/usage.h"

namespace fathom::answer {
namespace {

class CompletionRenderer : public Renderer {
 public:
  CompletionRenderer(api::ShownForm shown, const text::Tokenizer& tokenizer)
      : Renderer(std::move(shown)), tokenizer_(tokenizer) {
    for (int i = 0; i < form().num_choices; ++i) {
      progress_.push_back(
          {.started = false,
           .logprobs = CompletionLogprobs({tokenizer, form().tokens_as_ids}, form().top_logprobs)});
    }
    of_items_.resize(static_cast<size_t>(form().num_choices / form().choices_per_item));
    constant_ = chunk_prefix(form(), "text_completion");
  }

  bool prepare(Choice& choice) override;
  void write_news(Choice& choice, std::string& events) override;
  void write_end(std::span<const Choice> choices, std::string& events) override;
  std::string body(std::span<Choice> choices) override;

 private:
  struct Progress {
    bool started = false;
    CompletionLogprobs logprobs;
  };
  // What the choices of one prompt show of it, written once.
  struct OfItem {
    std::optional<CompletionLogprobs> logprobs;
    size_t num_added = 0;           // of the prompt's tokens behind the first
    std::string_view unshown_text;  // of the echoed prompt, behind the tokens added
    std::string prompt_logprobs;
  };

  Progress& progress(const Choice& choice) {
    return progress_[static_cast<size_t>(choice.setup().index)];
  }
  size_t item_of(const Choice& choice) const {
    return static_cast<size_t>(choice.setup().index / form().choices_per_item);
  }
  // The prompt before the first text, with echo.
  std::string_view echoed_prompt(const Choice& choice);
  bool shows_prompt_logprobs(const Choice& choice);
  // Up to so many more tokens; true: all are there.
  bool add_prompt_logprobs(const Choice& choice, size_t most_tokens);
  void append_choice(std::string& out, Choice& choice);
  void append_logprobs(std::string& out, Choice& choice);
  void append_tokens(std::string& out, const Choice& choice);

  const text::Tokenizer& tokenizer_;
  std::string constant_;  // of every chunk
  std::vector<Progress> progress_;
  std::vector<OfItem> of_items_;
};

std::string_view CompletionRenderer::echoed_prompt(const Choice& choice) {
  if (!form().echo || progress(choice).started) return {};
  return form().prompt_texts[item_of(choice)];
}

// text_offset counts characters of the echoed text, so each token of the prompt must be known to be in that text or
// not. A start token that the tokenizer added is not in it, nor, where the prompt came as ids, are special tokens.
bool CompletionRenderer::add_prompt_logprobs(const Choice& choice, size_t most_tokens) {
  OfItem& of_item = of_items_[item_of(choice)];
  std::string_view& left = of_item.unshown_text;
  const auto is_shown = [&](int32_t token) {
    const std::string_view bytes = tokenizer_.token_bytes(token);
    if (tokenizer_.is_special(token) && !left.starts_with(bytes)) return false;
    left.remove_prefix(std::min(left.size(), bytes.size()));
    return true;
  };
  if (!of_item.logprobs) {
    left = echoed_prompt(choice);
    const int32_t first = choice.setup().prompt.front();
    of_item.logprobs.emplace(TokenNames{tokenizer_, form().tokens_as_ids}, form().top_logprobs);
    of_item.logprobs->add_without_logprob(first, is_shown(first));
  }
  const auto tokens = choice.prompt_logprobs().subspan(of_item.num_added);
  for (const core::SampledToken& token : tokens.first(std::min(most_tokens, tokens.size()))) {
    of_item.logprobs->add(token, is_shown(token.token));
    ++of_item.num_added;
  }
  return most_tokens >= tokens.size();
}

bool CompletionRenderer::shows_prompt_logprobs(const Choice& choice) {
  return form().logprobs && form().echo && !progress(choice).started &&
         !choice.setup().prompt.empty();
}

bool CompletionRenderer::prepare(Choice& choice) {
  if (!shows_prompt_logprobs(choice)) return true;
  const auto values_per_token = static_cast<size_t>(form().top_logprobs) + 1;
  return add_prompt_logprobs(choice, kPreparedValues / values_per_token);
}

// With echo the prompt's log-probabilities come first.
void CompletionRenderer::append_logprobs(std::string& out, Choice& choice) {
  CompletionLogprobs& logprobs = progress(choice).logprobs;
  if (shows_prompt_logprobs(choice)) {
    add_prompt_logprobs(choice, choice.prompt_logprobs().size());
    std::optional<CompletionLogprobs>& of_item = of_items_[item_of(choice)].logprobs;
    logprobs.begin_as(*of_item);
  }
  for (const core::SampledToken& token : choice.news.tokens) {
    const bool is_hidden = choice.setup().skip_special_tokens && tokenizer_.is_special(token.token);
    logprobs.add(token, !is_hidden);
  }
  logprobs.append_to(out);
}

// The prompt's come once.
void CompletionRenderer::append_tokens(std::string& out, const Choice& choice) {
  const std::vector<int32_t>& prompt = choice.setup().prompt;
  if (form().return_token_ids) {
    out += R"(,"prompt_token_ids":)";
    if (progress(choice).started) {
      out += "null";
    } else {
      append_token_ids(out, prompt);
    }
    out += R"(,"token_ids":)";
    append_token_ids(out, std::span<const core::SampledToken>(choice.news.tokens));
  }
  if (form().prompt_logprobs) {
    out += R"(,"prompt_logprobs":)";
    std::string& written = of_items_[item_of(choice)].prompt_logprobs;
    if (written.empty()) {
      append_prompt_logprobs(written, choice.prompt_logprobs(), tokenizer_,
                             *form().prompt_logprobs);
    }
    out += written;
  }
}

void CompletionRenderer::append_choice(std::string& out, Choice& choice) {
  out += R"({"index":)";
  append_json(out, choice.setup().index);
  out += R"(,"text":")";
  append_json_inside(out, echoed_prompt(choice));
  append_json_inside(out, choice.news.text);
  out += R"(","logprobs":)";
  if (form().logprobs) {
    append_logprobs(out, choice);
  } else {
    out += "null";
  }
  append_tokens(out, choice);
  out += ',';
  append_openai_finish(out, choice, FinishedCalls::kNone);
  out += '}';
  progress(choice).started = true;
  choice.news = {};
}

void CompletionRenderer::write_news(Choice& choice, std::string& events) {
  const bool shows_text = !choice.news.text.empty() || !echoed_prompt(choice).empty();
  if (!choice.finished() && !shows_text) return;
  events += "data: ";
  events += constant_;
  append_choice(events, choice);
  events += R"(],"usage":)";
  if (form().continuous_usage_stats) {
    append_usage(events, choice.counts());
  } else {
    events += "null";
  }
  events += "}\n\n";
}

void CompletionRenderer::write_end(std::span<const Choice> choices, std::string& events) {
  if (form().include_usage) {
    events += "data: ";
    events += constant_;
    events += R"(],"usage":)";
    append_usage(events, total_usage(choices, form().choices_per_item));
    events += "}\n\n";
  }
  events += "data: [DONE]\n\n";
}

std::string CompletionRenderer::body(std::span<Choice> choices) {
  std::string out = constant_;
  for (Choice& choice : choices) {
    if (choice.setup().index > 0) out += ',';
    append_choice(out, choice);
  }
  out += R"(],"usage":)";
  append_usage(out, total_usage(choices, form().choices_per_item));
  out += R"(,"metadata":{"weight_version":"default"}})";
  return out;
}

}  // namespace

std::unique_ptr<Renderer> make_completion_renderer(api::ShownForm form,
                                                   const text::Tokenizer& tokenizer) {
  return std::make_unique<CompletionRenderer>(std::move(form), tokenizer);
}

}  // namespace fathom::answer
