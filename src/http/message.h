#pragma once
// What a handler sees of an HTTP request and what it answers. Plain data, no transport.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

// Value of the first header of that (lower-case) name, empty if there is none.
std::string_view value_of(const Headers& headers, std::string_view name);
int count_of(const Headers& headers, std::string_view name);

// Whose API a route speaks: how its errors look, also those of the transport, and where a key may be.
enum class ClientForm {
  kOpenAi,     // {"error": {message, type, param, code}}
  kAnthropic,  // {"type": "error", "error": {type, message}}; the key may be in x-api-key
};

struct Request {
  std::string method;          // "GET"; HEAD arrives as GET, its body is not sent
  std::string path;            // of the matched route: decoded once, normalised, no query
  std::string path_parameter;  // what "{name}" of the route stands for
  std::vector<std::pair<std::string, std::string>> query;  // decoded
  Headers headers;                                         // names in lower case
  std::string body;
  // x-request-id when it is well-formed, else drawn; answered as x-request-id.
  std::string request_id;
  std::string key_name;  // of the API key that authorised it; empty = no keys are configured
  ClientForm form = ClientForm::kOpenAi;  // of the matched route
  std::string_view header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;
  // Kept until the answer has been written or its connection is closed: what the body takes of a bound.
  std::shared_ptr<const void> lease = nullptr;
};

}  // namespace fathom::http
