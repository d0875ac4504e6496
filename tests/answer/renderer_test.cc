#include "answer/renderer.h"

#include <gtest/gtest.h>

#include <limits>

#include "answer/pieces/json_text.h"
#include "answer/pieces/logprobs.h"
#include "base/json.h"
#include "tests/answer/fed_answer.h"

namespace fathom::answer {
namespace {

using tests::shown_form;

ChoiceSetup choice_of(std::optional<text::OutputParser> parser, bool shows_reasoning) {
  ChoiceSetup setup = tests::plain_choice();
  setup.parser = std::move(parser);
  setup.shows_reasoning = shows_reasoning;
  return setup;
}

struct Rendered : tests::FedAnswer {
  explicit Rendered(api::ShownForm form, std::optional<text::OutputParser> parser = {},
                    bool shows_reasoning = true)
      : FedAnswer(std::move(form), choice_of(std::move(parser), shows_reasoning)) {}

  // The text's tokens, one by one as steps; the events of all.
  std::string stream(std::string_view text) { return feed(text, 1); }
  std::string end(core::FinishReason reason) {
    FedAnswer::end(reason);
    return last_events();
  }
};

TEST(Renderer, streams_a_chat_with_reasoning_in_the_documented_order) {
  Rendered chat(shown_form(api::Endpoint::kChat),
                text::OutputParser(text::ChatFormat::kV31, {.starts_in_reasoning = true}));
  const std::string start = R"(data: {"id":"id","object":"chat.completion.chunk","created":7,)"
                            R"("model":"demo","choices":[{"index":0,"delta":)";
  const std::string open = R"(,"logprobs":null,"finish_reason":null,"matched_stop":null}]})"
                           "\n\n";
  EXPECT_EQ(chat.begin(),
            start + R"({"reasoning_content":null,"role":"assistant","content":""})" + open);
  std::string events = chat.stream("a");
  EXPECT_EQ(events, start + R"({"reasoning_content":"a"})" + open);
  events = chat.stream("</think>");
  events += chat.stream("b");
  EXPECT_EQ(events, start + R"({"reasoning_content":null,"content":"b"})" + open);
  EXPECT_EQ(chat.end(core::FinishReason::kLength),
            start + R"({"reasoning_content":null},"logprobs":null,"finish_reason":"length",)"
                    R"("matched_stop":null}]})"
                    "\n\ndata: [DONE]\n\n");
}

TEST(Renderer, reasoning_that_is_not_shown_is_counted_and_left_out) {
  Rendered chat(shown_form(api::Endpoint::kChat),
                text::OutputParser(text::ChatFormat::kV31, {.starts_in_reasoning = true}),
                /*shows_reasoning=*/false);
  std::string events = chat.stream("secret");
  events += chat.stream("</think>");
  events += chat.stream("b");
  events += chat.end(core::FinishReason::kStop);
  EXPECT_EQ(events.find("secret"), std::string::npos) << events;
  EXPECT_NE(events.find(R"("content":"b")"), std::string::npos) << events;
  EXPECT_GT(chat.choices[0].counts().reasoning_tokens, 0);
}

TEST(CompletionLogprobs, the_chosen_token_is_among_its_alternatives) {
  const text::Tokenizer& tokenizer = *api::tests::demo_tokenizer();
  const int32_t a = tokenizer.encode("a").at(0), b = tokenizer.encode("b").at(0);
  const core::SampledToken unlikely{
      .token = a, .logprob = -3, .top_logprobs = {{b, -0.5f}, {a, -3.0f}}};
  const auto tops = [&](int num_top) {
    CompletionLogprobs logprobs({tokenizer}, num_top);
    logprobs.add(unlikely);
    std::string out;
    logprobs.append_to(out);
    return json::dump(json::parse(out).value()["top_logprobs"]);
  };
  EXPECT_EQ(tops(0), R"([{"a":-3}])");
  EXPECT_EQ(tops(1), R"([{"b":-0.5,"a":-3}])");
  EXPECT_EQ(tops(2), R"([{"b":-0.5,"a":-3}])");
}

TEST(CompletionLogprobs, offsets_count_what_is_shown) {
  const text::Tokenizer& tokenizer = *api::tests::demo_tokenizer();
  const int32_t a = tokenizer.encode("a").at(0);
  CompletionLogprobs logprobs({tokenizer}, 0);
  logprobs.add_without_logprob(tokenizer.bos_id(), /*is_shown=*/false);
  for (int i = 0; i < 2; ++i) logprobs.add({.token = a});
  std::string out;
  logprobs.append_to(out);
  EXPECT_EQ(json::dump(json::parse(out).value()["text_offset"]), "[0,0,1]");
}

TEST(CompletionLogprobs, offsets_count_a_character_of_several_tokens_once) {
  const text::Tokenizer& tokenizer = *api::tests::demo_tokenizer();
  const std::vector<int32_t> ids = tokenizer.encode("\U0001F642b");
  ASSERT_EQ(ids.size(), 5U);  // a token for each byte of the first
  CompletionLogprobs logprobs({tokenizer}, 0);
  for (const int32_t id : ids) logprobs.add({.token = id});
  std::string out;
  logprobs.append_to(out);
  EXPECT_EQ(json::dump(json::parse(out).value()["text_offset"]), "[0,1,1,1,1]");
}

const std::string kCallStart = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>";
const std::string kCallEnd = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";

Rendered chat_with_calls() {
  return Rendered(shown_form(api::Endpoint::kChat), text::OutputParser(text::ChatFormat::kV31, {}));
}

// The finish reason, and the deltas of calls without the id that was drawn.
std::string calls_of(const std::string& events) {
  std::string shown;
  for (size_t at = events.find("data: {"); at != std::string::npos;
       at = events.find("data: {", at + 1)) {
    const std::string line = events.substr(at + 6, events.find('\n', at) - at - 6);
    json::Value choice = json::parse(line).value()["choices"][0];
    if (choice["delta"].contains("tool_calls")) {
      json::Value& call = choice["delta"]["tool_calls"][0];
      if (call.contains("id")) call["id"] = call["id"].get<std::string>().substr(0, 5);
      shown += json::dump(choice["delta"]["tool_calls"]) + "\n";
    }
    if (choice["finish_reason"].is_string()) shown += choice["finish_reason"].get<std::string>();
  }
  return shown;
}

TEST(Renderer, streams_the_arguments_of_a_call_as_they_come) {
  Rendered chat = chat_with_calls();
  EXPECT_EQ(calls_of(chat.stream(kCallStart)), "");
  const std::string head = R"([{"index":0,"id":"call_","type":"function",)"
                           R"("function":{"name":"f","arguments":""}}])"
                           "\n";
  const auto piece = [](const char* text) {
    return R"([{"index":0,"function":{"arguments":")" + std::string(text) + "\"}}]\n";
  };
  EXPECT_EQ(calls_of(chat.stream("{")), head + piece("{"));
  EXPECT_EQ(calls_of(chat.stream("}")), piece("}"));
  EXPECT_EQ(calls_of(chat.stream(kCallEnd)), "");
  EXPECT_EQ(calls_of(chat.end(core::FinishReason::kStop)), "tool_calls");
}

TEST(Renderer, a_call_of_a_function_has_the_form_that_was_before_tools) {
  api::ShownForm form = shown_form(api::Endpoint::kChat);
  form.calls_functions = true;
  const text::OutputParser parser(text::ChatFormat::kV31, {});
  Rendered streamed(form, parser);
  std::string events = streamed.stream(kCallStart + "{}" + kCallEnd);
  events += streamed.end(core::FinishReason::kStop);
  EXPECT_NE(events.find(R"("function_call":{"name":"f","arguments":""})"), std::string::npos);
  EXPECT_NE(events.find(R"("function_call":{"arguments":"{)"), std::string::npos) << events;
  EXPECT_NE(events.find(R"("finish_reason":"function_call")"), std::string::npos);
  EXPECT_EQ(events.find("tool_calls"), std::string::npos) << events;

  Rendered whole(form, parser);
  for (const int32_t id : api::tests::demo_tokenizer()->encode(kCallStart + "{}" + kCallEnd)) {
    const core::SampledToken token{.token = id};
    whole.choices[0].push({&token, 1}, /*last_is_stop_token=*/false);
  }
  engine::RequestEnd end;
  end.reason = core::FinishReason::kStop;
  whole.choices[0].end(end);
  const json::Value choice = json::parse(whole.body()).value()["choices"][0];
  EXPECT_EQ(json::dump(choice["message"]["function_call"]), R"({"name":"f","arguments":"{}"})");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_EQ(choice["finish_reason"].get<std::string>(), "function_call");
}

TEST(Renderer, a_call_that_was_cut_or_is_no_json_is_not_called_complete) {
  struct Case {
    std::string output;
    core::FinishReason reason;
    const char* finish;
  };
  const Case cases[] = {
      {kCallStart + "{", core::FinishReason::kLength, "length"},
      {kCallStart + "{}" + kCallEnd, core::FinishReason::kLength, "length"},
      {kCallStart + "{", core::FinishReason::kCancelled, "abort"},
      {kCallStart + "{", core::FinishReason::kStop, "stop"},
      {kCallStart + "{,}" + kCallEnd, core::FinishReason::kStop, "stop"},
      {kCallStart + "{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{]" + kCallEnd,
       core::FinishReason::kStop, "stop"},
  };
  for (const Case& made : cases) {
    SCOPED_TRACE(made.output);
    Rendered streamed = chat_with_calls();
    const std::string events = streamed.stream(made.output) + streamed.end(made.reason);
    EXPECT_TRUE(calls_of(events).ends_with(made.finish)) << calls_of(events);
    EXPECT_EQ(events.find("<｜"), std::string::npos);

    Rendered whole = chat_with_calls();
    for (const int32_t id : api::tests::demo_tokenizer()->encode(made.output)) {
      const core::SampledToken token{.token = id};
      whole.choices[0].push({&token, 1}, /*last_is_stop_token=*/false);
    }
    engine::RequestEnd end;
    end.reason = made.reason;
    whole.choices[0].end(end);
    const json::Value body = json::parse(whole.body()).value();
    const json::Value& choice = body["choices"][0];
    EXPECT_EQ(choice["finish_reason"].get<std::string>(), made.finish);
    EXPECT_TRUE(choice["message"]["content"].is_null());
    EXPECT_FALSE(choice["message"]["tool_calls"].empty());
    EXPECT_TRUE(
        choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>().starts_with(
            "{"));
  }
}

TEST(Renderer, streams_completions_with_usage_last_and_never_an_empty_choice_before) {
  api::ShownForm form = shown_form(api::Endpoint::kCompletions);
  form.include_usage = true;
  Rendered completion(form);
  const std::string start = R"(data: {"id":"id","object":"text_completion","created":7,)"
                            R"("model":"demo","choices":[)";
  EXPECT_EQ(completion.stream("a"),
            start + R"({"index":0,"text":"a","logprobs":null,"finish_reason":null,)"
                    R"("matched_stop":null}],"usage":null})"
                    "\n\n");
  EXPECT_EQ(completion.end(core::FinishReason::kLength),
            start +
                R"({"index":0,"text":"","logprobs":null,"finish_reason":"length",)"
                R"("matched_stop":null}],"usage":null})"
                "\n\n" +
                start +
                R"(],"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1,)"
                R"("prompt_tokens_details":{"cached_tokens":0},)"
                R"("completion_tokens_details":{"reasoning_tokens":0},"reasoning_tokens":0}})"
                "\n\ndata: [DONE]\n\n");
}

TEST(Renderer, a_native_event_repeats_the_whole_text_and_ids) {
  Rendered native(shown_form(api::Endpoint::kGenerate));
  const std::vector<int32_t> ids = api::tests::demo_tokenizer()->encode("a");
  ASSERT_EQ(ids.size(), 1u);
  const std::string id = std::to_string(ids[0]);
  native.stream("a");
  EXPECT_EQ(native.stream("a"),
            R"(data: {"text":"aa","output_ids":[)" + id + "," + id +
                R"(],"meta_info":{"id":"rid","finish_reason":null,"prompt_tokens":5,)"
                R"("weight_version":"default","num_retractions":0,"reasoning_tokens":0,)"
                R"("completion_tokens":2,"cached_tokens":0,"cached_tokens_details":null,)"
                R"("dp_rank":null}})"
                "\n\n");
}

TEST(Renderer, a_native_answer_says_at_its_end_what_drafts_did) {
  Rendered native(shown_form(api::Endpoint::kGenerate));
  EXPECT_EQ(native.stream("How are").find("spec_"), std::string::npos);
  engine::RequestEnd end;
  end.reason = core::FinishReason::kLength;
  end.speculation = {.num_verify_steps = 4,
                     .num_drafts_proposed = 12,
                     .num_drafts_verified = 10,
                     .num_drafts_accepted = 5,
                     .accept_histogram = {1, 2, 0, 1}};
  native.choices[0].end(end);
  std::string events;
  native.renderer->write_news(native.choices[0], events);
  EXPECT_NE(events.find(R"("spec_accept_rate":0.5,"spec_accept_length":2.25,"spec_verify_ct":4,)"
                        R"("spec_accept_token_num":5,"spec_num_correct_drafts":5,)"
                        R"("spec_draft_token_num":10,"spec_num_proposed_drafts":10,)"
                        R"("spec_accept_histogram":[1,2,0,1],)"
                        R"("spec_correct_drafts_histogram":[1,2,0,1]})"),
            std::string::npos)
      << events;
}

TEST(JsonText, escapes_what_json_wants_escaped_and_nothing_else) {
  std::string out;
  append_json(out, std::string_view("a\"\\\n\x01\x7f/\xc3\xa9"));
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\u0001\\u007f/\xc3\xa9\"");
}

TEST(JsonText, writes_an_infinite_log_probability_as_openai_does) {
  std::string out;
  append_json(out, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(out, "-9999");
}

}  // namespace
}  // namespace fathom::answer
