#include "api/completion_request.h"

#include <utility>

#include "api/gap_prompt.h"
#include "api/grammar_fields.h"
#include "api/prompt_fields.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"
#include "api/tables/endpoint_fields.h"
#include "api/token_fields.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

constexpr int kDefaultMaxTokens = 16;  // as OpenAI's API

class CompletionRequestParser {
 public:
  CompletionRequestParser(json::Members& body, const ServedModel& model)
      : model_(model), reader_(body, completion_fields(), problem_) {}

  Parsed<GenerationRequest> parse() && {
    request_.form.endpoint = Endpoint::kCompletions;
    read_model(reader_, model_, request_);
    read_fields();
    if (!problem_) read_items();
    if (!problem_) check_num_sequences(request_, model_, "prompt", problem_);
    if (problem_) return problem_.error();
    return std::move(request_);
  }

 private:
  // What every prompt's answer is made with.
  void read_fields() {
    apply(model_.sampling_defaults, shared_.sampling);
    read_sampling(reader_, model_, shared_);
    if (const auto seed = reader_.seed("seed")) shared_.sampling.seed = seed;
    if (const auto seed = reader_.seed("sampling_seed")) shared_.sampling.seed = seed;
    shared_.grammar = read_grammar(reader_, model_, GrammarNames::kAll).source;
    read_stop_form(reader_, shared_);
    read_stream(reader_, request_);
    read_placement(reader_, model_, request_);
    read_rid(reader_, model_, request_);
    request_.form.echo = reader_.boolean("echo").value_or(false);
    read_logprobs();
    read_token_fields(reader_, model_, request_, shared_.sampling);
    check_best_of();
    read_suffix();
    budget_.asked = read_token_limit(reader_, "max_tokens");
    budget_.fallback = kDefaultMaxTokens;
    budget_.max_field = "max_tokens";
    budget_.min_tokens = read_token_count(reader_, "min_tokens").value_or(0);
    budget_.min_field = "min_tokens";
  }

  void read_logprobs() {
    const std::optional<int> asked =
        reader_.integer("logprobs", {0, model_.limits.max_top_logprobs});
    request_.form.logprobs = asked.has_value();
    request_.form.top_logprobs = asked.value_or(0);
    shared_.sampling.return_logprobs = request_.form.logprobs;
    shared_.sampling.num_top_logprobs = request_.form.top_logprobs;
    // With echo the log-probabilities are about the whole text.
    shared_.sampling.return_prompt_logprobs = request_.form.logprobs && request_.form.echo;
  }

  // n answers of best_of candidates; candidates that are not answers are not made here.
  void check_best_of() {
    const std::optional<int> best_of = reader_.integer("best_of", {1, model_.limits.max_n});
    if (!best_of || *best_of == shared_.n) return;
    reader_.fail("best_of", "n, which is " + std::to_string(shared_.n));
  }

  // An empty one asks for nothing: the answer is the end of the text.
  void read_suffix() {
    const auto max_bytes = static_cast<size_t>(model_.limits.max_tokenize_bytes);
    suffix_ = reader_.text("suffix", max_bytes).value_or("");
    if (suffix_.empty()) return;
    if (!can_fill_gaps(model_)) return reader_.fail_with("suffix", no_gaps_message());
    if (request_.form.echo) reader_.fail_with("echo", "echo and suffix exclude each other");
  }

  void read_items() {
    const json::Value* prompt = reader_.find("prompt");
    if (prompt == nullptr) return reader_.fail_with("prompt", "prompt is missing");
    const bool is_text = prompt->is_string() ||
                         (prompt->is_array() && !prompt->empty() && prompt->front().is_string());
    if (!suffix_.empty() && !is_text) {
      return reader_.fail_with("prompt", "with suffix prompt must be a text or texts");
    }
    RawPrompts prompts = read_prompts(*prompt, "prompt", model_, problem_);
    request_.form.is_batch = prompts.is_batch;
    for (RawPrompt& raw : prompts.prompts) {
      if (problem_) return;
      if (!suffix_.empty()) {
        raw.ids = encode_around_gap(raw.text, suffix_, raw.path, model_, problem_);
      }
      GenerationItem item = shared_;
      item.prompt = std::move(raw.ids);
      budget_.prompt_field = raw.path;
      fit_output(budget_, model_, item, problem_);
      if (request_.form.echo) {
        request_.form.prompt_texts.push_back(
            raw.text.empty() ? model_.tokenizer->decode(item.prompt, shared_.skip_special_tokens)
                             : std::move(raw.text));
      }
      request_.items.push_back(std::move(item));
    }
  }

  const ServedModel& model_;
  FieldProblem problem_{policy_of("/v1/completions", model_)};
  FieldReader reader_;
  GenerationRequest request_;
  GenerationItem shared_;
  std::string suffix_;  // empty: no gap
  OutputBudget budget_;
};

}  // namespace

Parsed<GenerationRequest> parse_completion_request(std::string_view body,
                                                   const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return CompletionRequestParser(std::get<json::Members>(members), model).parse();
}

}  // namespace fathom::api
