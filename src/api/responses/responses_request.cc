#include "api/responses/responses_request.h"

#include <limits>
#include <utility>

#include "api/conversation_fields.h"
#include "api/grammar_fields.h"
#include "api/request_fields.h"
#include "api/responses/response_draft.h"
#include "api/responses/response_settings.h"
#include "api/responses/response_tools.h"
#include "api/sampling_fields.h"
#include "api/tables/field_check.h"
#include "api/tables/responses_fields.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxSettingBytes = 64;
constexpr size_t kMaxIdBytes = 128;
constexpr size_t kMaxIncluded = 64;
constexpr size_t kMaxMetadata = 16, kMaxMetadataKeyBytes = 64, kMaxMetadataBytes = 512;

class ResponsesParser {
 public:
  ResponsesParser(json::Members& body, const ServedModel& model, const StoredPast& past)
      : model_(model), past_(past), body_(body), reader_(body, problem_) {}

  Parsed<GenerationRequest> parse() && {
    request_.form.endpoint = Endpoint::kResponses;
    request_.chat.stop_in_reasoning = model_.stop_in_reasoning;
    draft_ = std::make_shared<ResponseDraft>();
    read_model(reader_, model_, request_);
    if (!model_.chat_format && !problem_) {
      reader_.fail_with("input", "this model has no chat format: " + model_.chat_format_problem);
    }
    check_names(body_, responses_fields(), problem_);
    apply(model_.sampling_defaults, item_.sampling);
    read_token_choice(reader_, model_, item_);
    if (const auto seed = reader_.seed("seed")) item_.sampling.seed = seed;
    read_streaming();
    read_additions();
    read_what_changes_nothing();
    read_store();
    if (!problem_) read_prompt();
    if (!problem_) fit();
    if (problem_) return problem_.error();
    draft_->settings = response_settings(reader_, item_.sampling, *draft_);
    if (problem_) return problem_.error();
    request_.form.response = std::move(draft_);
    request_.items.push_back(std::move(item_));
    return std::move(request_);
  }

 private:
  // A server that keeps nothing says so in the response.
  void read_store() {
    const bool is_wanted = reader_.boolean("store").value_or(true);
    draft_->is_stored = is_wanted && past_.find_response != nullptr;
  }

  // What the answer holds beside the text. Names that the server does not know ask for what it does not make.
  void read_additions() {
    const int top =
        reader_.integer("top_logprobs", {0, model_.limits.max_top_logprobs}).value_or(0);
    const json::Value* include = reader_.array("include", kMaxIncluded);
    if (include == nullptr) return;
    for (size_t i = 0; i < include->size(); ++i) {
      const json::Value& name = (*include)[i];
      if (!name.is_string()) {
        return problem_.set(broken_rule(element_path("include", i), name, "a string"));
      }
      if (json::is_text(name, "reasoning.encrypted_content")) {
        draft_->has_encrypted_reasoning = true;
      } else if (json::is_text(name, "message.output_text.logprobs")) {
        request_.form.logprobs = true;
      } else {
        problem_.skip_unknown("include[] " + name.get<std::string>());
      }
    }
    if (!request_.form.logprobs) return;
    request_.form.top_logprobs = top;
    item_.sampling.return_logprobs = true;
    item_.sampling.num_top_logprobs = top;
  }

  void read_streaming() {
    request_.form.stream = reader_.boolean("stream").value_or(false);
    const json::Value* options = reader_.object("stream_options");
    if (options == nullptr) return;
    check_names(*options, "stream_options", response_stream_fields(), problem_);
  }

  void must_be(FieldReader& reader, std::string_view key, std::string_view only) {
    const std::optional<std::string> value = reader.text(key, kMaxSettingBytes);
    if (value && *value != only) reader.fail(key, only);
  }

  // Who asks, what is cached by which name; and settings with one value.
  void read_what_changes_nothing() {
    for (const char* key : {"user", "safety_identifier", "prompt_cache_key"}) {
      reader_.text(key, std::numeric_limits<uint16_t>::max());
    }
    const std::optional<std::string> truncation = reader_.text("truncation", kMaxSettingBytes);
    if (truncation && truncation != "auto" && truncation != "disabled") {
      reader_.fail("truncation", "auto or disabled");
    }
    reader_.integer("max_tool_calls", {0, std::numeric_limits<int32_t>::max()});
    check_metadata();
  }

