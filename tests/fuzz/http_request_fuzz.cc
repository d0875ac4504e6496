// Any bytes as a connection's input: the requests read do not depend on the cuts, and Beast reads the same ones
// from what is accepted (tests/http/reader_oracle.h). Accepted targets are decoded as well.
//
// Input: byte 0 chooses small limits or the defaults, the rest is the input.

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "http/target.h"
#include "tests/http/reader_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom::http;
  if (size < 1) return 0;
  Limits limits;
  if ((data[0] & 1) != 0) {
    limits.max_request_line_bytes = 64;
    limits.max_header_line_bytes = 64;
    limits.max_head_bytes = 256;
    limits.max_headers = 6;
    limits.max_body_bytes = 64;
    limits.max_chunks = 4;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  tests::check_reader(bytes, limits);
  for (const auto& read : tests::read_requests(bytes, limits, 0).requests) {
    const auto target = parse_target(read.head.target);
    if (!target) continue;
    FATHOM_CHECK(target->path.front() == '/' && target->path.find('\0') == std::string::npos,
                 "path");
    FATHOM_CHECK(is_valid_utf8(target->path), "path is not UTF-8");
  }
  return 0;
}
