#include "apps/fathom_bench/wire.h"
#include "base/json.h"

#include <gtest/gtest.h>

namespace fathom::apps {
namespace {

BenchPrompt hello() {
  return {.ids = {5, 6, 7}, .text = " a b c", .text_tokens = 3, .output_len = 8};
}

std::string native_event(const std::string& text, int tokens) {
  return "data: " +
         json::dump({{"text", text},
                     {"meta_info", {{"completion_tokens", tokens}, {"dp_rank", nullptr}}}}) +
         "\n\n";
}

TEST(RequestBody, is_sglangs_for_each_api) {
  const json::Value native = request_body({.api = BenchApi::kNative}, hello());
  EXPECT_EQ(native.dump(),
            R"({"input_ids":[5,6,7],"sampling_params":{"temperature":0.0,"max_new_tokens":8,)"
            R"("ignore_eos":true},"stream":true,"lora_path":null,"return_logprob":false,)"
            R"("return_routed_experts":false,"logprob_start_len":-1})");
  const json::Value text =
      request_body({.api = BenchApi::kCompletions, .model = "m", .ignore_eos = false}, hello());
  EXPECT_EQ(text["prompt"], " a b c");
  EXPECT_EQ(text["max_tokens"], 8);
  EXPECT_EQ(text["best_of"], 1);
  EXPECT_EQ(text["ignore_eos"], false);
  const json::Value chat = request_body({.api = BenchApi::kChat, .model = "m"}, hello());
  EXPECT_EQ(chat["messages"].dump(), R"([{"role":"user","content":" a b c"}])");
  EXPECT_EQ(chat["max_completion_tokens"], 8);
  EXPECT_EQ(chat["model"], "m");
}

TEST(StreamReader, times_native_tokens_and_spreads_a_gap_over_those_that_come_together) {
  StreamReader reader(BenchApi::kNative);
  reader.feed(native_event("", 1), 0.5);
  reader.feed(native_event("one", 3), 1.5);
  reader.feed(native_event("one", 3), 1.75);  // nothing new
  reader.feed(native_event("one two", 4), 2.0);
  reader.feed("data: [DONE]\n\n", 2.25);
  const RequestRecord record = reader.finish(8);
  EXPECT_EQ(record.error, "");
  EXPECT_EQ(record.output_tokens, 4);
  EXPECT_DOUBLE_EQ(record.ttft, 0.5);
  EXPECT_EQ(record.gaps, (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_DOUBLE_EQ(record.latency, 2.25);
  EXPECT_EQ(record.text, "one two");
}

TEST(StreamReader, is_not_misled_by_text_that_looks_like_the_count) {
  StreamReader reader(BenchApi::kNative);
  reader.feed(native_event(R"(,"completion_tokens":99)", 2), 1);
  const std::string data =
      R"({"meta_info":{"completion_tokens":3},"text":"\"completion_tokens\":77"})";
  reader.feed("data: " + data + "\n\ndata: [DONE]\n\n", 2);
  EXPECT_EQ(reader.finish(8).output_tokens, 3);
}

TEST(StreamReader, joins_chat_deltas_and_takes_the_usage) {
  StreamReader reader(BenchApi::kChat);
  const std::string stream =
      R"(data: {"choices":[{"delta":{"reasoning_content":null,"role":"assistant","content":""}}]})"
      "\n\n"
      R"(data: {"choices":[{"delta":{"reasoning_content":"think "}}]})"
      "\n\n"
      R"(data: {"choices":[{"delta":{"reasoning_content":null,"content":"say"}}]})"
      "\n\n"
      R"(data: {"choices":[],"usage":{"completion_tokens":5}})"
      "\n\ndata: [DONE]\n\n";
  for (size_t i = 0; i < stream.size(); ++i) {
    reader.feed(stream.substr(i, 1), static_cast<double>(i));
  }
  const RequestRecord record = reader.finish(8);
  EXPECT_EQ(record.error, "");
  EXPECT_EQ(record.text, "think say");
  EXPECT_EQ(record.output_tokens, 5);
  EXPECT_EQ(record.gaps.size(), 1u);
}

TEST(StreamReader, takes_the_requested_length_where_the_server_counts_nothing) {
  StreamReader reader(BenchApi::kCompletions);
  reader.feed("data: {\"choices\":[{\"text\":\"a\"}],\"usage\":null}\n\ndata: [DONE]\n\n", 1);
  EXPECT_EQ(reader.finish(8).output_tokens, 8);
}

TEST(StreamReader, reports_an_error_event_and_a_stream_that_ends_early) {
  StreamReader failed(BenchApi::kNative);
  failed.feed(native_event("a", 1), 1);
  failed.feed(R"(data: {"error":{"message":"no more blocks"}})"
              "\n\n",
              2);
  EXPECT_EQ(failed.finish(8).error, "no more blocks");
  StreamReader cut(BenchApi::kNative);
  cut.feed(native_event("a", 1), 1);
  EXPECT_EQ(cut.finish(8).error, "the stream ended early");
}

TEST(ErrorMessage, is_the_bodys_message_or_its_beginning) {
  EXPECT_EQ(error_message(R"({"error":{"message":"bad"}})"), "bad");
  EXPECT_EQ(error_message(R"({"object":"error","message":"worse"})"), "worse");
  EXPECT_EQ(error_message("gateway down"), "gateway down");
  EXPECT_EQ(error_message(std::string(5000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace fathom::apps
