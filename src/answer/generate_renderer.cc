#include "answer/generate_renderer.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "answer/finish.h"
#include "answer/pieces/json_text.h"
#include "answer/pieces/logprobs.h"
#include "base/clock.h"

namespace fathom::answer {
namespace {

// The native answer repeats everything in each event. What is constant or only grows is kept as JSON, so an
// event costs copying and not rendering again.
class GenerateRenderer : public Renderer {
 public:
  GenerateRenderer(api::ShownForm shown, const text::Tokenizer& tokenizer)
      : Renderer(std::move(shown)),
        tokenizer_(tokenizer),
        progress_(static_cast<size_t>(form().num_choices)),
        inputs_(static_cast<size_t>(form().num_choices / form().choices_per_item)) {}

  bool prepare(Choice& choice) override;
  void write_news(Choice& choice, std::string& events) override;
  void write_end(std::span<const Choice>, std::string& events) override {
    events += "data: [DONE]\n\n";
  }
  std::string body(std::span<Choice> choices) override;

 private:
  // Insides of JSON strings and lists.
  struct Progress {
    std::string text, output_ids, logprobs, top_logprobs;
    int num_shown_tokens = 0;
  };

  // Insides of lists: what is shown of the tokens before `next`.
  struct Entries {
    std::string entries, tops;
    std::optional<size_t> next;
  };
  // What the choices of one prompt show of it: before their ends, and with them.
  struct Input {
    Entries before_end, at_end;
  };

  bool is_list() const { return form().is_batch || form().num_choices > 1; }
  // Up to so many of its new tokens; true: none is left.
  bool take_tokens(Choice& choice, size_t most);
  void take_news(Choice& choice);
  void append_object(std::string& out, const Choice& choice);
  void append_meta_info(std::string& out, const Choice& choice);
  void append_logprobs(std::string& out, const Choice& choice);
  static void append_speculation(std::string& out, const core::SpeculationCounts& counts);
  Input& input(const Choice& choice) {
    return inputs_[static_cast<size_t>(choice.setup().index / form().choices_per_item)];
  }
  // Up to so many more of its entries, with values or without; true: all are there.
  bool add_entries(Entries& to, const Choice& choice, bool shows_values, size_t most) const;
  Progress& progress(const Choice& choice) {
    return progress_[static_cast<size_t>(choice.setup().index)];
  }

