#include "api/chat_request.h"

#include <limits>
#include <utility>

#include "api/conversation_fields.h"
#include "api/custom_tools.h"
#include "api/grammar_fields.h"
#include "api/legacy_functions.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"
#include "api/tables/endpoint_fields.h"
#include "api/token_fields.h"
#include "api/tool_fields.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxFormatBytes = 64;

class ChatRequestParser {
 public:
  ChatRequestParser(json::Members& body, const ServedModel& model)
      : model_(model), reader_(body, chat_fields(), problem_) {}

  Parsed<GenerationRequest> parse() && {
    request_.form.endpoint = Endpoint::kChat;
    read_model(reader_, model_, request_);
    if (!model_.chat_format && !problem_) {
      reader_.fail_with("messages", "this model has no chat format: " + model_.chat_format_problem);
    }
    read_fields();
    if (!problem_) read_prompt();
    if (problem_) return problem_.error();
    request_.items.push_back(std::move(item_));
    check_num_sequences(request_, model_, "n", problem_);
    if (problem_) return problem_.error();
    return std::move(request_);
  }

 private:
  void read_fields() {
    apply(model_.sampling_defaults, item_.sampling);
    read_sampling(reader_, model_, item_);
    if (const auto seed = reader_.seed("seed")) item_.sampling.seed = seed;
    if (const auto seed = reader_.seed("sampling_seed")) item_.sampling.seed = seed;
    read_stop_form(reader_, item_);
    read_stream(reader_, request_);
    read_placement(reader_, model_, request_);
    read_rid(reader_, model_, request_);
    read_logprobs();
    read_token_fields(reader_, model_, request_, item_.sampling);
    read_output_length();
    read_reasoning_form();
    read_modalities();
  }

  // Where the reasoning of an answer goes.
  void read_reasoning_form() {
    const std::optional<bool> separate = reader_.boolean("separate_reasoning");
    request_.chat.separate_reasoning = separate.value_or(true);
    request_.form.stream_reasoning = reader_.boolean("stream_reasoning").value_or(true);
    read_reasoning_shown();
    request_.chat.stop_in_reasoning =
        reader_.boolean("stop_in_reasoning").value_or(model_.stop_in_reasoning);
    const std::optional<std::string> format = reader_.text("reasoning_format", kMaxFormatBytes);
    if (format && format != "auto" && format != "deepseek" && format != "none") {
      reader_.fail("reasoning_format", "auto, deepseek or none");
    } else if (format && separate.value_or(format != "none") != (format != "none")) {
      reader_.fail_with("reasoning_format",
                        "reasoning_format and separate_reasoning contradict each other");
    } else if (format) {
      request_.chat.separate_reasoning = format != "none";
    }
    if (!request_.chat.include_reasoning && !request_.chat.separate_reasoning) {
      reader_.fail_with(
          reader_.find("include_reasoning") != nullptr ? "include_reasoning" : "reasoning",
          "reasoning cannot be left out where it stays in the content");
    }
  }

  // include_reasoning, or OpenRouter's reasoning.exclude.
  void read_reasoning_shown() {
    const std::optional<bool> shown = reader_.boolean("include_reasoning");
    const json::Value* reasoning = reader_.object("reasoning");
    const json::Value exclude =
        reasoning != nullptr ? reasoning->value("exclude", json::Value()) : json::Value();
    const bool is_excluded = exclude.is_boolean() && exclude.get<bool>();
    if (is_excluded && shown.value_or(false)) {
      reader_.fail_with("reasoning",
                        "reasoning.exclude and include_reasoning contradict each other");
    }
    request_.chat.include_reasoning = shown.value_or(true) && !is_excluded;
  }

  // The template's mark where an answer begins: there if and only if the last message is not continued.
  void check_generation_prompt(bool continues) {
    const std::optional<bool> asked = reader_.boolean("add_generation_prompt");
    if (!asked || *asked != continues) return;
    reader_.fail("add_generation_prompt",
                 continues ? "false where the last message is continued"
                           : "true where no message is continued (continue_final_message)");
  }

