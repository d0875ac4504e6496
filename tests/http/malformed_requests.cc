#include "tests/http/malformed_requests.h"

#include <string_view>

#include "base/rng.h"
#include "tests/http/raw_connection.h"

namespace fathom::http::tests {
namespace {

using namespace std::string_literals;
using Expect = MalformedRequest::Expect;

class Generator {
 public:
  explicit Generator(const MalformedOptions& options) : options_(options) {}
  std::vector<MalformedRequest> all();

 private:
  void add(const std::string& name, std::string bytes, Expect expect = Expect::kRejected) {
    requests_.push_back({name, std::move(bytes), expect});
  }
  std::string get(const std::string& headers) const {
    return "GET " + options_.get_path + " HTTP/1.1\r\nHost: a\r\n" + options_.extra_headers +
           headers + "\r\n";
  }
  std::string post(const std::string& headers, const std::string& body) const {
    return "POST " + options_.post_path + " HTTP/1.1\r\nHost: a\r\n" + options_.extra_headers +
           headers + "\r\n" + body;
  }
  std::string line(const std::string& request_line) const {
    return request_line + "\r\nHost: a\r\n" + options_.extra_headers + "\r\n";
  }

  void lengths();
  void codings();
  void chunks();
  void names();
  void request_lines();
  void targets();
  void hosts();
  void control_characters();
  void limits();
  void mutations();

