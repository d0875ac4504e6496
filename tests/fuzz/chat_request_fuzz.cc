// Any bytes as a body of any endpoint: the parsers accept it or say why not, what they accept is what the
// engine may be given and holds no more of a grammar than the body does, and what they say is JSON without a word about
// the inside.
//
// Input: byte 0 chooses endpoint and model, the rest is the body. From 250 on it is an endpoint of another vendor's
// form, scores or aborts, and the size chooses the model.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_request.h"
#include "api/messages_request.h"
#include "api/operators/operator_request.h"
#include "api/responses/responses_request.h"
#include "api/score_request.h"
#include "api/tokenize_request.h"
#include "base/json.h"
#include "tests/source_tree.h"

namespace {

using namespace fathom::api;  // NOLINT(google-build-using-namespace): the subject of the file

constexpr int kNumEndpoints = 5;
constexpr uint8_t kMessages = 250, kCountTokens = 251, kResponses = 252, kScore = 253, kAbort = 254;
constexpr int kMaxContextTokens = 4096;

ServedModel make_model(size_t format_idx) {
  static const auto tokenizer = std::make_shared<const fathom::text::Tokenizer>(
      std::move(*fathom::text::Tokenizer::load(fathom::source_path("models/demo"))));
  ServedModel model;
  model.names = {"demo"};
  model.tokenizer = tokenizer;
  model.chat_format = fathom::text::chat_formats()[format_idx].format;
  model.vocab_size = tokenizer->vocab_size();
  model.max_context_tokens = kMaxContextTokens;
  model.longest_token_bytes = longest_token_bytes(*tokenizer);
  return model;
}

const ServedModel& model_of(uint8_t choice) {
  static const std::vector<ServedModel> models = [] {
    std::vector<ServedModel> all;
    for (size_t i = 0; i < fathom::text::chat_formats().size(); ++i) all.push_back(make_model(i));
    return all;
  }();
  return models[choice % models.size()];
}

void check_error(const ApiError& error) {
  FATHOM_CHECK(error.status == 400 || error.status == 404, "status " << error.status);
  FATHOM_CHECK(!error.message.empty() && error.message.size() < 2000, error.message);
  const auto body = fathom::json::parse(to_json(error));
  FATHOM_CHECK(body.has_value() && body->is_object(), to_json(error));
}

void check_item(const GenerationItem& item, const ServedModel& model) {
  const fathom::Status valid = fathom::core::validate(item.sampling, model.vocab_size);
  FATHOM_CHECK(valid.has_value(), valid.error().message);
  const auto num_prompt = static_cast<int64_t>(item.prompt.size());
  FATHOM_CHECK(num_prompt > 0, "an empty prompt");
  FATHOM_CHECK(num_prompt + item.sampling.max_new_tokens <= kMaxContextTokens,
               num_prompt << " + " << item.sampling.max_new_tokens);
  for (const int32_t id : item.prompt) {
    FATHOM_CHECK(id >= 0 && id < model.vocab_size, "token " << id);
  }
  const RequestLimits& limits = model.limits;
  FATHOM_CHECK(item.n >= 1 && item.n <= limits.max_n, "n " << item.n);
  FATHOM_CHECK(static_cast<int>(item.stop.size()) <= limits.max_stop_strings, "stop strings");
  for (const std::string& stop : item.stop) FATHOM_CHECK(!stop.empty(), "an empty stop string");
  FATHOM_CHECK(item.native.logprob_start_len >= -1 && item.native.logprob_start_len < num_prompt,
               "logprob_start_len " << item.native.logprob_start_len);
}

// Dumping a JSON text may write it longer than it came: 1e15 has 4 bytes, 1000000000000000.0 has 18.
constexpr size_t kLongestDump = 16;

void check_sources(const GenerationRequest& request, size_t body_bytes) {
  std::unordered_set<const GrammarSource*> sources;
  size_t num_bytes = 0;
  for (const GenerationItem& item : request.items) {
    FATHOM_CHECK(item.grammar != nullptr, "no grammar, not even none");
    if (sources.insert(item.grammar.get()).second) num_bytes += item.grammar->text.size();
  }
  FATHOM_CHECK(num_bytes <= kLongestDump * (body_bytes + 64),
               num_bytes << " bytes of grammars of " << body_bytes);
}

void check_generation(const Parsed<GenerationRequest>& parsed, const ServedModel& model,
                      std::string_view body) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) return check_error(*error);
  const auto& request = std::get<GenerationRequest>(parsed);
  FATHOM_CHECK(!request.items.empty(), "a request without prompts");
  check_sources(request, body.size());
  if (request.chat.thinking_budget)
    FATHOM_CHECK(*request.chat.thinking_budget >= 0, "thinking budget");
  int64_t num_sequences = 0;
  for (const GenerationItem& item : request.items) {
    check_item(item, model);
    num_sequences += item.n;
  }
  FATHOM_CHECK(num_sequences <= model.limits.max_sequences, num_sequences << " sequences");
}

template <class T>
void check_tokens(const Parsed<T>& parsed, const ServedModel& model) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) return check_error(*error);
  for (const std::vector<int32_t>& ids : std::get<T>(parsed).tokens) {
    for (const int32_t id : ids) FATHOM_CHECK(id >= 0 && id < model.vocab_size, "token " << id);
  }
}

// Any id of an even length is that of a conversation.
std::shared_ptr<const StoredResponse> past_response(const std::string& id) {
  if (id.size() % 2 != 0) return nullptr;
  const StoredResponse past{
      .messages = {{.role = "user", .content = "hi"},
                   {.role = "assistant",
                    .content = std::nullopt,
                    .tool_calls = {{.id = "a", .name = "f", .arguments = "{}"}}}},
      .body = ""};
  return std::make_shared<const StoredResponse>(past);
}

void check_abort(const Parsed<AbortRequest>& parsed) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) check_error(*error);
}

void check_count(const Parsed<int>& parsed) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) return check_error(*error);
  FATHOM_CHECK(std::get<int>(parsed) > 0, "a prompt without tokens");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const bool is_other_form = data[0] >= kMessages;
  const ServedModel& model =
      model_of(static_cast<uint8_t>(is_other_form ? size % 256 : data[0] / kNumEndpoints));
  if (data[0] == kMessages) {
    check_generation(parse_messages_request(body, model), model, body);
    return 0;
  }
  if (data[0] == kResponses) {
    check_generation(parse_responses_request(body, model, {.find_response = past_response}), model,
                     body);
    return 0;
  }
  if (data[0] == kScore) {
    check_generation(parse_score_request(body, model), model, body);
    return 0;
  }
  if (data[0] == kAbort) {
    check_abort(parse_abort_request(body, model));
    return 0;
  }
  if (data[0] == kCountTokens) {
    check_count(parse_count_tokens_request(body, model));
    return 0;
  }
  switch (data[0] % kNumEndpoints) {
    case 0:
      check_generation(parse_chat_request(body, model), model, body);
      break;
    case 1:
      check_generation(parse_completion_request(body, model), model, body);
      break;
    case 2:
      check_generation(parse_generate_request(body, model), model, body);
      break;
    case 3:
      check_tokens(parse_tokenize_request(body, model), model);
      break;
    default:
      check_tokens(parse_detokenize_request(body, model), model);
  }
  return 0;
}
