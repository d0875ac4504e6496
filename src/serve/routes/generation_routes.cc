// The routes that need the tokenizer or read much text, on the workers: chat, completions, messages, generate, score,
// tokenize, detokenize, parse_function_call, separate_reasoning.

#include <utility>

#include "answer/output_text.h"
#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_request.h"
#include "api/messages_request.h"
#include "api/output_text_request.h"
#include "api/score_request.h"
#include "api/tokenize_request.h"
#include "base/clock.h"
#include "base/json.h"
#include "serve/server_state.h"
#include "text/byte_alphabet.h"

namespace fathom::serve {
namespace {

using ParseGeneration = api::Parsed<api::GenerationRequest> (*)(std::string_view,
                                                                const api::ServedModel&);

// What is asked of nothing: only /v1/score takes a list of no items.
http::Response no_scores(const api::GenerationRequest& request) {
  return json_response(
      {{"scores", json::Value::array()},
       {"model", request.form.model},
       {"usage", {{"prompt_tokens", 0}, {"completion_tokens", 0}, {"total_tokens", 0}}},
       {"object", "scoring"}});
}

http::Route generation_route(const char* method, const char* path, ParseGeneration parse,
                             ServerState& state) {
  auto handler = [&state, parse](const http::ExchangePtr& exchange) {
    if (const std::optional<api::ApiError> refusal = state.refusal()) {
      return exchange->send(api::to_response(*refusal, exchange->request()));
    }
    const Stopwatch since_arrival;
    state.run_on_worker(exchange, [&state, parse, exchange, since_arrival] {
      api::Parsed<api::GenerationRequest> parsed =
          parse(exchange->request().body, state.config.model);
      drop_body(exchange);
      if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed)) {
        return send_later(exchange, api::to_response(*error, exchange->request()));
      }
      auto& request = std::get<api::GenerationRequest>(parsed);
      if (request.items.empty()) return send_later(exchange, no_scores(request));
      state.generation.start(std::move(request), exchange, since_arrival);
    });
  };
  return {.method = method,
          .path = path,
          .access = http::Access::kInference,
          .handler = std::move(handler)};
}

// "[1,2,3]"
void append_ids(const std::vector<int32_t>& ids, std::string& out) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(ids[i]);
  }
  out += ']';
}

// As the tokenizer's file spells it.
std::string spelling_of(int32_t id, const text::Tokenizer& tokenizer) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (tokenizer.is_added(id)) return std::string(bytes);
  std::string spelling;
  for (const char byte : bytes) spelling += text::spelling_of_byte(static_cast<uint8_t>(byte));
  return spelling;
}

// ["Ġa","b"]
void append_spellings(const std::vector<int32_t>& ids, const text::Tokenizer& tokenizer,
                      std::string& out) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out += json::dump(json::Value(spelling_of(ids[i], tokenizer)));
  }
  out += ']';
}

http::Response tokenize(const http::Request& request, const api::ServedModel& model) {
  const api::Parsed<api::TokenizeRequest> parsed = api::parse_tokenize_request(request.body, model);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed))
    return api::to_response(*error, request);
  const auto& asked = std::get<api::TokenizeRequest>(parsed);
  // Written as text directly: as json::Value the ids of a long text would take several times the memory.
  http::Response response;
  std::string& out = response.body;
  std::string counts, spellings;
  out = R"({"tokens":)";
  if (asked.is_batch) out += '[';
  for (size_t i = 0; i < asked.tokens.size(); ++i) {
    if (i > 0) out += ',', counts += ',', spellings += ',';
    append_ids(asked.tokens[i], out);
    if (asked.return_token_strs) {
      append_spellings(asked.tokens[i], *model.tokenizer, spellings);
    }
    counts += std::to_string(asked.tokens[i].size());
  }
  out += asked.is_batch ? "],\"count\":[" + counts + ']' : ",\"count\":" + counts;
  if (asked.return_token_strs) {
    out += ",\"token_strs\":" + (asked.is_batch ? '[' + spellings + ']' : spellings);
  }
  out += ",\"max_model_len\":" + std::to_string(model.max_context_tokens) + '}';
  return response;
}