  const MalformedOptions& options_;
  std::vector<MalformedRequest> requests_;
};

const std::string kBadLengths[] = {
    "+5",
    "-2",
    "-0",
    "+0",
    "0x10",
    "0x",
    "5 5",
    "5,5",
    "5, 5",
    "",
    "5;",
    "5.0",
    "1e1",
    "five",
    "5h",
    "h5",
    "5 a",
    "0b1",
    "\"5\"",
    "'5'",
    "5\t6",
    "5,",
    ",5",
    "5_0",
    "5'000",
    "(5)",
    "[5]",
    "NaN",
    "inf",
    "null",
    "true",
    "0x5h",
    "5l",
    "5u",
    "%35",
    "5\x80",
    "\xd9\xa5",
    "$5",
    "5=5",
    "--5",
    "++5",
    "+-5",
    "5-5",
    "5+0",
    "1 000",
    "5\x7f",
    "5\x01",
    "\x0b"
    "5",
    "5\x0c",
    "5\x1f",
    "99999999999999999999",
    "18446744073709551616",
    "18446744073709551615",
    "9223372036854775808",
    "9223372036854775807",
    "00000000000000000000005",
    "340282366920938463463374607431768211456",
    "100000000000",
    "4294967296000",
    "999999999999999999",
};

void Generator::lengths() {
  for (const std::string& value : kBadLengths) {
    add("length '" + value + "'", post("Content-Length: " + value + "\r\n", "hello"));
    add("length in GET '" + value + "'", get("Content-Length: " + value + "\r\n"));
    add("length twice '" + value + "'",
        post("Content-Length: 5\r\nContent-Length: " + value + "\r\n", "hello"));
    add("length twice, other order '" + value + "'",
        post("Content-Length: " + value + "\r\nContent-Length: 5\r\n", "hello"));
    add("length and chunked '" + value + "'",
        post("Content-Length: " + value + "\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"));
    add("chunked and length '" + value + "'",
        post("Transfer-Encoding: chunked\r\nContent-Length: " + value + "\r\n", "0\r\n\r\n"));
  }
  for (const char* again : {"5", "6", "0"}) {
    add("two lengths 5 and "s + again,
        post("Content-Length: 5\r\nContent-Length: "s + again + "\r\n", "hello"));
    add("length and chunked "s + again,
        post("Content-Length: "s + again + "\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"));
    add("chunked and length "s + again,
        post("Transfer-Encoding: chunked\r\ncontent-length: "s + again + "\r\n", "0\r\n\r\n"));
  }
}

const std::string kBadCodings[] = {
    "gzip",
    "gzip, chunked",
    "chunked, gzip",
    "chunked, chunked",
    "identity",
    "chunked, identity",
    "identity, chunked",
    "xchunked",
    "chunkedx",
    "chunked;q=1",
    "\"chunked\"",
    "chunked,",
    ",chunked",
    "",
    "chunked chunked",
    "chunk",
    "chunke",
    "deflate",
    "compress",
    "br",
    "x-chunked",
    "chunked\x0b",
    "\x0b"
    "chunked",
    "chunked\x80",
    "chu nked",
    "chunked\x01",
    "cow",
    "null",
    "0",
    "c%68unked",
    "chunked\x7f",
    "trailers",
    "(chunked)",
    "chunked=1",
};

void Generator::codings() {
  const std::string body = "5\r\nhello\r\n0\r\n\r\n";
  for (const std::string& value : kBadCodings) {
    add("coding '" + value + "'", post("Transfer-Encoding: " + value + "\r\n", body));
    add("coding after chunked '" + value + "'",
        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: " + value + "\r\n", body));
    add("coding before chunked '" + value + "'",
        post("Transfer-Encoding: " + value + "\r\nTransfer-Encoding: chunked\r\n", body));
    add("coding with length '" + value + "'",
        post("Transfer-Encoding: " + value + "\r\nContent-Length: 5\r\n", "hello"));
  }
  add("chunked in HTTP/1.0", "POST " + options_.post_path + " HTTP/1.0\r\nHost: a\r\n" +
                                 options_.extra_headers + "Transfer-Encoding: chunked\r\n\r\n" +
                                 body);
  for (const char* value : {"gzip", "deflate", "br", "x", "identity, gzip", "gzip, identity", ""})
    add("content coding '"s + value + "'",
        post("Content-Encoding: "s + value + "\r\nContent-Length: 5\r\n", "hello"));
  for (const char* value : {"200-ok", "100", "100-continue, x", "", "x", "100_continue"})
    add("expect '"s + value + "'",
        post("Expect: "s + value + "\r\nContent-Length: 5\r\n", "hello"));
}

void Generator::chunks() {
  const std::string bad_sizes[] = {"-2",
                                   "+5",
                                   "0x5",
                                   " 5",
                                   "5 ",
                                   "\t5",
                                   "5\t",
                                   "g",
                                   "",
                                   "5g",
                                   "g5",
                                   "5,",
                                   "5.0",
                                   "'5'",
                                   "\"5\"",
                                   "5 5",
                                   "--5",
                                   "-0",
                                   "+0",
                                   "0x",
                                   "0x0",
                                   "5_",
                                   "h",
                                   "\x80",
                                   "5\x80",
                                   "5\x01",
                                   "\x0b"
                                   "5",
                                   "5\x7f",
                                   "%35",
                                   "fffffffffffffffff",
                                   "ffffffffffffffff",
                                   "10000000000000000",
                                   "7fffffffffffffff",
                                   "8000000000000000",
                                   "00000000000000005",
                                   "100000000",
                                   "ffffffff",
                                   "80000000",
                                   "4000001",
                                   "5;\x01",
                                   "5;a\x7f",
                                   "5; a\x80",
                                   "5\r",
                                   "\r5",
                                   "5;\r",
                                   "5=a",
                                   "5:a",
                                   "5 ;a",
                                   std::string(300, '0') + "5",
                                   "5;" + std::string(300, 'a'),
                                   "1 ",
                                   "\xef\xbc\x95"};
  for (const std::string& size : bad_sizes) {
    add("chunk size '" + size + "'",
        post("Transfer-Encoding: chunked\r\n", size + "\r\nhello\r\n0\r\n\r\n"));
    add("second chunk size '" + size + "'",
        post("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n" + size + "\r\nhello\r\n0\r\n\r\n"));
    if (size != "-0" && size != "+0")
      add("last chunk size '" + size + "0'",
          post("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n" + size + "zz\r\n\r\n"));
  }
  const std::string bad_bodies[] = {"5\nhello\r\n0\r\n\r\n",       "5\r\nhello\n0\r\n\r\n",
                                    "5\r\nhello\r\n0\n\r\n",       "5\r\nhello\r\n0\r\n\n",
                                    "5\rhello\r\n0\r\n\r\n\n",     "5\r\nhelloX\r\n0\r\n\r\n",
                                    "5\r\nhelloXX0\r\n\r\n",       "5\r\nhell\r\n0\r\n\r\n",
                                    "5\r\nhello0\r\n\r\n",         "5;a=b\nhello\r\n0\r\n\r\n",
                                    "0\r\nbad trailer\r\n\r\n",    "0\r\n folded: x\r\n\r\n",
                                    "0\r\na : b\r\n\r\n",          "0\r\na: b\nc: d\r\n\r\n",
                                    "0\r\na: \x01\r\n\r\n",        "0\r\n: b\r\n\r\n",
                                    "5\r\nhello\r\r\n0\r\n\r\n",   "\r\n5\r\nhello\r\n0\r\n\r\n",
                                    "5\r\n\r\nhello\r\n0\r\n\r\n", "5\r\nhello\n\r0\r\n\r\n",
                                    "0\r\n\ra: b\r\n\r\n"};
  for (const std::string& body : bad_bodies)
    add("chunked body " + std::to_string(requests_.size()),
        post("Transfer-Encoding: chunked\r\n", body));
}

void Generator::names() {
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

void Generator::request_lines() {
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

void Generator::targets() {
  const std::string targets[] = {"http://a/",
                                 "http://a" + options_.get_path,
                                 "https://a/x",
                                 "HTTP://a/",
                                 "a:443",
                                 "a",
                                 "*",
                                 "a/b",
                                 "?",
                                 "?a=b",
                                 "#",
                                 "/#",
                                 "/a#b",
                                 "//",
                                 "//v1",
                                 "//v1/models",
                                 "/v1//models",
                                 "/hello//",
                                 "///",
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

void Generator::hosts() {
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

void Generator::control_characters() {
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

void Generator::limits() {
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

// One to three bytes of a good request replaced, removed or doubled.
void Generator::mutations() {
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

std::vector<MalformedRequest> Generator::all() {
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

}  // namespace

std::vector<MalformedRequest> malformed_requests(const MalformedOptions& options) {
  return Generator(options).all();
}

std::string try_malformed(int port, const MalformedRequest& request) {
  // One second is the bound on an idle machine; the margin is for a busy one.
  constexpr std::chrono::milliseconds kPatience{5'000};
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
