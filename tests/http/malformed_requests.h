#pragma once
// Malformed, borderline and hostile HTTP requests, generated from tables: the smuggling set, forms of numbers,
// targets, hosts and versions, control characters at every offset, limits and one more, seeded mutations. They
// work against any server with a GET and a POST route.
//
//   for (const MalformedRequest& request : malformed_requests({.get_path = "/hello"}))
//     EXPECT_EQ(try_malformed(port, request), "") << request.name;
//
// Thread-safe (no state).

#include <cstdint>
#include <string>
#include <vector>

#include "http/limits.h"

namespace fathom::http::tests {

struct MalformedOptions {
  std::string get_path = "/hello";
  std::string post_path = "/echo";
  std::string extra_headers = {};  // whole lines, "Authorization: Bearer ...\r\n"
  Limits limits = {};
  uint64_t seed = 20'240'817;
};

struct MalformedRequest {
  enum class Expect {
    kRejected,  // a 4xx answer within a second, then the end of the connection
    kNoError,  // any answer but 5xx, or none; the connection ends within a second of our side's end
  };
  std::string name, bytes;
  Expect expect = Expect::kRejected;
};

std::vector<MalformedRequest> malformed_requests(const MalformedOptions& options);
// Sends one and watches; returns what went wrong, empty when nothing did.
std::string try_malformed(int port, const MalformedRequest& request);

}  // namespace fathom::http::tests
