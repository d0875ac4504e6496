#pragma once
// The fixed catalogue of what the transport itself answers, in the error shape of the route's API. The bodies are
// constants: nothing of a request, no address and no exception's text can reach them. But for the host or the origin
// that a browser's call is refused for, and the path that does not exist: without them nobody could find what is to
// blame.
//
//   Response response = to_response(TransportError::kUriTooLong);   // 414
//   Response response = to_response(TransportError::kForeignHost, "evil.example");   // 403
//
// Thread-safe (no state).

#include <string_view>

#include "http/message.h"
#include "http/server_counters.h"

namespace fathom::http {

enum class TransportError {
  kBadRequestLine,
  kBadVersion,
  kBadTarget,
  kBadHeader,
  kBadHost,
  kBadContentLength,
  kBadTransferEncoding,
  kBadChunk,
  kRepeatedAuthorization,
  kUnauthorized,
  kNoAdminKey,
  kForeignHost,
  kForeignOrigin,
  kCrossSite,
  kBrowserGet,
  kNotFound,
  kMethodNotAllowed,
  kRequestTimeout,
  kBodyTooLarge,
  kTooManyChunks,
  kUriTooLong,
  kHeadTooLarge,
  kContentEncoding,
  kExpectation,
  kTooManyConnections,
  kTooManyFromAddress,
  kTooManyBodies,
  kOutOfMemory,
  kDropped,  // a handler let its exchange go without an answer
};

// named: what the error is about (a host, an origin or a path); characters that those
// cannot have are left out. request_id: a well-formed one, which Anthropic's form has in the body too; empty = none.
Response to_response(TransportError error, std::string_view named = {},
                     ClientForm form = ClientForm::kOpenAi, std::string_view request_id = {});
// The error type that Anthropic's API has for a status (429: "rate_limit_error"); its clients decide by it.
std::string_view anthropic_error_type(int status);
// The label under which an error is counted; kCount, none, for kDropped, which is a fault of this program.
Rejection rejection_of(TransportError error);

}  // namespace fathom::http
