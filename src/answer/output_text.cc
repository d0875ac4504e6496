#include "answer/output_text.h"

#include <algorithm>
#include <vector>

#include "answer/pieces/json_text.h"
#include "text/output_parser.h"

namespace fathom::answer {
namespace {

using Kind = text::OutputEvent::Kind;

std::vector<text::OutputEvent> parsed_output(const std::string& text, text::ChatFormat format,
                                             const text::OutputParser::Options& options) {
  std::vector<text::OutputEvent> events;
  text::OutputParser parser(format, options);
  parser.push(text, events);
  parser.finish(events);
  return events;
}

struct ReadCall {
  std::string name, parameters;
};

void append_call(std::string& out, const ReadCall& call, size_t index) {
  out += index > 0 ? ",{" : "{";
  out += R"("tool_index":)";
  append_json(out, index);
  out += R"(,"name":)";
  append_json(out, call.name);
  out += R"(,"parameters":)";
  append_json(out, call.parameters);
  out += '}';
}

}  // namespace

std::string call_text_answer(const api::CallTextRequest& request) {
  std::string content;
  std::vector<ReadCall> calls;
  for (text::OutputEvent& event :
       parsed_output(request.text, request.chat_format, {.reasoning = false})) {
    if (event.kind == Kind::kContent) content += event.text;
    if (event.kind == Kind::kToolCallBegin) calls.push_back({.name = event.text, .parameters = ""});
    if (event.kind == Kind::kToolCallArguments) calls.back().parameters += event.text;
  }
  if (!request.functions.empty()) {
    std::erase_if(calls, [&](const ReadCall& call) {
      return std::ranges::find(request.functions, call.name) == request.functions.end();
    });
  }
  std::string out = R"({"normal_text":)";
  append_json(out, content);
  out += R"(,"calls":[)";
  for (size_t i = 0; i < calls.size(); ++i) append_call(out, calls[i], i);
  return out + "]}";
}

std::string reasoning_text_answer(const api::ReasoningTextRequest& request) {
  std::string reasoning, content;
  const text::OutputParser::Options options{.starts_in_reasoning = request.starts_in_reasoning,
                                            .tools = false};
  for (const text::OutputEvent& event : parsed_output(request.text, request.chat_format, options)) {
    (event.kind == Kind::kReasoning ? reasoning : content) += event.text;
  }
  std::string out = R"({"reasoning_text":)";
  append_json(out, reasoning);
  out += R"(,"text":)";
  append_json(out, content);
  return out + '}';
}

}  // namespace fathom::answer