  const text::Tokenizer& tokenizer_;
  Stopwatch since_arrival_;
  std::vector<Progress> progress_;
  std::vector<Input> inputs_;
};

bool GenerateRenderer::take_tokens(Choice& choice, size_t most) {
  Progress& shown = progress(choice);
  const auto separate = [](std::string& list) {
    if (!list.empty()) list += ',';
  };
  std::vector<core::SampledToken>& tokens = choice.news.tokens;
  const size_t num_taken = std::min(most, tokens.size());
  for (const core::SampledToken& token : std::span(tokens).first(num_taken)) {
    separate(shown.output_ids);
    append_json(shown.output_ids, token.token);
    if (!choice.setup().return_logprobs) continue;
    separate(shown.logprobs);
    append_native_entry(shown.logprobs, {token.token, token.logprob},
                        form().return_text_in_logprobs, tokenizer_);
    separate(shown.top_logprobs);
    append_native_top(shown.top_logprobs, token, form().return_text_in_logprobs, tokenizer_);
  }
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(num_taken));
  return tokens.empty();
}

void GenerateRenderer::take_news(Choice& choice) {
  append_json_inside(progress(choice).text, choice.news.text);
  take_tokens(choice, choice.news.tokens.size());
  choice.news = {};
}

// For the prompt from logprob_start_len on; the first has no log-probability. Events repeat them, so values come with
// the last one alone.
bool GenerateRenderer::add_entries(Entries& to, const Choice& choice, bool shows_values,
                                   size_t most) const {
  const std::vector<int32_t>& prompt = choice.setup().prompt;
  const std::span<const core::SampledToken> known =
      shows_values ? choice.prompt_logprobs() : std::span<const core::SampledToken>();
  const int start = choice.setup().logprob_start_len;
  if (!to.next) to.next = start < 0 ? prompt.size() : static_cast<size_t>(start);
  const size_t end = std::min(prompt.size(), *to.next + most);
  for (size_t i = *to.next; i < end; ++i) {
    const bool is_first = to.entries.empty();
    if (!is_first) to.entries += ',', to.tops += ',';
    if (is_first || i - 1 >= known.size()) {
      to.entries += "[null,";
      append_json(to.entries, prompt[i]);
      to.entries += ',';
      append_json_or_null(to.entries,
                          form().return_text_in_logprobs ? token_text(tokenizer_, prompt[i]) : "");
      to.entries += ']';
      to.tops += "null";
      continue;
    }
    append_native_entry(to.entries, {known[i - 1].token, known[i - 1].logprob},
                        form().return_text_in_logprobs, tokenizer_);
    append_native_top(to.tops, known[i - 1], form().return_text_in_logprobs, tokenizer_);
  }
  to.next = std::max(end, *to.next);
  return *to.next >= prompt.size();
}

bool GenerateRenderer::prepare(Choice& choice) {
  const auto num_values = static_cast<size_t>(choice.setup().values_per_token());
  if (!take_tokens(choice, kPreparedValues / num_values)) return false;
  if (!choice.setup().return_logprobs || !choice.finished()) return true;
  return add_entries(input(choice).at_end, choice, true, kPreparedValues / num_values);
}

void GenerateRenderer::append_logprobs(std::string& out, const Choice& choice) {
  const Progress& shown = progress(choice);
  Entries& of_prompt = choice.finished() ? input(choice).at_end : input(choice).before_end;
  add_entries(of_prompt, choice, choice.finished(), choice.setup().prompt.size());
  out += R"("input_token_logprobs":[)" + of_prompt.entries + R"(],"input_top_logprobs":[)";
  out += of_prompt.tops + "],";
  out += R"("output_token_logprobs":[)" + shown.logprobs + R"(],"output_top_logprobs":[)";
  out += shown.top_logprobs + R"(],"output_token_logprobs_length":)";
  append_json(out, choice.counts().completion_tokens);
  out += ',';
}

// Releases of SGLang have called the same figures by different names.
void GenerateRenderer::append_speculation(std::string& out, const core::SpeculationCounts& counts) {
  if (counts.num_verify_steps == 0) return;
  const auto number = [&out](std::string_view name, auto value) {
    out += ",\"";
    out += name;
    out += "\":";
    append_json(out, value);
  };
  const auto verified = static_cast<float>(std::max<int64_t>(counts.num_drafts_verified, 1));
  number("spec_accept_rate", static_cast<float>(counts.num_drafts_accepted) / verified);
  number("spec_accept_length", static_cast<float>(counts.accept_length()));
  number("spec_verify_ct", counts.num_verify_steps);
  for (const char* name : {"spec_accept_token_num", "spec_num_correct_drafts"}) {
    number(name, counts.num_drafts_accepted);
  }
  for (const char* name : {"spec_draft_token_num", "spec_num_proposed_drafts"}) {
    number(name, counts.num_drafts_verified);
  }
  for (const char* name : {"spec_accept_histogram", "spec_correct_drafts_histogram"}) {
    out += std::string(",\"") + name + "\":[";
    for (size_t i = 0; i < counts.accept_histogram.size(); ++i) {
      if (i > 0) out += ',';
      append_json(out, counts.accept_histogram[i]);
    }
    out += ']';
  }
}

void GenerateRenderer::append_meta_info(std::string& out, const Choice& choice) {
  const ChoiceCounts& counts = choice.counts();
  out += R"({"id":)";
  append_json(out, choice.setup().id);
  out += R"(,"finish_reason":)";
  append_native_finish(out, choice);
  out += R"(,"prompt_tokens":)";
  append_json(out, counts.prompt_tokens);
  out += R"(,"weight_version":"default","num_retractions":)";
  append_json(out, counts.retractions);
  out += ',';
  if (choice.setup().return_logprobs) append_logprobs(out, choice);
  out += R"("reasoning_tokens":)";
  append_json(out, counts.reasoning_tokens);
  out += R"(,"completion_tokens":)";
  append_json(out, counts.completion_tokens);
  out += R"(,"cached_tokens":)";
  append_json(out, counts.cached_tokens);
  out += R"(,"cached_tokens_details":null,"dp_rank":null)";
  if (choice.finished()) {
    out += R"(,"e2e_latency":)";
    append_json(out, static_cast<float>(since_arrival_.seconds()));
    append_speculation(out, counts.speculation);
  }
  out += '}';
}

void GenerateRenderer::append_object(std::string& out, const Choice& choice) {
  const Progress& shown = progress(choice);
  out += R"({"text":")";
  out += shown.text;
  out += R"(","output_ids":[)";
  out += shown.output_ids;
  out += R"(],"meta_info":)";
  append_meta_info(out, choice);
  if (form().return_prompt_token_ids && choice.finished()) {
    out += R"(,"prompt_token_ids":)";
    append_token_ids(out, choice.setup().prompt);
  }
}

void GenerateRenderer::write_news(Choice& choice, std::string& events) {
  Progress& shown = progress(choice);
  const int num_tokens = choice.counts().completion_tokens;
  // The first token always gets its event: clients take their time to first token from it.
  const int num_due = shown.num_shown_tokens == 0 ? 1 : choice.setup().stream_interval;
  if (!choice.finished() && num_tokens - shown.num_shown_tokens < num_due) return;
  take_news(choice);
  shown.num_shown_tokens = num_tokens;
  events += "data: ";
  append_object(events, choice);
  if (is_list()) {
    events += R"(,"index":)";
    append_json(events, choice.setup().index);
  }
  events += "}\n\n";
}

std::string GenerateRenderer::body(std::span<Choice> choices) {
  std::string out;
  if (is_list()) out += '[';
  for (Choice& choice : choices) {
    if (choice.setup().index > 0) out += ',';
    take_news(choice);
    append_object(out, choice);
    out += '}';
  }
  if (is_list()) out += ']';
  return out;
}

}  // namespace

std::unique_ptr<Renderer> make_generate_renderer(api::ShownForm form,
                                                 const text::Tokenizer& tokenizer) {
  return std::make_unique<GenerateRenderer>(std::move(form), tokenizer);
}

}  // namespace fathom::answer
