#include "tests/http/malformed_requests.h"

#include <string_view>

#include "base/rng.h"
#include "tests/http/malformed_generator.h"
#include "tests/http/raw_connection.h"

namespace fathom::http::tests {
namespace {

using namespace std::string_literals;
using Expect = MalformedRequest::Expect;

}  // namespace

void MalformedGenerator::names() {
  const std::string names[] = {"Content-Length", "Transfer-Encoding", "Host",   "X-Any",
                               "Authorization",  "Connection",        "Expect", "Content-Type"};
  const std::string before[] = {" ",  "\t", "\x0b", "\x01", "\x7f", "\x80", "(", ")",
                                "\"", ",",  ":",    ";",    "<",    "=",    ">", "?",
                                "@",  "[",  "]",    "\\",   "{",    "}",    "/", "\0"s};
  for (const std::string& name : names) {
    for (const std::string& c : before) {
      add("before the name " + name + " " + c, get(c + name + ": 5\r\n"));
      if (c != ":") add("after the name " + name + " " + c, get(name + c + ": 5\r\n"));
    }
    add("no colon " + name, get(name + "\r\n"));
    add("no colon, value " + name, get(name + " 5\r\n"));
    add("folded " + name, get(name + ": 5\r\n 5\r\n"));
    add("folded with a tab " + name, get(name + ":\r\n\t5\r\n"));
    add("folded empty " + name, get(name + ": 5\r\n \r\n"));
    add("bare LF " + name, get(name + ": 5\n"));
    add("bare CR " + name, get(name + ": 5\rX: 5\r\n"));
    add("CR CR LF " + name, get(name + ": 5\r\r\n"));
    add("NUL in the value " + name, get(name + ": 5\0\r\n"s));
  }
  add("no name", get(": 5\r\n"));
  add("an empty first line twice", "\r\n\r\n" + get(""));
  add("first header is folded", "GET " + options_.get_path + " HTTP/1.1\r\n Host: a\r\n\r\n");
}

void MalformedGenerator::request_lines() {
  const std::string& path = options_.get_path;
  const std::string methods[] = {"",
                                 "G ET",
                                 "GET\t",
                                 "\tGET",
                                 " GET",
                                 "G\0T"s,
                                 "G\x01T",
                                 "(GET)",
                                 "GET,",
                                 "GET:",
                                 "G/T",
                                 "G@T",
                                 "\"GET\"",
                                 "G\x80T",
                                 "GET\x7f",
                                 "{GET}",
                                 "[GET]",
                                 "G\\T",
                                 "G;T",
                                 "G<T",
                                 "G=T",
                                 "G>T",
                                 "G?T",
                                 std::string(33, 'G'),
                                 std::string(8000, 'G')};
  for (const std::string& method : methods)
    add("method '" + method + "'", line(method + " " + path + " HTTP/1.1"));
  for (const char* method :
       {"get", "Get", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "FOO", "SSH-2.0"})
    add("other method "s + method, line(method + " "s + path + " HTTP/1.1"));
  const std::string versions[] = {"HTTP/0.9",    "HTTP/1.2",     "HTTP/1.9",
                                  "HTTP/2.0",    "HTTP/2",       "HTTP/3",
                                  "HTTP/1",      "HTTP/1.",      "HTTP/.1",
                                  "HTTP/",       "HTTP",         "http/1.1",
                                  "Http/1.1",    "HTTP/1.10",    "HTTP/1.01",
                                  "HTTP/01.1",   "HTTP/11.1",    "HTTP/1,1",
                                  "HTTP/1:1",    "HTTP/+1.1",    "HTTP/-1.1",
                                  "HTTP/1.-1",   "HTTP/1.1.1",   "HTTP/1.1a",
                                  "aHTTP/1.1",   "HTP/1.1",      "HTTPS/1.1",
                                  "HTTP 1.1",    "HTTP\\1.1",    "HTTP//1.1",
                                  "HTTP/1.1\t",  "HTTP/1.1 ",    "\tHTTP/1.1",
                                  "HTTP/1.1\0"s, "HTTP/1.1\x01", "HTTP/1.1;a",
                                  "HTTP/9.9",    "HTTP/a.b",     "SIP/2.0",
                                  "RTSP/1.0",    "ICY/1.1",      "HTTP/1.1 HTTP/1.1",
                                  "HTTP/0.0",    "HTTP/1.0 ",    "HTTP/\xd9\xa1.1",
                                  "HTTP/1.1?",   "HTTP/1.1#",    "%48TTP/1.1"};
  for (const std::string& version : versions)
    add("version '" + version + "'", line("GET " + path + " " + version));
  add("HTTP/0.9", "GET " + path + "\r\n");
  add("HTTP/0.9 with headers", "GET " + path + "\r\nHost: a\r\n\r\n");
  add("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  add("two spaces", line("GET  " + path + " HTTP/1.1"));
  add("two spaces before the version", line("GET " + path + "  HTTP/1.1"));
  add("tabs for spaces", line("GET\t" + path + "\tHTTP/1.1"));
  add("no target", line("GET HTTP/1.1"));
  add("only LF", "GET " + path + " HTTP/1.1\nHost: a\n\n");
  add("only CR", "GET " + path + " HTTP/1.1\rHost: a\r\r\n");
  add("TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s);
  add("SOCKS", "\x05\x01\x00"s);
  add("zeros", std::string(100, '\0'));
  add("a JSON body alone", "{\"model\": \"x\"}\r\n\r\n");
}

void MalformedGenerator::targets() {
  const std::string targets[] = {"http://b/",
                                 "http://b" + options_.get_path,
                                 "https://a/x",
                                 "HTTP://b/",
                                 "a:443",
                                 "a",
                                 "*",
                                 "a/b",
                                 "?",
                                 "?a=b",
                                 "#",
                                 "/#",
                                 "/a#b",
                                 "/.",
                                 "/..",
                                 "/./hello",
                                 "/../hello",
                                 "/v1/../hello",
                                 "/v1/./models",
                                 "/hello/..",
                                 "/hello/.",
                                 "/hello/../",
                                 "/%2e",
                                 "/%2e%2e",
                                 "/%2e%2e/hello",
                                 "/.%2e/hello",
                                 "/%2e./hello",
                                 "/v1/%2e%2e/hello",
                                 "/v1/%2E%2E/hello",
                                 "/%2f",
                                 "/%2F",
                                 "/%2fhello",
                                 "/v1%2fmodels",
                                 "/v1%2Fmodels",
                                 "/hello%2f",
                                 "/%5c",
                                 "/%5chello",
                                 "/v1\\models",
                                 "\\hello",
                                 "/\\",
                                 "/%00",
                                 "/hello%00",
                                 "/%00hello",
                                 "/hello%0a",
                                 "/hello%0d%0a",
                                 "/%01",
                                 "/%1f",
                                 "/%7f",
                                 "/%",
                                 "/%2",
                                 "/%zz",
                                 "/%2x",
                                 "/%x2",
                                 "/hello%",
                                 "/%80",
                                 "/%c0%af",
                                 "/%c0%80",
                                 "/%e0%80%af",
                                 "/%ff",
                                 "/%ed%a0%80",
                                 "/%f4%90%80%80",
                                 "/hello?a=%",
                                 "/hello?a=%0",
                                 "/hello?a=%zz",
                                 "/hello?a=%00",
                                 "/hello?%00=a",
                                 "/hello?a=%ff",
                                 "/hello?a#b",
                                 "/hello?a=%0d%0ab",
                                 "/hel\tlo",
                                 "/hel\x0blo",
                                 "/hel\x7flo",
                                 "/hel\x80lo",
                                 "/h\xc3\xa9llo",
                                 "/hello\0"s,
                                 "/hello?" + std::string(65 * 2, '&') +
                                     [] {
                                       std::string query;
                                       for (int i = 0; i < 65; ++i) query += "a=b&";
                                       return query;
                                     }(),
                                 "localhost/hello",
                                 "file:///etc/passwd",
                                 "javascript:alert(1)",
                                 "/..;/hello",
                                 "/hello/%2e%2e%2f",
                                 "/%252e%252e/hello",
                                 "/%u002e",
                                 "/a/b/c/d/e/f/../../../../../../..",
                                 "@a/hello",
                                 "/hello/%2e"};
  for (const std::string& target : targets) {
    for (const char* method : {"GET", "POST", "HEAD", "OPTIONS", "DELETE", "CONNECT"})
      add(method + " target "s + target, line(method + " "s + target + " HTTP/1.1"));
  }
}

void MalformedGenerator::hosts() {
  const std::string bad[] = {"",
                             " ",
                             "a b",
                             "a/b",
                             "/",
                             "a?b",
                             "localhost/v1/models?",
                             "a#b",
                             "a@b",
                             "a\\b",
                             "a:b",
                             "a:",
                             "a:80:80",
                             ":80",
                             "a:123456",
                             "a:-1",
                             "a:+80",
                             "a:0x50",
                             "a: 80",
                             "[::1",
                             "::1]",
                             "[",
                             "a\"b",
                             "a<b",
                             "a>b",
                             "a{b",
                             "a|b",
                             "a^b",
                             "a`b",
                             "a\x01"
                             "b",
                             "a\x7f"
                             "b",
                             "a\x80"
                             "b",
                             "a\tb",
                             "http://a",
                             "http://a/",
                             "a,b/",
                             std::string(256, 'a'),
                             "a\0"s,
                             "[::1]x",
                             "[::1]:x",
                             "[::1]:123456",
                             "::1",
                             "a:80/"};
  for (const std::string& host : bad) {
    // "a:" has an empty port, which the grammar allows.
    const Expect expect =
        host == "a:" || host == "::1]" || host == "[" ? Expect::kNoError : Expect::kRejected;
    for (const char* version : {"1.1", "1.0"})
      add("host '" + host + "' " + version,
          "GET " + options_.get_path + " HTTP/" + version + "\r\nHost: " + host + "\r\n" +
              options_.extra_headers + "\r\n",
          expect);
    add("second host '" + host + "'", get("Host: " + host + "\r\n"));
  }
  add("no host", "GET " + options_.get_path + " HTTP/1.1\r\n" + options_.extra_headers + "\r\n");
  add("two hosts", get("Host: a\r\n"));
  add("two hosts, other case", get("hOST: a\r\n"));
}

void MalformedGenerator::control_characters() {
  const std::string samples[] = {get("X-Any: value\r\n"), post("Content-Length: 5\r\n", "")};
  for (const std::string& sample : samples) {
    for (const std::string& c : {"\0"s, "\n"s, "\r"s, "\x0b"s, "\x1b"s}) {
      // The last three bytes: what is inserted there may come after a whole request.
      for (size_t at = 0; at < sample.size(); ++at) {
        std::string bytes = sample;
        bytes.insert(at, c);
        const bool may_be_whole = at + 3 >= sample.size() || (c == "\r" && at == 0);
        add("control " + std::to_string(static_cast<int>(c[0])) + " at " + std::to_string(at),
            std::move(bytes), may_be_whole ? Expect::kNoError : Expect::kRejected);
      }
    }
  }
}

void MalformedGenerator::limits() {
  const Limits& limits = options_.limits;
  const std::string prefix = "GET " + options_.get_path + "?", suffix = " HTTP/1.1";
  for (const size_t more : {size_t{1}, size_t{2}, size_t{100}, limits.max_request_line_bytes})
    add("request line + " + std::to_string(more),
        line(
            prefix +
            std::string(limits.max_request_line_bytes + more - prefix.size() - suffix.size(), 'a') +
            suffix));
  for (const size_t less : {size_t{0}, size_t{1}})
    add("request line - " + std::to_string(less),
        line(
            prefix +
            std::string(limits.max_request_line_bytes - less - prefix.size() - suffix.size(), 'a') +
            suffix),
        Expect::kNoError);
  for (const size_t more : {size_t{1}, size_t{2}, limits.max_header_line_bytes})
    add("header line + " + std::to_string(more),
        get("X: " + std::string(limits.max_header_line_bytes + more - 3, 'a') + "\r\n"));
  for (const size_t num : {size_t{100}, size_t{101}, size_t{102}, size_t{1000}}) {
    std::string headers;
    for (size_t i = 0; i < num; ++i) headers += "X: y\r\n";
    // Host is one more.
    add(std::to_string(num) + " headers", get(headers));
  }
  for (const size_t size : {size_t{16'000}, size_t{15'000}}) {
    std::string headers;
    for (size_t total = 0; total <= limits.max_head_bytes; total += size)
      headers += "X: " + std::string(size, 'a') + "\r\n";
    add("whole head, lines of " + std::to_string(size), get(headers));
  }
  for (const int64_t more : {int64_t{1}, int64_t{1000}, limits.max_body_bytes * 1000}) {
    add("body + " + std::to_string(more),
        post("Content-Length: " + std::to_string(limits.max_body_bytes + more) + "\r\n", "x"));
    char size[32];
    std::snprintf(size, sizeof(size), "%llx",
                  static_cast<unsigned long long>(limits.max_body_bytes + more));
    add("chunk + " + std::to_string(more), post("Transfer-Encoding: chunked\r\n", size + "\r\nx"s));
  }
  std::string many_chunks;
  for (size_t i = 0; i <= limits.max_chunks; ++i) many_chunks += "1\r\nx\r\n";
  add("too many chunks", post("Transfer-Encoding: chunked\r\n", many_chunks + "0\r\n\r\n"));
}

namespace {

// One to three bytes of a good request replaced, removed or doubled.

}  // namespace

void MalformedGenerator::mutations() {
  const std::string samples[] = {get("Accept: */*\r\n"), post("Content-Length: 5\r\n", "hello"),
                                 post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n")};
  for (uint64_t i = 0; i < 400; ++i) {
    std::string bytes = samples[i % 3];
    const auto words = philox(options_.seed, 1, i);
    for (uint32_t edit = 0; edit <= words[0] % 3; ++edit) {
      const auto draw = philox(options_.seed, 2, i * 4 + edit);
      const size_t at = draw[0] % bytes.size();
      if (draw[1] % 3 == 0) {
        bytes[at] = static_cast<char>(draw[2] & 0xff);
      } else if (draw[1] % 3 == 1) {
        bytes.erase(at, 1 + draw[2] % 4);
      } else {
        bytes.insert(at, bytes.substr(at, 1 + draw[2] % 8));
      }
      if (bytes.empty()) bytes = "x";
    }
    add("mutation " + std::to_string(i), std::move(bytes), Expect::kNoError);
  }
}

std::vector<MalformedRequest> MalformedGenerator::all() {
  lengths();
  codings();
  chunks();
  names();
  request_lines();
  targets();
  hosts();
  control_characters();
  limits();
  mutations();
  return std::move(requests_);
}

std::vector<MalformedRequest> malformed_requests(const MalformedOptions& options) {
  return MalformedGenerator(options).all();
}

std::string try_malformed(int port, const MalformedRequest& request) {
  // An idle machine answers within a second. Less than Timeouts::header, so that what is ended by it shows.
  constexpr std::chrono::milliseconds kPatience{9'000};
  RawConnection connection(port);
  connection.send(request.bytes);
  if (request.expect == Expect::kRejected) {
    const RawAnswer answer =
        connection.read_answer(request.bytes.substr(0, 5) == "HEAD ", kPatience);
    if (answer.status >= 400 && answer.status < 500) return "";
    return answer.status == 0 ? "no answer" : "answered with " + std::to_string(answer.status);
  }
  connection.half_close();
  std::string received;
  while (true) {
    const std::string bytes = connection.read_some(kPatience);
    if (bytes.empty()) break;
    received += bytes;
  }
  if (received.find("HTTP/1.1 5") != std::string::npos) return "a 5xx answer";
  return connection.wait_closed(std::chrono::milliseconds(0)) ? "" : "the connection stays open";
}

}  // namespace fathom::http::tests
