// Any bytes as model output, cut anywhere: the events do not depend on the cuts, the arguments of calls that are
// called complete are JSON, no marker of a call is text, and no byte but markup is lost
// (tests/text/parser_oracles.h).
//
// Input: byte 0 chooses format and options, byte 1 seeds the cuts, the rest is the output.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tests/text/parser_oracles.h"

namespace {

using fathom::text::ChatFormat;
using fathom::text::OutputParser;

constexpr ChatFormat kFormats[] = {ChatFormat::kV31, ChatFormat::kR1, ChatFormat::kKimiK2,
                                   ChatFormat::kV2};

std::vector<size_t> cuts_from_seed(uint8_t seed, size_t num_bytes) {
  std::vector<size_t> cuts;
  uint32_t state = seed * 2654435761u + 1;
  for (size_t at = 0; at < num_bytes; ++at) {
    state = state * 1664525u + 1013904223u;
    // Seeds from single bytes to long pieces.
    if (state >> 24 < 256u >> (seed % 6)) cuts.push_back(at);
  }
  return cuts;
}

// What the parser calls JSON is JSON for the reader too. Numbers beyond a double are the one difference.
void check_arguments(const fathom::text::tests::Events& events) {
  using Kind = fathom::text::OutputEvent::Kind;
  std::string arguments;
  for (const fathom::text::OutputEvent& event : events) {
    if (event.kind == Kind::kToolCallBegin) arguments.clear();
    if (event.kind == Kind::kToolCallArguments) arguments += event.text;
    if (event.kind != Kind::kToolCallEnd || !event.is_complete) continue;
    const bool may_overflow =
        arguments.find_first_of("eE") != arguments.npos || arguments.size() > 300;
    FATHOM_CHECK(may_overflow || fathom::json::Value::accept(arguments), "arguments " << arguments);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const ChatFormat format = (data[0] & 64) != 0 ? ChatFormat::kV32 : kFormats[data[0] & 3];
  const OutputParser::Options options = {.reasoning = (data[0] & 4) == 0,
                                         .starts_in_reasoning = (data[0] & 8) != 0,
                                         .tools = (data[0] & 16) == 0,
                                         .calls = (data[0] & 32) == 0};
  const std::string_view output(reinterpret_cast<const char*>(data + 2), size - 2);
  fathom::text::tests::check_output(format, options, output,
                                    cuts_from_seed(data[1], output.size()));
  const auto events = fathom::text::tests::parse_in_pieces(format, options, output);
  check_arguments(events);
  if (output.size() <= 512) {
    FATHOM_CHECK(fathom::text::tests::accounts_for(format, output, events),
                 "bytes are missing:\n"
                     << fathom::text::tests::describe(events));
  }
  return 0;
}