http::Response detokenize(const http::Request& request, const api::ServedModel& model) {
  const api::Parsed<api::DetokenizeRequest> parsed =
      api::parse_detokenize_request(request.body, model);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed))
    return api::to_response(*error, request);
  const auto& asked = std::get<api::DetokenizeRequest>(parsed);
  json::Value texts = json::Value::array();
  for (const std::vector<int32_t>& ids : asked.tokens) {
    texts.push_back(model.tokenizer->decode(ids, asked.skip_special_tokens));
  }
  return json_response({{"text", asked.is_batch ? texts : texts.at(0)}});
}

http::Response count_tokens(const http::Request& request, const api::ServedModel& model) {
  const api::Parsed<int> parsed = api::parse_count_tokens_request(request.body, model);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed))
    return api::to_response(*error, request);
  return json_response({{"input_tokens", std::get<int>(parsed)}});
}

http::Response body_response(std::string body) {
  http::Response response;
  response.body = std::move(body);
  return response;
}

http::Response parse_function_call(const http::Request& request, const api::ServedModel& model) {
  const api::Parsed<api::CallTextRequest> parsed =
      api::parse_call_text_request(request.body, model);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed))
    return api::to_response(*error, request);
  return body_response(answer::call_text_answer(std::get<api::CallTextRequest>(parsed)));
}

http::Response separate_reasoning(const http::Request& request, const api::ServedModel& model) {
  const api::Parsed<api::ReasoningTextRequest> parsed =
      api::parse_reasoning_text_request(request.body, model);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed))
    return api::to_response(*error, request);
  return body_response(answer::reasoning_text_answer(std::get<api::ReasoningTextRequest>(parsed)));
}

using AnswerBody = http::Response (*)(const http::Request&, const api::ServedModel&);

http::Route text_route(const char* path, AnswerBody answer, ServerState& state) {
  auto handler = [&state, answer](const http::ExchangePtr& exchange) {
    if (const std::optional<api::ApiError> refusal = state.refusal()) {
      return exchange->send(api::to_response(*refusal, exchange->request()));
    }
    state.run_on_worker(exchange, [&state, answer, exchange] {
      http::Response response = answer(exchange->request(), state.config.model);
      drop_body(exchange);
      send_later(exchange, std::move(response));
    });
  };
  return {.method = "POST",
          .path = path,
          .access = http::Access::kInference,
          .handler = std::move(handler)};
}

http::Route in_anthropics_form(http::Route route) {
  route.form = http::ClientForm::kAnthropic;
  return route;
}

// DeepSeek has Anthropic's form below a path of its own.
void add_messages_routes(http::Router& router, ServerState& state) {
  for (const char* path : {"/v1/messages", "/anthropic/v1/messages"}) {
    router.add(
        in_anthropics_form(generation_route("POST", path, api::parse_messages_request, state)));
  }
  for (const char* path : {"/v1/messages/count_tokens", "/anthropic/v1/messages/count_tokens"}) {
    router.add(in_anthropics_form(text_route(path, count_tokens, state)));
  }
}

}  // namespace

void add_generation_routes(http::Router& router, ServerState& state) {
  // DeepSeek's base URLs end without a version, or in /beta.
  for (const char* path : {"/v1/chat/completions", "/chat/completions", "/beta/chat/completions"})
    router.add(generation_route("POST", path, api::parse_chat_request, state));
  for (const char* path : {"/v1/completions", "/completions", "/beta/completions"})
    router.add(generation_route("POST", path, api::parse_completion_request, state));
  add_messages_routes(router, state);
  router.add(generation_route("POST", "/generate", api::parse_generate_request, state));
  router.add(generation_route("PUT", "/generate", api::parse_generate_request, state));
  router.add(generation_route("POST", "/v1/score", api::parse_score_request, state));
  for (const char* path : {"/tokenize", "/v1/tokenize"}) {
    router.add(text_route(path, tokenize, state));
  }
  for (const char* path : {"/detokenize", "/v1/detokenize"}) {
    router.add(text_route(path, detokenize, state));
  }
  router.add(text_route("/parse_function_call", parse_function_call, state));
  router.add(text_route("/separate_reasoning", separate_reasoning, state));
}

}  // namespace fathom::serve
