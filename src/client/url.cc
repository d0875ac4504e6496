#include "client/url.h"

#include <algorithm>

#include "http/header_syntax.h"

namespace fathom::client {

Result<Url> parse_url(std::string_view text) {
  const auto bad = [&](const char* rule) {
    return invalid_argument("the URL '" + std::string(text) + "' " + rule);
  };
  Url url;
  std::string_view rest = text;
  if (rest.substr(0, 7) == "http://") {
    rest.remove_prefix(7);
  } else if (rest.substr(0, 8) == "https://") {
    rest.remove_prefix(8);
    url.is_tls = true;
  } else {
    return bad("must begin with http:// or https://");
  }
  const size_t authority_end = std::min(rest.find_first_of("/?#"), rest.size());
  const std::string_view authority = rest.substr(0, authority_end);
  if (!http::is_valid_host(authority)) return bad("has no well-formed host");
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  std::string_view host = authority.substr(0, has_port ? colon : authority.size());
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  url.host = host;
  url.port = has_port ? authority.substr(colon + 1) : url.is_tls ? "443" : "80";
  url.host_header = authority;
  rest.remove_prefix(authority_end);
  rest = rest.substr(0, rest.find('#'));
  url.target = rest.empty() || rest.front() != '/' ? "/" + std::string(rest) : std::string(rest);
  const auto is_visible = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
  if (!std::all_of(url.target.begin(), url.target.end(), is_visible))
    return bad("holds a character that must be percent-encoded");
  return url;
}

}  // namespace fathom::client
