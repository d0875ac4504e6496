#include "api/messages_request.h"

#include <limits>
#include <utility>

#include "api/conversation_fields.h"
#include "api/grammar_fields.h"
#include "api/message_blocks.h"
#include "api/message_tools.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"
#include "api/tables/field_check.h"
#include "api/tables/messages_fields.h"
#include "api/tool_fields.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxToolTypeBytes = 64;

// In the order of docs/reference/messages.md.

class MessagesParser {
 public:
  MessagesParser(json::Members& body, const ServedModel& model)
      : model_(model), body_(body), reader_(body, problem_) {}

  Parsed<GenerationRequest> parse() && {
    request_.form.endpoint = Endpoint::kMessages;
    read_everything(/*needs_max_tokens=*/true);
    if (!problem_) fit_output(budget_, model_, item_, problem_);
    if (problem_) return error();
    request_.items.push_back(std::move(item_));
    return std::move(request_);
  }

  // Fields that do not show in the prompt are checked all the same: clients send what they would generate with.
  Parsed<int> count() && {
    read_everything(/*needs_max_tokens=*/false);
    if (problem_) return error();
    return static_cast<int>(item_.prompt.size());
  }

 private:
  // Anthropic's SDKs send their conversations without a thread when they are told so in these words.
  ApiError error() const {
    ApiError error = problem_.error();
    if (error.param == "thread") {
      error.details = R"({"error_code":"thread_unsupported_request","unsupported":["thread"]})";
    }
    return error;
  }

  void read_everything(bool needs_max_tokens) {
    read_model(reader_, model_, request_);
    if (!model_.chat_format && !problem_) {
      reader_.fail_with("messages", "this model has no chat format: " + model_.chat_format_problem);
    }
    check_names(body_, messages_fields(), problem_);
    read_sampling_fields();
    read_output_length(needs_max_tokens);
    if (!problem_) read_prompt();
  }

  void read_sampling_fields() {
    apply(model_.sampling_defaults, item_.sampling);
    read_common_sampling(reader_, item_.sampling);
    read_stop(reader_, "stop_sequences", model_.limits, item_);
    request_.form.stream = reader_.boolean("stream").value_or(false);
    request_.chat.stop_in_reasoning = model_.stop_in_reasoning;
  }

  void read_output_length(bool is_required) {
    budget_.asked = read_token_limit(reader_, "max_tokens");
    budget_.is_upper_bound = true;
    if (!budget_.asked && is_required) {
      reader_.fail_with("max_tokens", "max_tokens is missing");
    }
    budget_.max_field = "max_tokens";
    budget_.prompt_field = "messages";
  }

  void read_prompt() {
    text::Conversation chat;
    const GrammarFields grammar = read_output_config();
    MessageTools tools = read_message_tools(reader_, model_);
    if (problem_) return;
    const ToolChoice choice = read_tool_choice();
    check_is_offered(choice, tools, reader_);
    if (problem_) return;
    chat.tools = std::move(tools.functions);
    const bool has_tools = !chat.tools->empty();
    ToolUse use = use_tools(reader_, model_, *chat.tools, choice, !grammar.field.empty());
    if (!use.shows_tools) chat.tools = json::Value::array();
    request_.chat.parse_tools = use.shows_tools;
    request_.chat.tool_constraint = std::move(use.constraint);
    item_.grammar = grammar.source;
    const ThinkingSwitch asked = read_thinking_config();
    chat.thinking = resolve_thinking(asked, model_, problem_);
    PlacedMessages read = read_block_messages(reader_, model_);
    if (problem_) return;
    chat.messages = std::move(read.messages);
    render(chat, read.places, asked.on.value_or(false), has_tools);
  }

  // A last message of the assistant is the beginning of the answer.
  void render(text::Conversation& chat, const std::vector<std::string>& places, bool asks_to_think,
              bool has_tools) {
    const text::Message& last = chat.messages.back();
    const bool continues = last.role == "assistant";
    chat.add_generation_prompt = !continues;
    if (continues && !last.tool_calls.empty()) {
      return reader_.fail_with(
          "messages", places.back() + " has a tool_use, must be followed by its tool_result");
    }
    if (continues && asks_to_think) {
      return reader_.fail_with("thinking",
                               "thinking is enabled, but the last message is an "
                               "assistant's, whose text the answer would go on with");
    }
    request_.chat.hide_tool_markers =
        !request_.chat.parse_tools && (has_tools || text::speaks_of_tools(chat));
    ChatPrompt prompt = render_chat(chat,
                                    {.continues_final = continues,
                                     .prompt_field = "messages",
                                     .places = &places,
                                     .result_place = text::ResultPlace::kBehindTurn},
                                    model_, problem_);
    if (problem_) return;
    request_.chat.format = prompt.format;
    request_.chat.starts_in_reasoning = prompt.starts_in_reasoning;
    item_.prompt = std::move(prompt.ids);
  }

