#include "api/tokenize_request.h"

#include <utility>

#include "api/conversation_fields.h"
#include "api/custom_tools.h"
#include "api/prompt_fields.h"
#include "api/request_fields.h"
#include "api/tables/endpoint_fields.h"
#include "api/tool_fields.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

class TokenizeRequestParser {
 public:
  TokenizeRequestParser(json::Members& body, const ServedModel& model)
      : model_(model), reader_(body, tokenize_fields(), problem_) {}

  Parsed<TokenizeRequest> parse() && {
    GenerationRequest ignored;
    read_model(reader_, model_, ignored);
    const bool add_special_tokens = reader_.boolean("add_special_tokens").value_or(true);
    request_.return_token_strs = reader_.boolean("return_token_strs").value_or(false);
    const json::Value* prompt = reader_.find("prompt");
    const json::Value* messages = reader_.find("messages");
    if ((prompt == nullptr) == (messages == nullptr)) {
      reader_.fail_with("prompt", "exactly one of prompt and messages must be set");
    }
    if (problem_) return problem_.error();
    if (messages != nullptr) {
      encode_chat();
    } else {
      encode_prompt(*prompt, add_special_tokens);
    }
    if (problem_) return problem_.error();
    return std::move(request_);
  }

 private:
  // The prompt that /v1/chat/completions makes of the same fields.
  void encode_chat() {
    if (!model_.chat_format) {
      return reader_.fail_with("messages",
                               "this model has no chat format: " + model_.chat_format_problem);
    }
    text::Conversation chat;
    const json::Value tools = read_offered_tools(reader_, model_);
    if (problem_) return;
    if (read_tool_use(reader_, model_, tools, /*has_output_form=*/false).shows_tools) {
      chat.tools = shown_tools(tools);
    }
    chat.thinking = read_thinking(reader_, model_).on;
    chat.messages = read_messages(reader_, model_);
    const bool continues = read_continuation(reader_);
    chat.add_generation_prompt =
        reader_.boolean("add_generation_prompt").value_or(true) && !continues;
    if (problem_) return;
    request_.tokens.push_back(
        render_chat(chat, {.continues_final = continues}, model_, problem_).ids);
  }

  void encode_prompt(const json::Value& prompt, bool add_special_tokens) {
    if (prompt.is_string()) return encode_text(prompt, "prompt", add_special_tokens);
    if (!prompt.is_array() || prompt.size() > static_cast<size_t>(model_.limits.max_sequences)) {
      return reader_.fail("prompt", "a string or an array of at most " +
                                        std::to_string(model_.limits.max_sequences));
    }
    request_.is_batch = true;
    for (size_t i = 0; i < prompt.size() && !problem_; ++i) {
      encode_text(prompt[i], element_path("prompt", i), add_special_tokens);
    }
  }

  void encode_text(const json::Value& value, const std::string& path, bool add_special_tokens) {
    if (!value.is_string()) return problem_.set(broken_rule(path, value, "a string"));
    const auto& text = value.get_ref<const std::string&>();
    num_bytes_ += text.size();
    if (num_bytes_ > static_cast<size_t>(model_.limits.max_tokenize_bytes)) {
      return reader_.fail_with("prompt", "prompt has more than " +
                                             std::to_string(model_.limits.max_tokenize_bytes) +
                                             " bytes, the most that is tokenised at once");
    }
    request_.tokens.push_back(encode_raw(text, add_special_tokens, model_));
  }

  const ServedModel& model_;
  FieldProblem problem_{policy_of("/tokenize", model_)};
  FieldReader reader_;
  TokenizeRequest request_;
  size_t num_bytes_ = 0;
};

class DetokenizeRequestParser {
 public:
  DetokenizeRequestParser(json::Members& body, const ServedModel& model)
      : model_(model), reader_(body, detokenize_fields(), problem_) {}

  Parsed<DetokenizeRequest> parse() && {
    GenerationRequest ignored;
    read_model(reader_, model_, ignored);
    request_.skip_special_tokens = reader_.boolean("skip_special_tokens").value_or(true);
    const json::Value* tokens = reader_.find("tokens");
    if (tokens == nullptr) {
      reader_.fail_with("tokens", "tokens is missing");
    } else if (!tokens->is_array()) {
      reader_.fail("tokens", "an array of token ids or an array of such arrays");
    }
    if (problem_) return problem_.error();
    request_.is_batch = !tokens->empty() && tokens->front().is_array();
    if (!request_.is_batch) read_list(*tokens, "tokens");
    for (size_t i = 0; request_.is_batch && i < tokens->size() && !problem_; ++i) {
      read_list((*tokens)[i], element_path("tokens", i));
    }
    if (problem_) return problem_.error();
    return std::move(request_);
  }

 private:
  void read_list(const json::Value& list, const std::string& path) {
    if (!list.is_array()) return problem_.set(broken_rule(path, list, "an array of token ids"));
    num_ids_ += list.size() + 1;  // an empty list is not free
    if (num_ids_ > static_cast<size_t>(model_.limits.max_detokenize_ids)) {
      return reader_.fail_with("tokens", "tokens has more than " +
                                             std::to_string(model_.limits.max_detokenize_ids) +
                                             " ids, the most that is detokenised at once");
    }
    const IntRange range{0, int64_t{model_.vocab_size} - 1};
    std::vector<int32_t>& ids = request_.tokens.emplace_back();
    ids.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const std::optional<int64_t> id = integer_in(list[i], range);
      if (!id) {
        return problem_.set(
            broken_rule(element_path(path, i), list[i], "a token id, " + rule_of(range)));
      }
      ids.push_back(static_cast<int32_t>(*id));
    }
  }

  const ServedModel& model_;
  FieldProblem problem_{policy_of("/detokenize", model_)};
  FieldReader reader_;
  DetokenizeRequest request_;
  size_t num_ids_ = 0;
};

}  // namespace

Parsed<TokenizeRequest> parse_tokenize_request(std::string_view body, const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return TokenizeRequestParser(std::get<json::Members>(members), model).parse();
}

Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view body,
                                                   const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return DetokenizeRequestParser(std::get<json::Members>(members), model).parse();
}

}  // namespace fathom::api
