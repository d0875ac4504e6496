#pragma once
// The bodies of POST /parse_function_call and POST /separate_reasoning: text that a model wrote, to be told apart as
// chat does it. Both name a parser as SGLang does; one that is not of the served model's chat format is refused.
//
//   Parsed<CallTextRequest> parsed = parse_call_text_request(body, model);
//
// Pure, thread-safe. Linear in the body.

#include <string>
#include <string_view>
#include <vector>

#include "api/served_model.h"
#include "api/tables/api_error.h"

namespace fathom::api {

struct CallTextRequest {
  std::string text;
  text::ChatFormat chat_format = text::ChatFormat::kV3;  // has a form of calls
  std::vector<std::string> functions{};  // only calls of these are shown; empty = of all
};

struct ReasoningTextRequest {
  std::string text;
  text::ChatFormat chat_format = text::ChatFormat::kV3;
  bool starts_in_reasoning = false;
};

Parsed<CallTextRequest> parse_call_text_request(std::string_view body, const ServedModel& model);
Parsed<ReasoningTextRequest> parse_reasoning_text_request(std::string_view body,
                                                          const ServedModel& model);

}  // namespace fathom::api
