#include "http/transport_error.h"

#include <string>
#include <string_view>

namespace fathom::http {
namespace {

struct Entry {
  TransportError error;
  int status;
  Rejection rejection;
  std::string_view type, code, message;
};

constexpr std::string_view kInvalid = "invalid_request_error";
constexpr size_t kMaxNamedBytes = 300;
constexpr std::string_view kUnavailable = "service_unavailable_error";

// In the order of the enumeration.
constexpr Entry kCatalogue[] = {
    {TransportError::kBadRequestLine, 400, Rejection::kMalformed, kInvalid, "bad_request_line",
     "the request line is not 'METHOD /path HTTP/1.1'"},
    {TransportError::kBadVersion, 400, Rejection::kMalformed, kInvalid, "bad_http_version",
     "the HTTP version must be 1.1 or 1.0"},
    {TransportError::kBadTarget, 400, Rejection::kMalformed, kInvalid, "bad_request_target",
     "the request target must be a normalised path with an optional query"},
    {TransportError::kBadHeader, 400, Rejection::kMalformed, kInvalid, "bad_header",
     "a header line is malformed"},
    {TransportError::kBadHost, 400, Rejection::kMalformed, kInvalid, "bad_host",
     "exactly one well-formed Host header is needed"},
    {TransportError::kBadContentLength, 400, Rejection::kMalformed, kInvalid, "bad_content_length",
     "Content-Length must appear once, as digits, and not with Transfer-Encoding"},
    {TransportError::kBadTransferEncoding, 400, Rejection::kMalformed, kInvalid,
     "bad_transfer_encoding", "the only Transfer-Encoding is chunked, once, in HTTP/1.1"},
    {TransportError::kBadChunk, 400, Rejection::kMalformed, kInvalid, "bad_chunk",
     "the chunked body is malformed"},
    {TransportError::kRepeatedAuthorization, 400, Rejection::kMalformed, kInvalid,
     "repeated_authorization", "there may be only one Authorization or x-api-key header"},
    {TransportError::kUnauthorized, 401, Rejection::kUnauthorized, "authentication_error",
     "invalid_api_key", "a valid API key is needed"},
    {TransportError::kNoAdminKey, 403, Rejection::kUnauthorized, "permission_error", "no_admin_key",
     "where several API keys are in use this needs an admin key, and there is none: start the "
     "server with "
     "--admin-api-key"},
    {TransportError::kForeignHost, 403, Rejection::kUnauthorized, "permission_error",
     "host_not_allowed",
     "the Host '{}' is not a name of this server; if it is one, start it with --allowed-host"},
    {TransportError::kForeignOrigin, 403, Rejection::kUnauthorized, "permission_error",
     "origin_not_allowed",
     "pages of the origin '{}' may not call this server; --cors-origin names those that may"},
    {TransportError::kCrossSite, 403, Rejection::kUnauthorized, "permission_error", "cross_site",
     "browsers may not call this server from another site or origin"},
    {TransportError::kBrowserGet, 403, Rejection::kUnauthorized, "permission_error", "post_needed",
     "a browser may call this only with POST: GET must change nothing"},
    {TransportError::kNotFound, 404, Rejection::kNotFound, kInvalid, "not_found",
     "there is no resource '{}'; docs/api.md lists all"},
    {TransportError::kMethodNotAllowed, 405, Rejection::kNotFound, kInvalid, "method_not_allowed",
     "the resource does not have this method"},
    {TransportError::kRequestTimeout, 408, Rejection::kTimeout, kInvalid, "request_timeout",
     "the request did not arrive in time"},
    {TransportError::kBodyTooLarge, 413, Rejection::kTooLarge, kInvalid, "body_too_large",
     "the request body is too large"},
    {TransportError::kTooManyChunks, 413, Rejection::kTooLarge, kInvalid, "too_many_chunks",
     "the request body has too many chunks"},
    {TransportError::kUriTooLong, 414, Rejection::kTooLarge, kInvalid, "uri_too_long",
     "the request line is too long"},
    {TransportError::kHeadTooLarge, 431, Rejection::kTooLarge, kInvalid, "headers_too_large",
     "the request headers are too long or too many"},
    {TransportError::kContentEncoding, 415, Rejection::kUnsupported, kInvalid,
     "unsupported_content_encoding", "the only Content-Encoding is identity"},
    {TransportError::kExpectation, 417, Rejection::kUnsupported, kInvalid, "expectation_failed",
     "the only expectation is 100-continue"},
    {TransportError::kTooManyConnections, 503, Rejection::kOverloaded, kUnavailable,
     "too_many_connections", "the server has too many connections; try again later"},
    {TransportError::kTooManyFromAddress, 503, Rejection::kOverloaded, kUnavailable,
     "too_many_connections_from_address",
     "the server has too many connections from this address; try again later"},
    {TransportError::kTooManyBodies, 503, Rejection::kOverloaded, kUnavailable, "overloaded",
     "the server holds too many request bodies; try again later"},
    {TransportError::kOutOfMemory, 503, Rejection::kOverloaded, kUnavailable, "out_of_memory",
     "the server has no memory for this request now; try again later"},
    {TransportError::kDropped, 500, Rejection::kCount, "server_error", "internal_error",
     "the request failed; see the server's log"},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kCatalogue); ++i) {
    if (static_cast<size_t>(kCatalogue[i].error) != i) return false;
  }
  return std::size(kCatalogue) == static_cast<size_t>(TransportError::kDropped) + 1;
}
static_assert(in_order());

// What needs no escaping inside a string of JSON, whoever reads it.
std::string harmless(std::string_view named) {
  std::string kept;
  for (const char c : named.substr(0, kMaxNamedBytes)) {
    const bool is_alphanumeric =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_alphanumeric || std::string_view("-._~:/[]").find(c) != std::string_view::npos)
      kept += c;
  }
  return kept;
}

const Entry& entry_of(TransportError error) { return kCatalogue[static_cast<size_t>(error)]; }

}  // namespace

Response to_response(TransportError error, std::string_view named, ClientForm form,
                     std::string_view request_id) {
  const Entry& entry = entry_of(error);
  Response response;
  response.status = entry.status;
  std::string message(entry.message);
  if (const size_t place = message.find("{}"); place != std::string::npos)
    message.replace(place, 2, harmless(named));
  std::string& body = response.body;
  if (form == ClientForm::kAnthropic) {
    body.append(R"({"type":"error","error":{"type":")").append(anthropic_error_type(entry.status));
    body.append(R"(","message":")").append(message).append("\"}");
    if (!request_id.empty()) body.append(R"(,"request_id":")").append(request_id).append("\"");
    body.append("}");
  } else {
    body.append(R"({"error":{"message":")").append(message);
    body.append(R"(","type":")").append(entry.type);
    body.append(R"(","param":null,"code":")").append(entry.code).append("\"}}");
  }
  if (entry.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::string_view anthropic_error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

Rejection rejection_of(TransportError error) { return entry_of(error).rejection; }

std::string_view to_string(Rejection rejection) {
  switch (rejection) {
    case Rejection::kMalformed:
      return "malformed";
    case Rejection::kTooLarge:
      return "too_large";
    case Rejection::kTimeout:
      return "timeout";
    case Rejection::kUnauthorized:
      return "unauthorized";
    case Rejection::kNotFound:
      return "not_found";
    case Rejection::kUnsupported:
      return "unsupported";
    case Rejection::kOverloaded:
      return "overloaded";
    case Rejection::kStalled:
      return "stalled";
    case Rejection::kCount:
      break;
  }
  return "other";
}

}  // namespace fathom::http
