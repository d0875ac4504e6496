#include "api/tables/api_error.h"

#include <utility>

#include "base/json.h"
#include "core/request.h"
#include "http/transport_error.h"

namespace fathom::api {
namespace {

constexpr const char* kInvalidRequest = "invalid_request_error";

json::Value text_or_null(const std::string& text) {
  return text.empty() ? json::Value(nullptr) : json::Value(text);
}

ApiError failed_with(std::string code, std::string message) {
  return {.status = 500,
          .message = std::move(message),
          .type = "server_error",
          .param = "",
          .code = std::move(code)};
}

}  // namespace

ApiError invalid_parameter(std::string param, std::string message) {
  return {.status = 400,
          .message = std::move(message),
          .type = kInvalidRequest,
          .param = std::move(param),
          .code = ""};
}

ApiError context_too_long(std::string param, std::string message) {
  return {.status = 400,
          .message = std::move(message),
          .type = kInvalidRequest,
          .param = std::move(param),
          .code = "context_length_exceeded"};
}

ApiError body_too_large(std::string message) {
  return {.status = 413,
          .message = std::move(message),
          .type = kInvalidRequest,
          .param = "",
          .code = "body_too_large"};
}

ApiError rid_taken(const std::string& rid) {
  return invalid_parameter(
      "rid", "rid is " + json::dump(rid) + ", which a request that is still being answered has");
}

ApiError model_not_found(const std::string& model) {
  return {.status = 404,
          .message = "the model " + json::shown_text(model) + " is not served here",
          .type = kInvalidRequest,
          .param = "model",
          .code = "model_not_found"};
}

ApiError response_not_found(std::string param, const std::string& id) {
  return {
      .status = 404,
      .message = "there is no response " + json::shown_text(id) +
                 " in the store: it was not stored, was deleted, or had to make room for others",
      .type = kInvalidRequest,
      .param = std::move(param),
      .code = "response_not_found"};
}

ApiError item_not_found(std::string param, const std::string& id) {
  return {.status = 404,
          .message = "there is no item " + json::shown_text(id) +
                     " in the store: its response was not stored, was deleted, or had to make room "
                     "for others",
          .type = kInvalidRequest,
          .param = std::move(param),
          .code = "item_not_found"};
}

ApiError overloaded() {
  return {.status = 429,
          .message = "the server has as many requests waiting as it takes; try again later",
          .type = "rate_limit_error",
          .param = "",
          .code = "rate_limit_exceeded",
          .retry_after_seconds = 1};
}

ApiError loading() {
  return {.status = 503,
          .message = "the model is still loading; GET /readyz says how far it is",
          .type = "server_error",
          .param = "",
          .code = "service_unavailable",
          .retry_after_seconds = 5};
}

ApiError draining() {
  return {.status = 503,
          .message = "the server is shutting down and takes no new requests",
          .type = "server_error",
          .param = "",
          .code = "service_unavailable",
          .retry_after_seconds = 5};
}

ApiError out_of_memory() {
  return {.status = 503,
          .message = "the server has no memory for this request now; try again later",
          .type = "server_error",
          .param = "",
          .code = "out_of_memory",
          .retry_after_seconds = 1};
}

ApiError internal_error() {
  return failed_with("internal_error", "the request failed; see the server's log");
}

ApiError profile_not_written(const std::string& why) {
  return failed_with("profile_not_written", "the profile could not be written and is lost: " + why);
}

ApiError model_failed() {
  return {.status = 503,
          .message = "the ranks of the model have failed, and the server ends; its log says how",
          .type = "server_error",
          .param = "",
          .code = "model_failed",
          .retry_after_seconds = 5};
}

ApiError from_engine(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return invalid_parameter("", error.message);
    case ErrorCode::kTooLong:
      return context_too_long("", error.message);
    case ErrorCode::kResourceEmpty:
      return overloaded();
    case ErrorCode::kCancelled:
      return draining();
    case ErrorCode::kNumeric:
      return failed_with("numeric_error",
                         "the model's output was not a number; nothing was chosen");
    case ErrorCode::kNotFound:
    case ErrorCode::kInternal:
      break;
  }
  return internal_error();
}

ApiError from_runner(std::string_view why) {
  if (why == core::kNoMemory) return out_of_memory();
  if (why.ends_with(core::kStartAgain)) return model_failed();
  if (why == core::kGrammarDeadEnd) {
    return failed_with("grammar_dead_end",
                       "no token of this model's vocabulary can go on as the grammar of the "
                       "request asks; nothing was chosen");
  }
  if (why == core::kGrammarRefusal) {
    return failed_with("grammar_mismatch",
                       "the grammar of the request refused a token that it had allowed, which is "
                       "a fault of the server; its log has more");
  }
  if (!core::leaves_no_token(why)) return from_engine({ErrorCode::kNumeric, std::string(why)});
  ApiError error = invalid_parameter(
      "", "grammar, min_tokens, stop tokens and logit_bias together leave no token to choose");
  error.code = "no_token_allowed";
  return error;
}

std::string to_json(const ApiError& error, http::ClientForm form, std::string_view request_id) {
  if (form == http::ClientForm::kAnthropic) {
    json::Value body = {
        {"type", "error"},
        {"error",
         {{"type", http::anthropic_error_type(error.status)}, {"message", error.message}}}};
    if (!request_id.empty()) body["request_id"] = request_id;
    if (!error.details.empty()) body["error"]["details"] = json::parse(error.details).value();
    return json::dump(body);
  }
  const json::Value body = {{"error",
                             {{"message", error.message},
                              {"type", error.type},
                              {"param", text_or_null(error.param)},
                              {"code", text_or_null(error.code)}}}};
  return json::dump(body);
}

http::Response to_response(const ApiError& error, http::ClientForm form) {
  http::Request request;
  request.form = form;
  return to_response(error, request);
}

http::Response to_response(const ApiError& error, const http::Request& request) {
  http::Response response;
  response.status = error.status;
  response.body = to_json(error, request.form, request.request_id);
  if (error.retry_after_seconds > 0) {
    response.headers.emplace_back("retry-after", std::to_string(error.retry_after_seconds));
  }
  return response;
}

}  // namespace fathom::api
