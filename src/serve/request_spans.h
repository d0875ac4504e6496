#pragma once
// A finished request as OpenTelemetry spans: one for the request, and below it one for each of its parts, the queue,
// the prompt and the answer. As JSON of OTLP (ExportTraceServiceRequest), without text of prompts or answers.
//
//   RequestTrace trace = request_trace(record, now_unix_ns);
//   if (is_sampled(trace)) body = otlp_json({&trace, 1}, {.model = "demo", .version = "0.2.0"});
//
// A well-formed traceparent (W3C Trace Context) makes the request a part of its client's trace, which also says whether
// it is recorded; any other begins a trace of its own, with ids that are drawn. Thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "answer/answer.h"

namespace fathom::serve {

struct TraceParent {
  std::string trace_id, span_id;  // 32 and 16 lower-case hexadecimal digits, not all 0
  bool is_sampled = false;
};
// None: it is not one, and is taken as if it were not there.
std::optional<TraceParent> parse_traceparent(std::string_view text);

struct RequestTrace {
  answer::AnswerRecord record;  // its endpoint is in `endpoint`
  std::string endpoint;
  std::optional<TraceParent> parent;
  int64_t end_unix_ns = 0;
};
RequestTrace request_trace(const answer::AnswerRecord& record, int64_t end_unix_ns);
bool is_sampled(const RequestTrace& trace);

struct SpanSource {
  std::string model, version;
};
std::string otlp_json(std::span<const RequestTrace> traces, const SpanSource& source);

}  // namespace fathom::serve
