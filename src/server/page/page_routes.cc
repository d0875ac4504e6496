#include "server/page/page_routes.h"

#include <charconv>
#include <string>
#include <utility>

#include "server/api_error.h"

namespace fathom::server {
namespace {

// Scripts, styles and requests come from this origin and from files alone: text of a model that ended up as
// markup could neither run nor call out.
constexpr std::string_view kContentSecurityPolicy =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src "
    "'none'";

// If-None-Match: "*" or a list of etags, each perhaps with W/ before it.
bool names_etag(std::string_view if_none_match, std::string_view etag) {
  return if_none_match == "*" || if_none_match.find(etag) != std::string_view::npos;
}

void add_file(http::Router& router, const PageFile& file, std::string_view path) {
  router.add({.method = "GET",
              .path = std::string(path),
              .access = http::Access::kPage,
              .handler = [&file](const http::ExchangePtr& exchange) {
                exchange->send(page_response(file, exchange->request().header("if-none-match")));
              }});
}

std::string_view query_value(const http::Request& request, std::string_view name) {
  for (const auto& [key, value] : request.query) {
    if (key == name) return value;
  }
  return {};
}

}  // namespace

http::Response page_response(const PageFile& file, std::string_view if_none_match) {
  http::Response response;
  response.content_type = file.content_type;
  // The page changes with the program only, but under the same address: the browser asks each time and is
  // mostly told that nothing changed.
  response.headers = {{"ETag", std::string(file.etag)},
                      {"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", std::string(kContentSecurityPolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  if (names_etag(if_none_match, file.etag)) {
    response.status = 304;
  } else {
    response.body = file.bytes;
  }
  return response;
}

http::Response stats_response(const StatsHistory& history, std::string_view since) {
  double since_seconds = 0;
  if (!since.empty()) {
    const auto [end, error] =
        std::from_chars(since.data(), since.data() + since.size(), since_seconds);
    if (error != std::errc() || end != since.data() + since.size()) {
      return to_response(invalid_parameter(
          "since", "since must be a time in seconds since 1970, such as 1763596800.5"));
    }
  }
  http::Response response;
  response.headers = {{"Cache-Control", "no-store"}};
  response.body = json::dump(history.to_json(unix_seconds(), since_seconds));
  return response;
}

void add_page_routes(http::Router& router, const StatsHistory& history) {
  for (const PageFile& file : page_files()) {
    add_file(router, file, file.path == "/page/index.html" ? "/" : file.path);
  }
  router.add({.method = "GET",
              .path = "/stats",
              .access = http::Access::kPage,
              .handler = [&history](const http::ExchangePtr& exchange) {
                exchange->send(stats_response(history, query_value(exchange->request(), "since")));
              }});
}

}  // namespace fathom::server