  // {"effort", "format": {"type": "json_schema", "schema"}}; output_format is the format's older place.
  GrammarFields read_output_config() {
    GrammarFields older = read_flat_format(reader_, "output_format", model_);
    const json::Value* config = reader_.object("output_config");
    if (config == nullptr) return older;
    FieldReader inner(*config, "output_config", output_config_fields(), problem_);
    const std::optional<std::string> effort = inner.text("effort", kMaxToolTypeBytes);
    if (effort && !is_reasoning_effort(*effort)) {
      inner.fail("effort", reasoning_efforts());
    }
    GrammarFields format = read_flat_format(inner, "format", model_);
    if (format.field.empty()) return older;
    if (!older.field.empty()) {
      reader_.fail_with("output_format", "output_format and output_config.format are both set");
    }
    return format;
  }

  ThinkingSwitch read_thinking_config() {
    const json::Value* config = reader_.object("thinking");
    if (config == nullptr) return {};
    FieldReader inner(*config, "thinking", thinking_config_fields(), problem_);
    const std::optional<std::string> type = inner.text("type", kMaxToolTypeBytes);
    const std::optional<int> budget =
        inner.integer("budget_tokens", {0, std::numeric_limits<int>::max()});
    const std::optional<std::string> display = inner.text("display", kMaxToolTypeBytes);
    if (display && display != "summarized" && display != "updates" && display != "omitted") {
      inner.fail("display", "summarized, updates or omitted");
    }
    request_.form.omits_thinking = display == "omitted";
    if (budget && type != "enabled") {
      inner.fail_with("budget_tokens",
                      "thinking.budget_tokens is set, but thinking is not enabled");
    }
    request_.chat.thinking_budget = budget;
    if (type == "enabled") return {.field = "thinking.type", .on = true};
    if (type == "disabled") return {.field = "thinking.type", .on = false};
    if (!type) {
      inner.fail_with("type", "thinking.type is missing");
    } else if (type != "adaptive" && type != "between_tools") {
      inner.fail("type", "enabled, disabled, adaptive or between_tools");
    }
    // A wish: where there is a switch the model thinks, others have one way to answer.
    if (has_thinking_switch(model_)) return {.field = "thinking.type", .on = true};
    return {};
  }

  ToolChoice read_tool_choice() {
    const json::Value* value = reader_.object("tool_choice");
    if (value == nullptr) return {};
    FieldReader inner(*value, "tool_choice", chosen_message_tool_fields(), problem_);
    ToolChoice choice;
    choice.parallel = !inner.boolean("disable_parallel_tool_use").value_or(false);
    const std::optional<std::string> type = inner.text("type", kMaxToolTypeBytes);
    const std::optional<std::string> name = inner.text("name", kMaxToolTypeBytes * 4);
    if (type == "tool") {
      choice.mode = ToolMode::kNamed;
      choice.is_some = true;
      if (!name) inner.fail_with("name", "tool_choice.name is missing");
      choice.names = {name.value_or("")};
    } else if (name) {
      inner.fail_with("name", "tool_choice.name is set, but tool_choice.type is not tool");
    } else if (type == "any") {
      choice.mode = ToolMode::kRequired;
    } else if (type == "none") {
      choice.mode = ToolMode::kNone;
    } else if (!type) {
      inner.fail_with("type", "tool_choice.type is missing");
    } else if (type != "auto") {
      inner.fail("type", "auto, any, tool or none");
    }
    return choice;
  }

  const ServedModel& model_;
  json::Members& body_;
  FieldProblem problem_{policy_of("/v1/messages", model_)};
  FieldReader reader_;
  GenerationRequest request_;
  GenerationItem item_;
  OutputBudget budget_;
};

}  // namespace

Parsed<GenerationRequest> parse_messages_request(std::string_view body, const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return MessagesParser(std::get<json::Members>(members), model).parse();
}

Parsed<int> parse_count_tokens_request(std::string_view body, const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return MessagesParser(std::get<json::Members>(members), model).count();
}

}  // namespace fathom::api
