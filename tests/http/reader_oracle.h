#pragma once
// What must hold for any bytes: the reader's outcome does not depend on how they are cut, and what it accepts,
// Beast's parser reads as the same request.
//
//   check_reader(bytes, limits);      // aborts with the difference
//
// Pure functions, thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "http/limits.h"
#include "http/request_reader.h"

namespace fathom::http::tests {

// The requests in the bytes, then how reading ended.
struct ReadOutcome {
  struct Read {
    RequestHead head;
    std::string body;
  };
  std::vector<Read> requests;
  RequestReader::State state = RequestReader::State::kHead;
  int error = -1;        // TransportError of kFailed
  size_t num_taken = 0;  // bytes of whole requests
};

// piece_bytes: 0 = in one piece.
ReadOutcome read_requests(std::string_view bytes, const Limits& limits, size_t piece_bytes);
// Empty when equal.
std::string difference(const ReadOutcome& a, const ReadOutcome& b);
// Empty when Beast reads the same requests from the accepted bytes.
std::string difference_to_beast(std::string_view bytes, const ReadOutcome& outcome);
void check_reader(std::string_view bytes, const Limits& limits);

}  // namespace fathom::http::tests
