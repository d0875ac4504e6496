#include "serve/request_spans.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace fathom::serve::tests {
namespace {

constexpr const char* kTraceId = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceParent, is_read_as_the_standard_has_it) {
  const auto parent = parse_traceparent(kParent);
  ASSERT_TRUE(parent);
  EXPECT_EQ(parent->trace_id, kTraceId);
  EXPECT_EQ(parent->span_id, "00f067aa0ba902b7");
  EXPECT_TRUE(parent->is_sampled);
  const std::string ids = std::string(kParent).substr(2, 51);
  EXPECT_FALSE(parse_traceparent("00" + ids + "00")->is_sampled);
  EXPECT_FALSE(parse_traceparent("00" + ids + "fe")->is_sampled);
  EXPECT_TRUE(parse_traceparent("00" + ids + "0b")->is_sampled);
  EXPECT_TRUE(parse_traceparent("cc" + ids + "01-more"));
}

TEST(TraceParent, is_none_where_anything_is_off) {
  const std::string zeros(32, '0'), good = kParent;
  for (const std::string& text :
       {std::string(), std::string("00"), good.substr(0, 54), good + "0", good + "-more",
        "ff" + good.substr(2), "0x" + good.substr(2), "00-" + zeros + good.substr(35),
        good.substr(0, 36) + zeros.substr(0, 16) + good.substr(52), good.substr(0, 53) + "0g",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736" + good.substr(35), "cc" + good.substr(2) + "more"}) {
    EXPECT_FALSE(parse_traceparent(text)) << text;
  }
}

answer::AnswerRecord sample_record() {
  answer::AnswerRecord record{
      .request_id = "req-1", .key_name = "", .model = "demo", .endpoint = "/generate"};
  record.counts = {.prompt_tokens = 12, .cached_tokens = 4, .completion_tokens = 5};
  record.num_choices = 1;
  record.queue_seconds = 0.25;
  record.first_token_seconds = 0.5;
  record.total_seconds = 2;
  record.finish = "stop";
  return record;
}

json::Value spans_of(const answer::AnswerRecord& record) {
  const RequestTrace trace = request_trace(record, 10'000'000'000);
  const std::string text = otlp_json({&trace, 1}, {.model = "demo", .version = "1"});
  return json::parse(text).value()["resourceSpans"][0]["scopeSpans"][0]["spans"];
}

TEST(RequestSpans, divide_the_time_of_a_request) {
  const json::Value spans = spans_of(sample_record());
  const struct {
    const char *name, *begin, *end;
  } wanted[] = {{"llm_request", "8000000000", "10000000000"},
                {"queue", "8000000000", "8250000000"},
                {"prompt", "8250000000", "8500000000"},
                {"answer", "8500000000", "10000000000"}};
  ASSERT_EQ(spans.size(), 4u);
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i]["name"], wanted[i].name);
    EXPECT_EQ(spans[i]["startTimeUnixNano"], wanted[i].begin) << wanted[i].name;
    EXPECT_EQ(spans[i]["endTimeUnixNano"], wanted[i].end) << wanted[i].name;
    EXPECT_EQ(spans[i]["traceId"], spans[0]["traceId"]);
  }
  for (size_t i = 1; i < spans.size(); ++i) EXPECT_EQ(spans[i]["parentSpanId"], spans[0]["spanId"]);
  EXPECT_FALSE(spans[0].contains("parentSpanId"));
  EXPECT_FALSE(spans[0].contains("status"));
}

TEST(RequestSpans, of_a_request_that_came_to_nothing_have_what_is_known) {
  answer::AnswerRecord record = sample_record();
  record.first_token_seconds = -1;
  EXPECT_EQ(spans_of(record).size(), 3u);
  record.queue_seconds = -1;
  record.status = 500;
  const json::Value spans = spans_of(record);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1]["endTimeUnixNano"], "10000000000");
  EXPECT_EQ(spans[0]["status"]["code"], 2);
}

TEST(RequestSpans, continue_the_trace_of_the_client) {
  answer::AnswerRecord record = sample_record();
  record.traceparent = kParent;
  record.tracestate = "a=1";
  const json::Value spans = spans_of(record);
  EXPECT_EQ(spans[0]["traceId"], kTraceId);
  EXPECT_EQ(spans[0]["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(spans[0]["traceState"], "a=1");
  EXPECT_EQ(spans[3]["traceId"], kTraceId);
  record.traceparent = "nonsense";
  EXPECT_FALSE(spans_of(record)[0].contains("parentSpanId"));
  EXPECT_FALSE(spans_of(record)[0].contains("traceState"));
  record.traceparent = std::string(kParent).substr(0, 53) + "00";
  EXPECT_FALSE(is_sampled(request_trace(record, 1)));
}

}  // namespace
}  // namespace fathom::serve::tests
