#include "page/page_routes.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "api/tables/api_error.h"
#include "base/check.h"
#include "base/json.h"

namespace fathom::page {
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

constexpr std::string_view kIndexPath = "/page/index.html";
constexpr std::string_view kModelPlace = "{{served_model}}";

// Text that an attribute in double quotes has exactly this value; a bare CR would be read as a line feed.
std::string html_attribute(std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (std::string_view("&<>\"'\r").find(c) == std::string_view::npos) {
      escaped += c;
    } else {
      escaped += "&#" + std::to_string(static_cast<int>(c)) + ";";
    }
  }
  return escaped;
}

// FNV-1a: the same in every run, so that a restart with the same model leaves the browser's copy valid.
std::string hash_hex(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char digits[16];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), hash, 16).ptr;
  return {std::begin(digits), end};
}

void add_file(http::Router& router, std::string_view path,
              std::function<http::Response(std::string_view if_none_match)> answer) {
  router.add({.method = "GET",
              .path = std::string(path),
              .access = http::Access::kPage,
              .handler = [answer = std::move(answer)](const http::ExchangePtr& exchange) {
                exchange->send(answer(exchange->request().header("if-none-match")));
              }});
}

std::string_view query_value(const http::Request& request, std::string_view name) {
  for (const auto& [key, value] : request.query) {
    if (key == name) return value;
  }
  return {};
}

}  // namespace

IndexPage::IndexPage(std::string_view model_name) {
  const auto files = page_files();
  const PageFile& file = *std::ranges::find(files, kIndexPath, &PageFile::path);
  bytes_ = file.bytes;
  const size_t at = bytes_.find(kModelPlace);
  FATHOM_CHECK(at != std::string::npos, "index.html lacks " << kModelPlace);
  bytes_.replace(at, kModelPlace.size(), html_attribute(model_name));
  etag_ = "\"" + hash_hex(bytes_) + "\"";
}

PageFile IndexPage::file() const {
  return {.path = "/", .content_type = "text/html; charset=utf-8", .etag = etag_, .bytes = bytes_};
}

http::Response page_response(const PageFile& file, std::string_view if_none_match) {
  http::Response response;
  response.content_type = file.content_type;
  // The page changes with the program and the model only, but under the same address: the browser asks each
  // time and is mostly told that nothing changed.
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

http::Response stats_response(const StatsHistory& history, std::string_view since,
                              json::Value readiness) {
  double since_seconds = 0;
  if (!since.empty()) {
    const auto [end, error] =
        std::from_chars(since.data(), since.data() + since.size(), since_seconds);
    if (error != std::errc() || end != since.data() + since.size()) {
      return api::to_response(api::invalid_parameter(
          "since", "since must be a time in seconds since 1970, such as 1763596800.5"));
    }
  }
  http::Response response;
  response.headers = {{"Cache-Control", "no-store"}};
  json::Value stats = history.to_json(unix_seconds(), since_seconds);
  stats["readiness"] = std::move(readiness);
  response.body = json::dump(stats);
  return response;
}

void add_page_routes(http::Router& router, std::string_view model_name, const StatsHistory& history,
                     ReadinessSource readiness) {
  add_file(router, "/", [page = std::make_shared<const IndexPage>(model_name)](auto known) {
    return page_response(page->file(), known);
  });
  for (const PageFile& file : page_files()) {
    if (file.path == kIndexPath) continue;
    add_file(router, file.path, [&file](auto known) { return page_response(file, known); });
  }
  router.add(
      {.method = "GET",
       .path = "/stats",
       .access = http::Access::kPage,
       .handler = [&history, readiness = std::move(readiness)](const http::ExchangePtr& exchange) {
         const std::string_view since = query_value(exchange->request(), "since");
         exchange->send(stats_response(history, since, readiness()));
       }});
}

}  // namespace fathom::page
