#include "http/browser_policy.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

#include "http/header_syntax.h"

namespace fathom::http {
namespace {

using boost::asio::ip::address;

// The host of "host:port" as it is compared: lower case, without brackets and the root's dot.
std::string plain_host(std::string_view host_and_port) {
  const size_t bracket = host_and_port.rfind(']');
  const size_t colon = host_and_port.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  std::string_view host = has_port ? host_and_port.substr(0, colon) : host_and_port;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  if (host.size() > 1 && host.back() == '.') host.remove_suffix(1);
  return to_lower(host);
}

std::optional<address> parse_address(const std::string& host) {
  boost::system::error_code error;
  const address parsed = boost::asio::ip::make_address(host, error);
  if (error) return std::nullopt;
  if (parsed.is_v6() && parsed.to_v6().is_v4_mapped())
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, parsed.to_v6());
  return parsed;
}

// A host without a port. An address may be written in many ways.
std::string comparable(const std::string& host) {
  const std::optional<address> parsed = parse_address(host);
  return parsed ? parsed->to_string() : plain_host(host);
}

bool is_loopback_host(const std::string& host) {
  if (host == "localhost") return true;
  const std::optional<address> parsed = parse_address(host);
  return parsed && parsed->is_loopback();
}

// "https://Example.org:443" -> "https://example.org"; nothing when it is no origin ("null" is none).
std::optional<std::string> plain_origin(std::string_view origin) {
  const std::string text = to_lower(origin);
  const size_t colon = text.find("://");
  if (colon == std::string::npos || !is_token(text.substr(0, colon))) return std::nullopt;
  const std::string scheme = text.substr(0, colon);
  std::string authority = text.substr(colon + 3);
  if (!is_valid_host(authority)) return std::nullopt;
  for (const auto& [known, port] : {std::pair("http", ":80"), std::pair("https", ":443")}) {
    if (scheme == known && authority.ends_with(port))
      authority.resize(authority.size() - std::string_view(port).size());
  }
  return scheme + "://" + authority;
}

// Somebody followed a link, or typed the address of a page.
bool is_navigation(const Headers& headers) {
  const std::string_view mode = value_of(headers, "sec-fetch-mode");
  const std::string_view destination = value_of(headers, "sec-fetch-dest");
  return (mode.empty() || equals_ignoring_case(mode, "navigate")) &&
         (destination.empty() || equals_ignoring_case(destination, "document"));
}

// Whether other sites' pages may cause this request by a link, an image or the like, which send no Origin: the page may
// be linked to, and open routes tell nothing about anybody.
bool may_be_linked_to(const Route* route, const Headers& headers) {
  if (route == nullptr) return false;
  return route->access == Access::kOpen ||
         (route->access == Access::kPage && is_navigation(headers));
}

bool is_cross_origin_fetch(const Headers& headers) {
  const std::string_view site = value_of(headers, "sec-fetch-site");
  return !site.empty() && !equals_ignoring_case(site, "same-origin") &&
         !equals_ignoring_case(site, "none");
}

}  // namespace

Result<BrowserPolicy> BrowserPolicy::create(const BrowserPolicyConfig& config) {
  BrowserPolicy policy;
  policy.is_tls_ = config.is_tls;
  policy.names_hosts_ = !config.allowed_hosts.empty();
  policy.hosts_ = {comparable(config.host), comparable(config.bound_address)};
  if (const std::optional<address> bound = parse_address(config.bound_address)) {
    // A server that listens on all addresses cannot know by which one it is reached, so any address will do as Host.
    // That is safe: DNS rebinding needs a name.
    policy.takes_any_address_ = bound->is_unspecified();
  }
  for (const std::string& host : config.allowed_hosts) {
    if (host == "*") {
      policy.takes_any_host_ = true;
    } else if (parse_address(host) ||
               (is_valid_host(host) && host.find_first_of(":*[]") == std::string::npos)) {
      policy.hosts_.insert(comparable(host));
    } else {
      return invalid_argument("the allowed host '" + host +
                              "' must be a name or an address without a port, or *");
    }
  }
  for (const std::string& origin : config.cors_origins) {
    const std::optional<std::string> plain = plain_origin(origin);
    if (origin == "*") {
      policy.takes_any_origin_ = true;
    } else if (plain && plain->find('*') == std::string::npos) {
      policy.cors_origins_.insert(*plain);
    } else {
      return invalid_argument("the CORS origin '" + origin +
                              "' must be SCHEME://HOST or SCHEME://HOST:PORT, or *");
    }
  }
  return policy;
}

bool BrowserPolicy::is_own_host(std::string_view host_and_port) const {
  const std::string host = plain_host(host_and_port);
  if (takes_any_host_ || is_loopback_host(host)) return true;
  return hosts_.count(comparable(host)) > 0 || (takes_any_address_ && parse_address(host));
}

// The origin of this server's own pages is scheme and authority as the browser sees them, and so what Host says, port
// included: through a tunnel that is another port than ours.
bool BrowserPolicy::is_own_origin(std::string_view origin, std::string_view host) const {
  const std::optional<std::string> plain = plain_origin(origin);
  if (!plain || host.empty()) return false;
  const std::string authority(host);
  if (plain == plain_origin((is_tls_ ? "https://" : "http://") + authority)) return true;
  // TLS may end in a proxy before us; nothing is before a loopback address.
  return !is_tls_ && !is_loopback_host(plain_host(host)) &&
         plain == plain_origin("https://" + authority);
}

BrowserDecision BrowserPolicy::decide_origin(const Headers& headers) const {
  const std::string_view origin = value_of(headers, "origin");
  const std::optional<std::string> plain = plain_origin(origin);
  BrowserDecision refused{.error = TransportError::kForeignOrigin,
                          .named = plain              ? *plain
                                   : origin == "null" ? std::string(origin)
                                                      : std::string()};
  if (count_of(headers, "origin") > 1) return refused;
  if (is_own_origin(origin, value_of(headers, "host"))) return {};
  if (plain && cors_origins_.count(*plain) > 0)
    return {.cors_origin = std::string(origin), .is_foreign = true};
  if (takes_any_origin_) return {.cors_origin = "*", .is_foreign = true};
  return refused;
}

BrowserDecision BrowserPolicy::decide(const Headers& headers, const Route* route,
                                      bool asks_for_key) const {
  const std::string_view host = value_of(headers, "host");
  // HTTP/1.0 may come without one; no browser speaks it.
  if ((names_hosts_ || !asks_for_key) && !host.empty() && !is_own_host(host))
    return {.error = TransportError::kForeignHost, .named = plain_host(host)};
  BrowserDecision decision;
  if (count_of(headers, "origin") > 0) decision = decide_origin(headers);
  if (decision.error || decision.is_foreign) return decision;
  if (is_cross_origin_fetch(headers) && !may_be_linked_to(route, headers))
    return {.error = TransportError::kCrossSite};
  return decision;
}

bool is_from_browser(const Headers& headers) {
  return std::any_of(headers.begin(), headers.end(), [](const auto& header) {
    const auto& [name, value] = header;
    // Over plain HTTP to another address than loopback browsers leave Sec-Fetch-* out, and images have no Origin;
    // all of them call themselves Mozilla, and no page can change that without asking first (a preflight).
    return name == "origin" || name.starts_with("sec-fetch-") ||
           (name == "user-agent" && value.starts_with("Mozilla/"));
  });
}

}  // namespace fathom::http
