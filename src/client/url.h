#pragma once
// The parts of an http:// or https:// URL that a client needs.
//
//   Result<Url> url = parse_url("http://127.0.0.1:30000/v1/models?x=1");   // target "/v1/models?x=1"
//
// Pure function, thread-safe.

#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom::client {

struct Url {
  bool is_tls = false;
  std::string host;  // without the brackets of an IPv6 address
  std::string port;
  std::string target;
  std::string host_header;  // as written
};

Result<Url> parse_url(std::string_view text);

}  // namespace fathom::client
