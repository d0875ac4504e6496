#include "api/chat_request.h"

#include <limits>
#include <utility>

#include "api/conversation_fields.h"
#include "api/endpoint_fields.h"
#include "api/grammar_fields.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"
#include "api/tool_fields.h"

namespace fathom::api {
namespace {

class ChatRequestParser {
 public:
  ChatRequestParser(json::Members& body, const ServedModel& model)
      : model_(model), reader_(body, chat_fields(), problem_) {}

  Parsed<GenerationRequest> parse() && {
    request_.endpoint = Endpoint::kChat;
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
    read_stream(reader_, request_);
    read_placement(reader_, model_, request_);
    read_rid(reader_, model_, request_);
    read_logprobs();
    read_output_length();
    request_.separate_reasoning = reader_.boolean("separate_reasoning").value_or(true);
    request_.stream_reasoning = reader_.boolean("stream_reasoning").value_or(true);
    read_modalities();
  }

  void read_logprobs() {
    request_.logprobs = reader_.boolean("logprobs").value_or(false);
    request_.top_logprobs =
        reader_.integer("top_logprobs", {0, model_.limits.max_top_logprobs}).value_or(0);
    if (request_.top_logprobs > 0 && !request_.logprobs) {
      reader_.fail_with("top_logprobs", "top_logprobs is " + std::to_string(request_.top_logprobs) +
                                            ", must be 0 unless logprobs is true");
    }
    item_.sampling.return_logprobs = request_.logprobs;
    item_.sampling.num_top_logprobs = request_.top_logprobs;
  }

  void read_output_length() {
    const std::optional<int> old_name = read_token_count(reader_, "max_tokens");
    const std::optional<int> new_name = read_token_count(reader_, "max_completion_tokens");
    if (old_name && new_name && *old_name != *new_name) {
      reader_.fail_with("max_tokens", "max_tokens is " + std::to_string(*old_name) +
                                          " and max_completion_tokens is " +
                                          std::to_string(*new_name) + ", must be the same");
    }
    budget_.asked = new_name ? new_name : old_name;
    budget_.fallback = std::numeric_limits<int>::max();
    budget_.max_field = new_name ? "max_completion_tokens" : "max_tokens";
    budget_.min_tokens = read_token_count(reader_, "min_tokens").value_or(0);
    budget_.min_field = "min_tokens";
    budget_.prompt_field = "messages";
  }

  void read_modalities() {
    const json::Value* modalities = reader_.find("modalities");
    if (modalities == nullptr || *modalities == json::Value::array({"text"})) return;
    reader_.fail("modalities", "[\"text\"]: this model writes nothing else");
  }

  void read_prompt() {
    text::Conversation chat;
    chat.tools = read_tools(reader_, model_);
    if (problem_) return;
    GrammarFields grammar = read_grammar(reader_, model_, /*has_response_format=*/true);
    const bool has_tools = !chat.tools.empty();
    ToolUse use = read_tool_use(reader_, model_, chat.tools, !grammar.field.empty());
    if (!use.shows_tools) chat.tools = json::Value::array();
    request_.parse_tools = use.shows_tools;
    request_.tool_constraint = std::move(use.constraint);
    item_.grammar = std::move(grammar.source);
    chat.thinking = read_thinking(reader_, model_);
    const bool continues = reader_.boolean("continue_final_message").value_or(false);
    chat.add_generation_prompt = !continues;
    chat.messages = read_messages(reader_, model_);
    if (problem_) return;
    request_.hide_tool_markers =
        !request_.parse_tools && (has_tools || text::speaks_of_tools(chat));
    ChatPrompt prompt = render_chat(chat, continues, model_, problem_);
    if (problem_) return;
    request_.chat_format = prompt.format;
    request_.starts_in_reasoning = prompt.starts_in_reasoning;
    item_.prompt = std::move(prompt.ids);
    fit_output(budget_, model_, item_, problem_);
  }

  const ServedModel& model_;
  FieldProblem problem_{model_.unknown_fields};
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
