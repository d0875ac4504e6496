// Requests whose framing is wrong: lengths, codings and chunks, the smuggling set among them.

#include "tests/http/malformed_generator.h"

namespace fathom::http::tests {
namespace {

using namespace std::string_literals;
using Expect = MalformedRequest::Expect;

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

}  // namespace

void MalformedGenerator::lengths() {
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

namespace {

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

}  // namespace

void MalformedGenerator::codings() {
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
  for (const char* value : {"gzip", "deflate", "br", "x", "identity, gzip", "gzip, identity"})
    add("content coding '"s + value + "'",
        post("Content-Encoding: "s + value + "\r\nContent-Length: 5\r\n", "hello"));
  for (const char* value : {"200-ok", "100", "100-continue, x", "", "x", "100_continue"})
    add("expect '"s + value + "'",
        post("Expect: "s + value + "\r\nContent-Length: 5\r\n", "hello"));
}

void MalformedGenerator::chunks() {
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

}  // namespace fathom::http::tests