  void check_metadata() {
    const json::Value* metadata = reader_.object("metadata");
    if (metadata == nullptr) return;
    bool is_good = metadata->size() <= kMaxMetadata;
    for (const auto& [key, value] : metadata->get_ref<const json::Value::object_t&>()) {
      is_good = is_good && key.size() <= kMaxMetadataKeyBytes && value.is_string() &&
                value.get_ref<const std::string&>().size() <= kMaxMetadataBytes;
    }
    if (!is_good) {
      reader_.fail("metadata",
                   "an object of at most 16 texts of 512 bytes under names of at most 64 bytes");
    }
  }

  void read_prompt() {
    text::Conversation chat;
    const GrammarFields grammar = read_text_config();
    FlatTools flat = read_flat_tools(reader_, model_);
    const ToolChoice choice = read_flat_choice(reader_, model_, flat);
    if (problem_) return;
    const bool has_tools = !flat.tools.empty();
    ToolUse use = use_tools(reader_, model_, flat.tools, choice, !grammar.field.empty());
    if (use.shows_tools) chat.tools = shown_tools(flat.tools);
    request_.form.tool_kinds = std::make_shared<const ToolKinds>(std::move(flat.kinds));
    request_.chat.parse_tools = use.shows_tools;
    request_.chat.tool_constraint = std::move(use.constraint);
    item_.grammar = grammar.source;
    chat.thinking = resolve_thinking(read_reasoning(), model_, problem_);
    PlacedMessages read;
    read_past(read);
    if (!problem_) read_items(reader_, {.model = model_, .find_item = past_.find_item}, read);
    if (problem_) return;
    if (read.messages.empty()) return reader_.fail("input", "not empty");
    draft_->messages = read.messages;
    if (const std::optional<std::string> text = reader_.text("instructions", SIZE_MAX)) {
      read.messages.insert(read.messages.begin(), {.role = "system", .content = *text});
      read.places.insert(read.places.begin(), "instructions");
    }
    chat.messages = std::move(read.messages);
    if (problem_) return;
    request_.chat.hide_tool_markers =
        !request_.chat.parse_tools && (has_tools || text::speaks_of_tools(chat));
    ChatPrompt prompt = render_chat(chat,
                                    {.prompt_field = "input",
                                     .places = &read.places,
                                     .result_place = text::ResultPlace::kAnywhereBehind},
                                    model_, problem_);
    request_.chat.format = prompt.format;
    request_.chat.starts_in_reasoning = prompt.starts_in_reasoning;
    item_.prompt = std::move(prompt.ids);
  }

  void read_past(PlacedMessages& read) {
    const std::optional<std::string> id = reader_.text("previous_response_id", kMaxIdBytes);
    if (!id || problem_) return;
    if (!id->starts_with("resp_")) {
      return reader_.fail("previous_response_id", "an id that begins with resp_");
    }
    const std::shared_ptr<const StoredResponse> found =
        past_.find_response ? past_.find_response(*id) : nullptr;
    if (found == nullptr) return problem_.set(response_not_found("previous_response_id", *id));
    read.messages = found->messages;
    read.places.assign(read.messages.size(), "previous_response_id");
  }

  void fit() {
    OutputBudget budget;
    budget.asked = read_token_limit(reader_, "max_output_tokens");
    budget.fallback = std::numeric_limits<int>::max();
    budget.max_field = "max_output_tokens";
    budget.prompt_field = "input";
    if (!problem_) fit_output(budget, model_, item_, problem_);
  }

  GrammarFields read_text_config() {
    const json::Value* config = reader_.object("text");
    if (config == nullptr) return {};
    FieldReader inner(*config, "text", text_config_fields(), problem_);
    return read_flat_format(inner, "format", model_);
  }

  ThinkingSwitch read_reasoning() {
    const json::Value* config = reader_.object("reasoning");
    if (config == nullptr) return {};
    FieldReader inner(*config, "reasoning", response_reasoning_fields(), problem_);
    must_be(inner, "mode", "standard");
    ThinkingSwitch asked;
    read_effort(inner, "effort", model_, asked);
    BudgetField budget;
    read_budget(inner, "max_tokens", 0, budget);
    request_.chat.thinking_budget = budget.tokens;
    if (budget.tokens && !asked.on && has_thinking_switch(model_)) {
      asked = {.field = budget.field, .on = true};
    }
    return asked;
  }

  const ServedModel& model_;
  const StoredPast& past_;
  json::Members& body_;
  FieldProblem problem_{policy_of("/v1/responses", model_)};
  FieldReader reader_;
  GenerationRequest request_;
  GenerationItem item_;
  std::shared_ptr<ResponseDraft> draft_;
};

}  // namespace

Parsed<GenerationRequest> parse_responses_request(std::string_view body, const ServedModel& model,
                                                  const StoredPast& past) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return ResponsesParser(std::get<json::Members>(members), model, past).parse();
}

}  // namespace fathom::api
