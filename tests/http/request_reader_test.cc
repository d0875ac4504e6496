// The strict reader: what it accepts and how it names what it refuses, for any cuts, and next to Beast.

#include "http/request_reader.h"

#include <gtest/gtest.h>

#include "http/header_syntax.h"
#include "http/target.h"
#include "tests/http/malformed_requests.h"
#include "tests/http/reader_oracle.h"

namespace fathom::http::tests {
namespace {

using State = RequestReader::State;

const Limits kLimits;

ReadOutcome read_all(std::string_view bytes, const Limits& limits = kLimits) {
  check_reader(bytes, limits);
  return read_requests(bytes, limits, 0);
}

std::string with_headers(const std::string& headers) {
  return "POST / HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n";
}

TEST(RequestReader, reads_requests_one_after_the_other) {
  const ReadOutcome outcome = read_all(
      "GET /a?b=c HTTP/1.1\r\nHost: a:80\r\nX-One:  two  \r\n\r\n"
      "POST / HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 5\r\n\r\nhello\r\n"
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "5;x=y\r\nhello\r\nA\r\n0123456789\r\n000\r\nTrailer: t\r\n\r\n"
      "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  ASSERT_EQ(outcome.requests.size(), 4u);
  EXPECT_EQ(outcome.state, State::kHead);
  EXPECT_EQ(outcome.requests[0].head.target, "/a?b=c");
  EXPECT_EQ(outcome.requests[0].head.headers[1],
            (std::pair<std::string, std::string>("x-one", "two")));
  EXPECT_EQ(outcome.requests[1].body, "hello");
  EXPECT_EQ(outcome.requests[2].body, "hello0123456789");
  EXPECT_TRUE(outcome.requests[3].head.keeps_alive);
}

TEST(RequestReader, names_the_rule_that_a_request_breaks) {
  struct Case {
    std::string bytes;
    TransportError error;
  };
  const Case cases[] = {
      {"GET /\r\n", TransportError::kBadRequestLine},
      {"GET / HTTP/2.0\r\n", TransportError::kBadVersion},
      {"\x16\x03\x01", TransportError::kBadRequestLine},
      {"GET / HTTP/1.1\nHost: a\r\n", TransportError::kBadRequestLine},
      {"GET / HTTP/1.1\r\n\r\n", TransportError::kBadHost},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n", TransportError::kBadHost},
      {"GET / HTTP/1.1\r\nHost: a/b\r\n", TransportError::kBadHost},
      {with_headers("A : b\r\n"), TransportError::kBadHeader},
      {with_headers("A: b\r\n c\r\n"), TransportError::kBadHeader},
      {with_headers("A: b\n"), TransportError::kBadHeader},
      {with_headers("Content-Length: +5\r\n"), TransportError::kBadContentLength},
      {with_headers("Content-Length: 5\r\nContent-Length: 5\r\n"),
       TransportError::kBadContentLength},
      {with_headers("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
       TransportError::kBadContentLength},
      {with_headers("Transfer-Encoding: gzip\r\n"), TransportError::kBadTransferEncoding},
      {with_headers("Content-Encoding: gzip\r\n"), TransportError::kContentEncoding},
      {with_headers("Expect: x\r\n"), TransportError::kExpectation},
      {with_headers("Content-Length: 67108865\r\n"), TransportError::kBodyTooLarge},
      {with_headers("Transfer-Encoding: chunked\r\n") + "-2\r\n", TransportError::kBadChunk},
      {with_headers("Transfer-Encoding: chunked\r\n") + "4000001\r\n",
       TransportError::kBodyTooLarge},
  };
  for (const Case& test : cases) {
    const ReadOutcome outcome = read_all(test.bytes);
    EXPECT_EQ(outcome.state, State::kFailed) << test.bytes;
    EXPECT_EQ(outcome.error, static_cast<int>(test.error)) << test.bytes;
  }
}

TEST(RequestReader, takes_what_is_at_a_limit_and_refuses_one_more) {
  Limits limits;
  limits.max_request_line_bytes = 40;
  limits.max_header_line_bytes = 30;
  limits.max_head_bytes = 120;
  limits.max_headers = 4;
  limits.max_body_bytes = 10;
  limits.max_chunks = 3;
  const auto error_of = [&](const std::string& bytes) { return read_all(bytes, limits).error; };
  const auto head = [](size_t line_bytes, const std::string& headers) {
    return "GET /" + std::string(line_bytes - 14, 'a') + " HTTP/1.1\r\nHost: a\r\n" + headers +
           "\r\n";
  };
  const int kNone = -1, kHead = static_cast<int>(TransportError::kHeadTooLarge);
  EXPECT_EQ(error_of(head(40, "")), kNone);
  EXPECT_EQ(error_of(head(41, "")), static_cast<int>(TransportError::kUriTooLong));
  EXPECT_EQ(error_of(head(20, "X: " + std::string(27, 'a') + "\r\n")), kNone);
  EXPECT_EQ(error_of(head(20, "X: " + std::string(28, 'a') + "\r\n")), kHead);
  EXPECT_EQ(error_of(head(20, "X:\r\nX:\r\nX:\r\n")), kNone);
  EXPECT_EQ(error_of(head(20, "X:\r\nX:\r\nX:\r\nX:\r\n")), kHead);
  // Request line 42, Host 9, the line 32, "Y:" 4 and the end 2 bytes: 31 are left of 120.
  const std::string line = "X: " + std::string(27, 'a') + "\r\n";
  EXPECT_EQ(error_of(head(40, line + "X: " + std::string(26, 'a') + "\r\nY:\r\n")), kNone);
  EXPECT_EQ(error_of(head(40, line + "X: " + std::string(27, 'a') + "\r\nY:\r\n")), kHead);
  const std::string chunked = with_headers("Transfer-Encoding: chunked\r\n");
  limits.max_header_line_bytes = 60;
  EXPECT_EQ(error_of(chunked + "A\r\n0123456789\r\n0\r\n\r\n"), kNone);
  EXPECT_EQ(error_of(chunked + "A\r\n0123456789\r\n1\r\n"),
            static_cast<int>(TransportError::kBodyTooLarge));
  EXPECT_EQ(error_of(chunked + "1\r\na\r\n1\r\na\r\n1\r\na\r\n0\r\n\r\n"), kNone);
  EXPECT_EQ(error_of(chunked + "1\r\na\r\n1\r\na\r\n1\r\na\r\n1\r\n"),
            static_cast<int>(TransportError::kTooManyChunks));
  EXPECT_EQ(error_of(with_headers("Content-Length: 10\r\n") + "0123456789"), kNone);
  EXPECT_EQ(error_of(with_headers("Content-Length: 11\r\n")),
            static_cast<int>(TransportError::kBodyTooLarge));
}

TEST(RequestReader, reads_the_malformed_set_the_same_for_any_cuts_and_never_more_than_beast) {
  for (const MalformedRequest& request : malformed_requests({})) {
    if (request.bytes.size() < 20'000) check_reader(request.bytes, kLimits);
  }
}

TEST(Target, is_decoded_once_and_must_be_normal) {
  const std::optional<Target> target = parse_target("/v1/models/a%20b%C3%A9?x=1+2&y=%26&z&=");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/v1/models/a b\xc3\xa9");
  ASSERT_EQ(target->query.size(), 4u);
  EXPECT_EQ(target->query[0].second, "1 2");
  EXPECT_EQ(target->query[1].second, "&");
  EXPECT_EQ(parse_target("/%252e%252e")->path, "/%2e%2e");
  for (const char* bad :
       {"",       "a",         "*",           "/.",   "/a/..",    "/%2e%2e/a", "//..", "/%2f",
        "/a%5cb", "/a%2f%2fb", "/a%2f%2e%2e", "/%00", "/%0a",     "/%7f",      "/%",   "/%4",
        "/%zz",   "/%ff",      "/a\\b",       "/a#b", "/a?b=%00", "/a/%2fb"})
    EXPECT_FALSE(parse_target(bad)) << bad;
}

TEST(Target, has_one_slash_for_several_and_none_at_the_end) {
  const std::pair<const char*, const char*> cases[] = {
      {"/", "/"},          {"//", "/"},           {"///", "/"},
      {"/a/", "/a"},       {"//a//b///", "/a/b"}, {"/a//?x=//", "/a"},
      {"/a/b/?x", "/a/b"}, {"http://h//a/", "/a"}};
  for (const auto& [target, path] : cases) {
    const std::optional<Target> parsed = parse_target(target);
    ASSERT_TRUE(parsed) << target;
    EXPECT_EQ(parsed->path, path) << target;
  }
  EXPECT_EQ(parse_target("/a//?x=//")->query.at(0).second, "//");
  // An encoded slash belongs to a name and stays.
  EXPECT_EQ(parse_target("//a//b%2Fc/")->path, "/a/b/c");
  EXPECT_EQ(parse_target("//a//b%2Fc/")->first_encoded_slash, 4u);
}

TEST(Target, says_where_a_slash_was_encoded) {
  EXPECT_EQ(parse_target("/a/b")->first_encoded_slash, std::string::npos);
  EXPECT_EQ(parse_target("/a?b=%2F")->first_encoded_slash, std::string::npos);
  const std::optional<Target> target = parse_target("/%41/b%2Fc%2fd");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/A/b/c/d");
  EXPECT_EQ(target->first_encoded_slash, 4u);
}

TEST(Target, may_be_absolute) {
  const std::optional<Target> target = parse_target("HTTP://a.b:80/v1/models?x=1");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->authority, "a.b:80");
  EXPECT_EQ(target->path, "/v1/models");
  ASSERT_EQ(target->query.size(), 1u);
  EXPECT_EQ(parse_target("https://[::1]")->path, "/");
  EXPECT_EQ(parse_target("http://a?x")->query[0].first, "x");
  for (const char* bad : {"http://", "http:///a", "http://:80/a", "http://a@b/a", "ftp://a/b",
                          "http:/a/b", "://a/b", "http://a b/", "http://a/.."})
    EXPECT_FALSE(parse_target(bad)) << bad;
}

TEST(HeaderSyntax, knows_hosts_and_lists) {
  for (const char* good : {"a", "a.b-c_d", "127.0.0.1:80", "[::1]", "[::1]:65535", "a:"})
    EXPECT_TRUE(is_valid_host(good)) << good;
  for (const char* bad : {"", ":80", "a:b", "a:123456", "a/b", "a b", "[::1", "::1", "a@b"})
    EXPECT_FALSE(is_valid_host(bad)) << bad;
  EXPECT_TRUE(list_has_token("keep-alive, Close", "close"));
  EXPECT_FALSE(list_has_token("closed, x-close", "close"));
}

}  // namespace
}  // namespace fathom::http::tests
