#include "serve/request_spans.h"

#include <algorithm>
#include <cmath>

#include "answer/pieces/draw_id.h"
#include "base/json.h"

namespace fathom::serve {
namespace {

constexpr int kInternal = 1, kServer = 2;  // SpanKind
constexpr int kError = 2;                  // StatusCode
constexpr size_t kMaxTraceStateBytes = 512;

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) { return text.find_first_not_of('0') == text.npos; }

// Of 64 bits; a trace's has 128.
std::string draw_span_id() { return answer::draw_id("").substr(0, 16); }

json::Value text_attribute(const char* key, std::string_view value) {
  return {{"key", key}, {"value", {{"stringValue", std::string(value)}}}};
}

// OTLP's JSON writes integers of 64 bits as texts.
json::Value number_attribute(const char* key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

json::Value seconds_attribute(const char* key, double value) {
  return {{"key", key}, {"value", {{"doubleValue", value}}}};
}

json::Value truth_attribute(const char* key, bool value) {
  return {{"key", key}, {"value", {{"boolValue", value}}}};
}

int64_t nanoseconds(double seconds) { return std::llround(std::max(seconds, 0.0) * 1e9); }

json::Value attributes_of(const RequestTrace& trace) {
  const answer::AnswerRecord& record = trace.record;
  json::Value all = json::Value::array(
      {text_attribute("gen_ai.request.id", record.request_id),
       text_attribute("gen_ai.response.model", record.model),
       text_attribute("http.route", trace.endpoint),
       number_attribute("http.response.status_code", record.status),
       number_attribute("gen_ai.usage.num_sequences", record.num_choices),
       number_attribute("gen_ai.usage.prompt_tokens", record.counts.prompt_tokens),
       number_attribute("gen_ai.usage.cached_tokens", record.counts.cached_tokens),
       number_attribute("gen_ai.usage.completion_tokens", record.counts.completion_tokens),
       seconds_attribute("gen_ai.latency.e2e", record.total_seconds),
       text_attribute("fathom.finish", record.finish),
       truth_attribute("fathom.stream", record.stream),
       number_attribute("fathom.retractions", record.counts.retractions)});
  if (record.queue_seconds >= 0)
    all.push_back(seconds_attribute("gen_ai.latency.time_in_queue", record.queue_seconds));
  if (record.first_token_seconds >= 0)
    all.push_back(
        seconds_attribute("gen_ai.latency.time_to_first_token", record.first_token_seconds));
  if (!record.key_name.empty()) all.push_back(text_attribute("fathom.key_name", record.key_name));
  return all;
}

struct SpanNames {
  std::string trace_id, span_id, parent_id;
};

json::Value span_of(const SpanNames& names, std::string_view name, int kind, int64_t begin_ns,
                    int64_t end_ns) {
  json::Value span = {{"traceId", names.trace_id},
                      {"spanId", names.span_id},
                      {"name", std::string(name)},
                      {"kind", kind},
                      {"startTimeUnixNano", std::to_string(begin_ns)},
                      {"endTimeUnixNano", std::to_string(std::max(begin_ns, end_ns))}};
  if (!names.parent_id.empty()) span["parentSpanId"] = names.parent_id;
  return span;
}

void add_spans(const RequestTrace& trace, json::Value& spans) {
  const answer::AnswerRecord& record = trace.record;
  const int64_t end = trace.end_unix_ns, begin = end - nanoseconds(record.total_seconds);
  SpanNames names = {.trace_id = trace.parent ? trace.parent->trace_id : answer::draw_id(""),
                     .span_id = draw_span_id(),
                     .parent_id = trace.parent ? trace.parent->span_id : ""};
  json::Value whole = span_of(names, "llm_request", kServer, begin, end);
  if (trace.parent && !record.tracestate.empty()) whole["traceState"] = record.tracestate;
  whole["attributes"] = attributes_of(trace);
  if (record.status >= 500) whole["status"] = {{"code", kError}};
  spans.push_back(std::move(whole));

  const auto add_part = [&](const char* name, int64_t from, int64_t to) {
    const SpanNames part = {
        .trace_id = names.trace_id, .span_id = draw_span_id(), .parent_id = names.span_id};
    spans.push_back(span_of(part, name, kInternal, std::min(from, end), std::min(to, end)));
  };
  if (record.queue_seconds < 0) return add_part("queue", begin, end);
  const int64_t admitted = begin + nanoseconds(record.queue_seconds);
  add_part("queue", begin, admitted);
  if (record.first_token_seconds < 0) return add_part("prompt", admitted, end);
  const int64_t first_token = std::max(admitted, begin + nanoseconds(record.first_token_seconds));
  add_part("prompt", admitted, first_token);
  add_part("answer", first_token, end);
}

}  // namespace

// 00-<trace id>-<span id>-<flags>. Versions to come may go on behind another dash.
std::optional<TraceParent> parse_traceparent(std::string_view text) {
  constexpr size_t kLength = 55;
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
  const std::string_view version = text.substr(0, 2), trace_id = text.substr(3, 32),
                         span_id = text.substr(36, 16), flags = text.substr(53, 2);
  for (const std::string_view part : {version, trace_id, span_id, flags}) {
    if (!is_hex(part)) return {};
  }
  const bool is_longer = text.size() > kLength;
  if (version == "ff" || is_zero(trace_id) || is_zero(span_id)) return {};
  if (is_longer && (version == "00" || text[kLength] != '-')) return {};
  const char last = flags[1];
  const int bits = last <= '9' ? last - '0' : last - 'a' + 10;
  return TraceParent{.trace_id = std::string(trace_id),
                     .span_id = std::string(span_id),
                     .is_sampled = bits % 2 == 1};
}

RequestTrace request_trace(const answer::AnswerRecord& record, int64_t end_unix_ns) {
  RequestTrace trace{.record = record,
                     .endpoint = std::string(record.endpoint),
                     .parent = parse_traceparent(record.traceparent),
                     .end_unix_ns = end_unix_ns};
  trace.record.endpoint = {};
  if (trace.record.tracestate.size() > kMaxTraceStateBytes) trace.record.tracestate.clear();
  return trace;
}

bool is_sampled(const RequestTrace& trace) { return !trace.parent || trace.parent->is_sampled; }

std::string otlp_json(std::span<const RequestTrace> traces, const SpanSource& source) {
  json::Value spans = json::Value::array();
  for (const RequestTrace& trace : traces) add_spans(trace, spans);
  const json::Value resource = {
      {"attributes", json::Value::array({text_attribute("service.name", "fathom"),
                                         text_attribute("service.version", source.version),
                                         text_attribute("fathom.model", source.model)})}};
  const json::Value scope = {{"scope", {{"name", "fathom"}, {"version", source.version}}},
                             {"spans", std::move(spans)}};
  return json::dump(
      {{"resourceSpans", json::Value::array({{{"resource", resource},
                                              {"scopeSpans", json::Value::array({scope})}}})}});
}

}  // namespace fathom::serve
