#include "api/responses_request.h"

#include <limits>
#include <utility>

#include "api/conversation_fields.h"
#include "api/grammar_fields.h"
#include "api/request_fields.h"
#include "api/response_draft.h"
#include "api/response_items.h"
#include "api/sampling_fields.h"
#include "api/tables/field_check.h"
#include "api/tables/responses_fields.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxSettingBytes = 64;
constexpr size_t kMaxIdBytes = 128;
constexpr size_t kMaxMetadata = 16, kMaxMetadataKeyBytes = 64, kMaxMetadataBytes = 512;
// Of what a response repeats besides instructions, which the context bounds: it is kept as long as the answer is made,
// when the body is long gone.
constexpr size_t kMaxSettingsBytes = 1 << 20;

// In the order of docs/api.md.

json::Value value_or_null(const json::Value* value) {
  return value != nullptr ? *value : json::Value(nullptr);
}

class ResponsesParser {
 public:
  ResponsesParser(json::Members& body, const ServedModel& model, const FindResponse& past)
      : model_(model), past_(past), body_(body), reader_(body, problem_) {}

  Parsed<GenerationRequest> parse() && {
    request_.endpoint = Endpoint::kResponses;
    request_.stop_in_reasoning = model_.stop_in_reasoning;
    draft_ = std::make_shared<ResponseDraft>();
    read_model(reader_, model_, request_);
    if (!model_.chat_format && !problem_) {
      reader_.fail_with("input", "this model has no chat format: " + model_.chat_format_problem);
    }
    check_names(body_, responses_fields(), problem_);
    apply(model_.sampling_defaults, item_.sampling);
    read_common_sampling(reader_, item_.sampling);
    item_.sampling.ignore_eos = reader_.boolean("ignore_eos").value_or(false);
    read_streaming();
    read_what_changes_nothing();
    read_store();
    if (!problem_) read_prompt();
    if (!problem_) fit();
    if (problem_) return problem_.error();
    draft_->settings = settings();
    if (problem_) return problem_.error();
    request_.response = std::move(draft_);
    request_.items.push_back(std::move(item_));
    return std::move(request_);
  }

 private:
  // Without a store nothing is kept, and nothing but that can be asked for.
  void read_store() {
    const std::optional<bool> store = reader_.boolean("store");
    if (!past_ && store.value_or(false)) {
      reader_.fail_with("store",
                        "store is true, but this server keeps no responses "
                        "(--max-stored-responses 0)");
    }
    draft_->is_stored = store.value_or(true) && past_ != nullptr;
  }

  void read_streaming() {
    request_.stream = reader_.boolean("stream").value_or(false);
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
    must_be(reader_, "truncation", "disabled");
    const std::optional<std::string> tier = reader_.text("service_tier", kMaxSettingBytes);
    if (tier && tier != "auto" && tier != "default")
      reader_.fail("service_tier", "auto or default");
    reader_.integer("top_logprobs", {0, 0});
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
    chat.tools = read_flat_tools(reader_, model_);
    const ToolChoice choice = read_flat_choice(reader_, model_);
    if (problem_) return;
    const bool has_tools = !chat.tools.empty();
    ToolUse use = use_tools(reader_, model_, chat.tools, choice, !grammar.field.empty());
    if (!use.shows_tools) chat.tools = json::Value::array();
    request_.parse_tools = use.shows_tools;
    request_.tool_constraint = std::move(use.constraint);
    item_.grammar = grammar.source;
    chat.thinking = resolve_thinking(read_reasoning(), model_, problem_);
    PlacedMessages read;
    read_past(read);
    if (!problem_) read_items(reader_, model_, read);
    if (problem_) return;
    if (read.messages.empty()) return reader_.fail("input", "not empty");
    draft_->messages = read.messages;
    if (const std::optional<std::string> text = reader_.text("instructions", SIZE_MAX)) {
      read.messages.insert(read.messages.begin(), {.role = "system", .content = *text});
      read.places.insert(read.places.begin(), "instructions");
    }
    chat.messages = std::move(read.messages);
    if (problem_) return;
    request_.hide_tool_markers =
        !request_.parse_tools && (has_tools || text::speaks_of_tools(chat));
    ChatPrompt prompt = render_chat(chat,
                                    {.prompt_field = "input",
                                     .places = &read.places,
                                     .result_place = text::ResultPlace::kAnywhereBehind},
                                    model_, problem_);
    request_.chat_format = prompt.format;
    request_.starts_in_reasoning = prompt.starts_in_reasoning;
    item_.prompt = std::move(prompt.ids);
  }