  void read_logprobs() {
    request_.form.logprobs = reader_.boolean("logprobs").value_or(false);
    request_.form.top_logprobs =
        reader_.integer("top_logprobs", {0, model_.limits.max_top_logprobs}).value_or(0);
    if (request_.form.top_logprobs > 0 && !request_.form.logprobs) {
      reader_.fail_with("top_logprobs", "top_logprobs is " +
                                            std::to_string(request_.form.top_logprobs) +
                                            ", must be 0 unless logprobs is true");
    }
    item_.sampling.return_logprobs = request_.form.logprobs;
    item_.sampling.num_top_logprobs = request_.form.top_logprobs;
  }

  void read_output_length() {
    for (const char* name : {"max_tokens", "max_completion_tokens", "max_new_tokens"}) {
      const std::optional<int> asked = read_token_limit(reader_, name);
      if (!asked) continue;
      if (budget_.asked && *budget_.asked != *asked) {
        reader_.fail_with(budget_.max_field,
                          budget_.max_field + " is " + std::to_string(*budget_.asked) + " and " +
                              name + " is " + std::to_string(*asked) + ", must be the same");
      }
      budget_.asked = asked;
      budget_.max_field = name;
    }
    if (!budget_.asked) budget_.max_field = "max_tokens";
    budget_.fallback = std::numeric_limits<int>::max();
    budget_.min_tokens = read_token_count(reader_, "min_tokens").value_or(0);
    budget_.min_field = "min_tokens";
    budget_.prompt_field = "messages";
  }

  void read_modalities() {
    const json::Value* modalities = reader_.find("modalities");
    if (modalities == nullptr) return;
    const json::Value text_only = json::Value::array({"text"});
    if (*modalities == text_only) return;
    reader_.fail("modalities", "[\"text\"]: this model writes nothing else");
  }

  void read_prompt() {
    text::Conversation chat;
    const json::Value tools = read_offered_tools(reader_, model_);
    if (problem_) return;
    GrammarFields grammar = read_grammar(reader_, model_, GrammarNames::kAll);
    const bool has_tools = !tools.empty();
    ToolUse use = read_tool_use(reader_, model_, tools, !grammar.field.empty());
    if (use.shows_tools) chat.tools = shown_tools(tools);
    request_.form.tool_kinds = std::make_shared<const ToolKinds>(kinds_of(tools));
    request_.chat.parse_tools = use.shows_tools;
    request_.chat.tool_constraint = std::move(use.constraint);
    item_.grammar = std::move(grammar.source);
    const Thinking thinking = read_thinking(reader_, model_);
    chat.thinking = thinking.on;
    request_.chat.thinking_budget = thinking.budget;
    chat.messages = read_messages(reader_, model_);
    if (problem_) return;
    const bool continues = read_continuation(reader_);
    check_generation_prompt(continues);
    request_.form.calls_functions = has_functions(reader_);
    chat.add_generation_prompt = !continues;
    request_.chat.hide_tool_markers =
        !request_.chat.parse_tools && (has_tools || text::speaks_of_tools(chat));
    ChatPrompt prompt = render_chat(chat, {.continues_final = continues}, model_, problem_);
    if (problem_) return;
    request_.chat.format = prompt.format;
    request_.chat.starts_in_reasoning = prompt.starts_in_reasoning;
    item_.prompt = std::move(prompt.ids);
    fit_output(budget_, model_, item_, problem_);
  }

  const ServedModel& model_;
  FieldProblem problem_{policy_of("/v1/chat/completions", model_)};
  FieldReader reader_;
  GenerationRequest request_;
  GenerationItem item_;
  OutputBudget budget_;
};

}  // namespace

Parsed<GenerationRequest> parse_chat_request(std::string_view body, const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return ChatRequestParser(std::get<json::Members>(members), model).parse();
}

}  // namespace fathom::api
