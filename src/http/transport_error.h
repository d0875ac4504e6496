#pragma once
// The fixed catalogue of what the transport itself answers, in OpenAI's error shape. The bodies are constants:
// nothing of a request, no path, no address and no exception's text can reach them.
//
//   Response response = to_response(TransportError::kUriTooLong);   // 414
//
// Thread-safe (no state).

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
  kCrossSite,
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
  kTooManyBodies,
  kDropped,  // a handler let its exchange go without an answer
};

Response to_response(TransportError error);
// kCount for kDropped: that one is our fault.
Rejection rejection_of(TransportError error);

}  // namespace fathom::http