  void read_past(PlacedMessages& read) {
    const std::optional<std::string> id = reader_.text("previous_response_id", kMaxIdBytes);
    if (!id || problem_) return;
    const std::shared_ptr<const StoredResponse> found = past_ ? past_(*id) : nullptr;
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
    must_be(inner, "verbosity", "medium");
    return read_flat_format(inner, "format", model_);
  }

  ThinkingSwitch read_reasoning() {
    const json::Value* config = reader_.object("reasoning");
    if (config == nullptr) return {};
    FieldReader inner(*config, "reasoning", response_reasoning_fields(), problem_);
    must_be(inner, "mode", "standard");
    const std::optional<std::string> summary = inner.text("summary", kMaxSettingBytes);
    if (summary && summary != "auto" && summary != "concise" && summary != "detailed") {
      inner.fail("summary", "auto, concise or detailed");
    }
    ThinkingSwitch asked;
    read_effort(inner, "effort", model_, asked);
    BudgetField budget;
    read_budget(inner, "max_tokens", 0, budget);
    request_.thinking_budget = budget.tokens;
    if (budget.tokens && !asked.on && has_thinking_switch(model_)) {
      asked = {.field = budget.field, .on = true};
    }
    return asked;
  }

  // The members of the response that say what was asked for.
  std::string settings() {
    json::Value text_format = {{"type", "text"}};
    if (const json::Value* config = reader_.find("text"); config && config->contains("format")) {
      if (!(*config)["format"].is_null()) text_format = (*config)["format"];
    }
    json::Value reasoning = {{"effort", nullptr}, {"summary", nullptr}};
    if (const json::Value* config = reader_.find("reasoning")) reasoning.update(*config);
    const json::Value* choice = reader_.find("tool_choice");
    const json::Value* tools = reader_.find("tools");
    const json::Value* metadata = reader_.find("metadata");
    json::Value all = json::Value::object();
    all["background"] = false;
    for (const char* key : {"max_output_tokens", "previous_response_id", "user",
                            "safety_identifier", "prompt_cache_key"}) {
      all[key] = value_or_null(reader_.find(key));
    }
    all["metadata"] = metadata != nullptr ? *metadata : json::Value::object();
    all["parallel_tool_calls"] = reader_.boolean("parallel_tool_calls").value_or(true);
    all["reasoning"] = std::move(reasoning);
    all["service_tier"] = "default";
    all["store"] = draft_->is_stored;
    all["temperature"] = item_.sampling.temperature;
    all["text"] = {{"format", std::move(text_format)}};
    all["tool_choice"] = choice != nullptr ? *choice : json::Value("auto");
    all["tools"] = tools != nullptr ? *tools : json::Value::array();
    all["top_logprobs"] = 0;
    all["top_p"] = item_.sampling.top_p;
    all["truncation"] = "disabled";
    const std::string object = json::dump(all);
    if (object.size() > kMaxSettingsBytes) {
      reader_.fail_with("tools", "tools and the other settings that the response repeats have " +
                                     std::to_string(object.size()) + " bytes, must have at most " +
                                     std::to_string(kMaxSettingsBytes));
    }
    const json::Value* instructions = reader_.find("instructions");
    return R"("instructions":)" + json::dump(value_or_null(instructions)) + ',' +
           object.substr(1, object.size() - 2);
  }

  const ServedModel& model_;
  const FindResponse& past_;
  json::Members& body_;
  FieldProblem problem_{policy_of("/v1/responses", model_)};
  FieldReader reader_;
  GenerationRequest request_;
  GenerationItem item_;
  std::shared_ptr<ResponseDraft> draft_;
};

}  // namespace

Parsed<GenerationRequest> parse_responses_request(std::string_view body, const ServedModel& model,
                                                  const FindResponse& past) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return ResponsesParser(std::get<json::Members>(members), model, past).parse();
}

}  // namespace fathom::api
