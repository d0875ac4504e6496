#pragma once
// ApiError: an answer that is not 2xx, in OpenAI's shape {"error": {message, type, param, code}}, or in Anthropic's
// {"type": "error", "error": {type, message}}, whose types follow from the status. Made only
// by the functions below, so that no body ever holds a path, an address or an exception's text.
//
//   if (n > 128) return invalid_parameter("n", "n is 200, must be in [1, 128]");
//
// Thread-safe (no state).

#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "http/message.h"

namespace fathom::api {

struct ApiError {
  int status = 400;
  std::string message, type, param, code;  // param and code: empty = null
  int retry_after_seconds = 0;             // 0 = no Retry-After
  std::string details = {};  // a JSON object that Anthropic's form shows; empty = none
};

ApiError invalid_parameter(std::string param, std::string message);  // 400 invalid_request_error
ApiError context_too_long(std::string param, std::string message);   // 400 context_length_exceeded
ApiError body_too_large(std::string message);                        // 413 body_too_large
ApiError rid_taken(const std::string& rid);                          // 400: by a live request
ApiError model_not_found(const std::string& model);                  // 404
// 404: it was not stored, was deleted, or had to make room.
ApiError response_not_found(std::string param, const std::string& id);
ApiError item_not_found(std::string param, const std::string& id);
ApiError overloaded();      // 429: the queue is full
ApiError loading();         // 503: the weights are not there yet
ApiError draining();        // 503
ApiError model_failed();    // 503: no request can succeed until the server has been started again
ApiError out_of_memory();   // 503: this request needs more than there is now
ApiError internal_error();  // 500: "the request failed; see the server's log"
// 500: why a profile could not be written, in the system's words ("No space left on device").
ApiError profile_not_written(const std::string& why);
// The engine's refusals. Texts of kInvalidArgument and kTooLong are ours and are passed on, no others.
ApiError from_engine(const Error& error);
// Why a request failed while it ran. 400: its own parts allow no token; 503: no memory for its masks; 500 by name: its
// grammar could not go on; else 500, without the text.
ApiError from_runner(std::string_view why);

http::Response to_response(const ApiError& error,
                           http::ClientForm form = http::ClientForm::kOpenAi);
// In the form of the request's route. Anthropic's has the request's id too.
http::Response to_response(const ApiError& error, const http::Request& request);
// The same as one line, for an error inside a stream. request_id: of Anthropic's form; empty = none.
std::string to_json(const ApiError& error, http::ClientForm form = http::ClientForm::kOpenAi,
                    std::string_view request_id = {});

// Result<T> with an ApiError.
template <class T>
using Parsed = std::variant<T, ApiError>;

}  // namespace fathom::api
