#include "page/page_routes.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace fathom::page {
namespace {

std::string header_of(const http::Response& response, std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

const PageFile& file_at(std::string_view path) {
  const auto files = page_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const PageFile& file) { return file.path == path; });
  EXPECT_NE(found, files.end()) << path;
  return *found;
}

TEST(PageResponse, a_file_comes_whole_with_its_type_and_etag) {
  const PageFile& file = file_at("/page/app.js");
  const http::Response response = page_response(file, "");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, file.bytes);
  EXPECT_EQ(response.body.rfind("// Puts the page together", 0), 0);
  EXPECT_EQ(header_of(response, "ETag"), file.etag);
  EXPECT_EQ(header_of(response, "Cache-Control"), "no-cache");
}

TEST(PageResponse, every_kind_of_file_has_its_content_type) {
  EXPECT_EQ(page_response(file_at("/page/app.js"), "").content_type,
            "text/javascript; charset=utf-8");
  EXPECT_EQ(page_response(file_at("/page/base.css"), "").content_type, "text/css; charset=utf-8");
  EXPECT_EQ(page_response(file_at("/page/icon.svg"), "").content_type, "image/svg+xml");
}

TEST(PageResponse, an_etag_that_the_browser_has_gives_304_without_a_body) {
  const PageFile& file = file_at("/page/app.js");
  const std::string etag(file.etag);
  for (const std::string& known : {etag, "W/" + etag, "\"other\", " + etag, std::string("*")}) {
    const http::Response response = page_response(file, known);
    EXPECT_EQ(response.status, 304) << known;
    EXPECT_TRUE(response.body.empty()) << known;
    EXPECT_EQ(header_of(response, "ETag"), file.etag) << known;
  }
  for (const std::string& other : {std::string("\"other\""), etag.substr(1, etag.size() - 2)}) {
    EXPECT_EQ(page_response(file, other).status, 200) << other;
  }
}

TEST(PageResponse, etags_are_quoted_and_differ_between_files) {
  std::set<std::string_view> etags;
  for (const PageFile& file : page_files()) {
    EXPECT_EQ(file.etag.front(), '"');
    EXPECT_EQ(file.etag.back(), '"');
    EXPECT_TRUE(etags.insert(file.etag).second) << file.path;
  }
  EXPECT_GT(etags.size(), 10);
}

TEST(PageResponse, the_policy_lets_nothing_in_from_elsewhere_and_no_inline_script) {
  for (const PageFile& file : page_files()) {
    for (const char* known : {"", "*"}) {  // a 304 renews the policy of the cached file too
      const http::Response response = page_response(file, known);
      const std::string policy = header_of(response, "Content-Security-Policy");
      EXPECT_EQ(policy.rfind("default-src 'self';", 0), 0) << file.path;
      EXPECT_EQ(policy.find("unsafe-"), std::string::npos);
      for (const char* rule : {"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
                               "object-src 'none'"}) {
        EXPECT_NE(policy.find(rule), std::string::npos) << rule;
      }
      EXPECT_EQ(header_of(response, "X-Content-Type-Options"), "nosniff");
      EXPECT_EQ(header_of(response, "Referrer-Policy"), "no-referrer");
    }
  }
}

TEST(PageResponse, no_file_names_another_origin) {
  for (const PageFile& file : page_files()) {
    if (file.path.ends_with(".txt")) continue;  // a licence, which the page does not ask for
    for (size_t at = file.bytes.find("://"); at != std::string_view::npos;
         at = file.bytes.find("://", at + 1)) {
      // XML namespaces are names, not addresses that are fetched.
      const size_t begin = file.bytes.rfind("http", at);
      EXPECT_EQ(file.bytes.substr(begin, 18), "http://www.w3.org/") << file.path;
    }
  }
}

// What the attribute of the served model says, before a browser decodes it.
std::string served_model_in(const IndexPage& page) {
  constexpr std::string_view kBegin = "<meta name=\"served-model\" content=\"";
  const std::string_view bytes = page.file().bytes;
  const size_t begin = bytes.find(kBegin) + kBegin.size();
  EXPECT_GT(bytes.find(kBegin), 0);
  return std::string(bytes.substr(begin, bytes.find('"', begin) - begin));
}

TEST(IndexPage, it_is_index_html_with_the_name_of_the_served_model) {
  const IndexPage page("deepseek-ai/DeepSeek-V3.1");
  const http::Response response = page_response(page.file(), "");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(header_of(response, "ETag"), page.file().etag);
  EXPECT_EQ(response.body.rfind("<!doctype html>", 0), 0);
  EXPECT_EQ(served_model_in(page), "deepseek-ai/DeepSeek-V3.1");
  EXPECT_EQ(response.body.find("{{"), std::string::npos);
  EXPECT_NE(response.body.find("</html>"), std::string::npos);
}

TEST(IndexPage, markup_in_the_name_stays_the_value_of_the_attribute) {
  EXPECT_EQ(served_model_in(IndexPage("a\"><script src='/x'>&amp;\r")),
            "a&#34;&#62;&#60;script src=&#39;/x&#39;&#62;&#38;amp;&#13;");
  EXPECT_EQ(served_model_in(IndexPage("小鲸 {{served_model}}")), "小鲸 {{served_model}}");
}

TEST(IndexPage, its_etag_is_the_models_and_the_same_in_every_run) {
  const IndexPage page("demo"), again("demo"), other("other");
  EXPECT_EQ(page.file().etag, again.file().etag);
  EXPECT_NE(page.file().etag, other.file().etag);
  EXPECT_EQ(page_response(page.file(), again.file().etag).status, 304);
  EXPECT_EQ(page_response(page.file(), other.file().etag).status, 200);
}

StatsReading page_reading_at(double unix_seconds) {
  StatsReading reading;
  reading.unix_seconds = unix_seconds;
  return reading;
}

TEST(StatsResponse, since_leaves_out_what_the_client_has) {
  StatsHistory history({.model = "demo"});
  for (const double second : {10.0, 11.25, 12.5}) history.add(page_reading_at(second));
  const auto num_samples = [&](std::string_view since) {
    const http::Response response = stats_response(history, since, {{"status", "ready"}});
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(header_of(response, "Cache-Control"), "no-store");
    EXPECT_EQ(json::parse(response.body)->at("readiness").at("status"), "ready");
    return json::parse(response.body)->at("samples").size();
  };
  EXPECT_EQ(num_samples(""), 2);
  EXPECT_EQ(num_samples("0"), 2);
  EXPECT_EQ(num_samples("11.25"), 1);
  EXPECT_EQ(num_samples("12.5"), 0);
}

TEST(StatsResponse, since_that_is_no_number_is_refused_by_name) {
  const StatsHistory history({.model = "demo"});
  for (const char* since : {"yesterday", "1.5x", " 1", "0x10", "--1"}) {
    const http::Response response = stats_response(history, since, {{"status", "ready"}});
    EXPECT_EQ(response.status, 400) << since;
    EXPECT_EQ(json::parse(response.body)->at("error").at("param"), "since") << since;
  }
}

}  // namespace
}  // namespace fathom::page
