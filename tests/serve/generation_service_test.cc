#include "answer/generation_service.h"

#include <gtest/gtest.h>

#include <future>
#include <random>
#include <utility>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value native(const json::Value& sampling, const std::string& text = "Some apples") {
  json::Value body = {{"text", text}, {"sampling_params", sampling}};
  body["sampling_params"]["temperature"] = 0;
  return body;
}

json::Value completion(const std::string& prompt, int max_tokens) {
  return {{"model", "demo"}, {"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}};
}

TEST(GenerationService, a_native_stream_ends_with_what_the_whole_answer_holds) {
  SimServer server;
  const json::Value body = native({{"max_new_tokens", 40}, {"ignore_eos", true}});
  const json::Value whole = server.post_json("/generate", body);
  const std::vector<json::Value> events = server.post_stream("/generate", body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(events[0]["meta_info"]["completion_tokens"], 1);
  std::string text;
  size_t num_ids = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const std::string now = events[i]["text"];
    EXPECT_TRUE(now.starts_with(text)) << "the text is cumulative";
    text = now;
    EXPECT_GT(events[i]["output_ids"].size(), num_ids);
    num_ids = events[i]["output_ids"].size();
    EXPECT_EQ(events[i]["meta_info"]["finish_reason"].is_null(), i + 2 < events.size());
  }
  EXPECT_EQ(text, whole["text"]);
  EXPECT_EQ(events[events.size() - 2]["output_ids"], whole["output_ids"]);
  EXPECT_EQ(whole["meta_info"]["completion_tokens"], 40);
  EXPECT_EQ(whole["meta_info"]["finish_reason"], (json::Value{{"type", "length"}, {"length", 40}}));
}

TEST(GenerationService, streams_and_whole_answers_agree_for_random_stop_strings) {
  SimServer server;
  constexpr uint64_t kSeed = 4711;
  std::mt19937_64 random(kSeed);
  for (int run = 0; run < 40; ++run) {
    const std::string prompt = "apples " + std::to_string(random() % 1000);
    json::Value body = completion(prompt, 60);
    body["ignore_eos"] = true;
    const std::string all = server.post_json("/v1/completions", body)["choices"][0]["text"];
    ASSERT_FALSE(all.empty());
    // A piece of the text that begins and ends at whole characters.
    const auto is_boundary = [&](size_t i) {
      return i == all.size() || (static_cast<unsigned char>(all[i]) & 0xc0) != 0x80;
    };
    size_t begin = random() % all.size();
    while (!is_boundary(begin)) --begin;
    size_t end = std::min(all.size(), begin + 1 + random() % 6);
    while (!is_boundary(end)) ++end;
    const std::string stop = all.substr(begin, end - begin);
    body["stop"] = {stop};
    const std::string expected = all.substr(0, all.find(stop));
    const json::Value whole = server.post_json("/v1/completions", body);
    EXPECT_EQ(whole["choices"][0]["text"], expected) << "seed " << kSeed << " run " << run;
    EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(whole["choices"][0]["matched_stop"], stop);
    body["stream_options"] = {{"include_usage", true}};
    const std::vector<json::Value> events = server.post_stream("/v1/completions", body);
    ASSERT_GE(events.size(), 3u);
    std::string streamed;
    for (size_t i = 0; i + 2 < events.size(); ++i) {
      ASSERT_EQ(events[i]["choices"].size(), 1u);
      streamed += events[i]["choices"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(streamed, expected) << "seed " << kSeed << " run " << run;
    const json::Value& usage = events[events.size() - 2];
    EXPECT_TRUE(usage["choices"].empty());
    EXPECT_EQ(usage["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
  }
}

TEST(GenerationService, token_ids_and_counts_end_with_the_token_that_completed_the_stop_string) {
  SimServer server;
  json::Value sampling = {{"max_new_tokens", 30}, {"ignore_eos", true}};
  const json::Value all = server.post_json("/generate", native(sampling));
  const json::Value ids = all["output_ids"];
  // The text of the first tokens, as the stop string: exactly these tokens complete it. A length is taken
  // whose last token ends at a whole character.
  size_t num_tokens = 0;
  std::string text, shorter;
  while (num_tokens < 4 || text == shorter || text.ends_with("\xef\xbf\xbd")) {
    ASSERT_LT(num_tokens, ids.size());
    ++num_tokens;
    const json::Value first(
        std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(num_tokens)));
    shorter = std::exchange(text, server.post_json("/detokenize", {{"tokens", first}})["text"]);
  }
  sampling["stop"] = {text};
  json::Value body = native(sampling);
  body["return_logprob"] = true;
  const json::Value stopped = server.post_json("/generate", body);
  EXPECT_EQ(stopped["text"], "");
  EXPECT_EQ(stopped["output_ids"].size(), num_tokens);
  EXPECT_EQ(stopped["meta_info"]["completion_tokens"], stopped["output_ids"].size());
  EXPECT_EQ(stopped["meta_info"]["output_token_logprobs"].size(), stopped["output_ids"].size());
  EXPECT_EQ(stopped["meta_info"]["finish_reason"],
            (json::Value{{"type", "stop"}, {"matched", text}}));
}

TEST(GenerationService, choices_of_one_prompt_differ_and_come_again_with_the_same_seed) {
  SimServer server;
  json::Value body = completion("apples", 12);
  body["temperature"] = 1.0;
  body["seed"] = 5;
  body["n"] = 3;
  body["ignore_eos"] = true;
  const json::Value first = server.post_json("/v1/completions", body);
  ASSERT_EQ(first["choices"].size(), 3u);
  EXPECT_NE(first["choices"][0]["text"], first["choices"][1]["text"]);
  EXPECT_NE(first["choices"][1]["text"], first["choices"][2]["text"]);
  EXPECT_EQ(first["usage"]["completion_tokens"], 36);
  const json::Value again = server.post_json("/v1/completions", body);
  EXPECT_EQ(first["choices"], again["choices"]);
  EXPECT_EQ(first["usage"]["prompt_tokens"], again["usage"]["prompt_tokens"]);
  // Choice k alone, by its seed.
  body["n"] = 1;
  body["seed"] = 7;
  EXPECT_EQ(server.post_json("/v1/completions", body)["choices"][0]["text"],
            first["choices"][2]["text"]);
}

TEST(GenerationService, items_of_a_native_batch_are_told_apart_by_their_index) {
  SimServer server;
  json::Value body = {{"input_ids", {{3, 4, 5}, {6, 7}, {8}}},
                      {"sampling_params",
                       {{"temperature", 0},
                        {"max_new_tokens", 9},
                        {"ignore_eos", true},
                        {"stream_interval", 1},
                        {"json_schema", nullptr}}}};
  const json::Value whole = server.post_json("/generate", body);
  ASSERT_EQ(whole.size(), 3u);
  std::vector<json::Value> last(3);
  std::vector<bool> saw_first(3);
  for (const json::Value& event : server.post_stream("/generate", body)) {
    if (event == "[DONE]") continue;
    const size_t index = event["index"];
    if (event["meta_info"]["completion_tokens"] == 1) saw_first[index] = true;
    last[index] = event;
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(saw_first[i]) << "clients take the time to first token from completion_tokens == 1";
    EXPECT_EQ(last[i]["text"], whole[i]["text"]);
    EXPECT_EQ(last[i]["output_ids"], whole[i]["output_ids"]);
  }
}

TEST(GenerationService, chat_streams_the_role_first_then_content_then_the_end) {
  SimServer server;
  const json::Value body = {{"model", "demo"},
                            {"messages", {{{"role", "user"}, {"content", "apples"}}}},
                            {"temperature", 0},
                            {"max_tokens", 20},
                            {"ignore_eos", true}};
  const json::Value whole = server.post_json("/v1/chat/completions", body);
  const std::vector<json::Value> events = server.post_stream("/v1/chat/completions", body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  std::string content;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json::Value& delta = events[i]["choices"][0]["delta"];
    EXPECT_TRUE(delta.contains("reasoning_content"));
    if (delta.contains("content")) content += delta["content"].get<std::string>();
  }
  EXPECT_EQ(content, whole["choices"][0]["message"]["content"]);
  const json::Value& end = events[events.size() - 2]["choices"][0];
  EXPECT_EQ(end["finish_reason"], "length");
  EXPECT_FALSE(end["delta"].contains("content"));
  EXPECT_EQ(whole["usage"]["completion_tokens"], 20);
}

TEST(GenerationService, an_aborted_request_ends_with_abort) {
  SimServer server({.step_delay = std::chrono::milliseconds(2)});
  json::Value body = native({{"max_new_tokens", 5000}, {"ignore_eos", true}});
  body["rid"] = "my-request";
  std::promise<std::string> received;
  server.client().send(
      {.method = "POST", .url = server.url("/generate"), .body = json::dump(body)},
      {.on_done = [&](const auto& response) { received.set_value(response.body); }});
  ASSERT_TRUE(server.eventually([&] { return server.engine().snapshot().num_running > 0; }));
  EXPECT_EQ(server.post("/abort_request", {{"rid", "my-request"}}).status, 200);
  const json::Value answer = json::parse(received.get_future().get()).value();
  EXPECT_EQ(answer["meta_info"]["finish_reason"]["type"], "abort");
  EXPECT_EQ(answer["meta_info"]["id"], "my-request");
  EXPECT_EQ(server.post("/abort_request", {{"rid", ""}}).status, 400);
}

TEST(GenerationService, clients_that_vanish_leave_nothing_behind_streaming_or_not) {
  SimServer server({.step_delay = std::chrono::milliseconds(1)});
  std::vector<client::Client::RequestId> ids;
  for (int i = 0; i < 24; ++i) {  // more than there are slots: some are still queued
    json::Value body = native({{"max_new_tokens", 5000}, {"ignore_eos", true}, {"n", 1 + i % 2}});
    body["stream"] = i % 3 == 0;
    ids.push_back(server.client().send(
        {.method = "POST", .url = server.url("/generate"), .body = json::dump(body)}, {}));
  }
  ASSERT_TRUE(server.eventually([&] { return server.api().num_open_requests() == 24; }));
  for (const auto id : ids) server.client().cancel(id);
  EXPECT_TRUE(server.eventually([&] { return server.is_idle(); }));
  EXPECT_EQ(server.api().num_open_requests(), 0);
  EXPECT_EQ(server.get("/flush_cache").status, 200);
}

TEST(GenerationService, a_batch_that_does_not_fit_the_queue_is_refused_whole) {
  SimServer server(
      {.max_slots = 2, .max_queued_requests = 4, .step_delay = std::chrono::milliseconds(5)});
  json::Value body = native({{"max_new_tokens", 50}, {"n", 32}, {"ignore_eos", true}});
  const client::ClientResponse refused = server.post("/generate", body);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_TRUE(server.eventually([&] { return server.is_idle(); }));
  EXPECT_EQ(server.post("/generate", native({{"max_new_tokens", 2}})).status, 200);
}

TEST(GenerationService, echo_puts_the_prompt_and_its_logprobs_first) {
  SimServer server;
  json::Value body = completion("How many apples", 4);
  body["echo"] = true;
  body["logprobs"] = 1;
  body["ignore_eos"] = true;
  const json::Value answer = server.post_json("/v1/completions", body);
  const json::Value& choice = answer["choices"][0];
  EXPECT_TRUE(choice["text"].get<std::string>().starts_with("How many apples"));
  const json::Value& logprobs = choice["logprobs"];
  const size_t num_tokens = answer["usage"]["total_tokens"];
  EXPECT_EQ(logprobs["tokens"].size(), num_tokens);
  EXPECT_EQ(logprobs["token_logprobs"].size(), num_tokens);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["token_logprobs"][1].is_number());
}

// Every token's text stands at its offset, and what the text does not hold takes no place in it.
void expect_offsets_in_text(const json::Value& choice) {
  const std::string text = choice["text"];
  const json::Value& logprobs = choice["logprobs"];
  ASSERT_GE(logprobs["tokens"].size(), 3u);
  for (size_t i = 0; i < logprobs["tokens"].size(); ++i) {
    const std::string token = logprobs["tokens"][i];
    if (token.starts_with("<｜")) continue;
    EXPECT_TRUE(std::string_view(text).substr(logprobs["text_offset"][i]).starts_with(token))
        << token << " at " << logprobs["text_offset"][i] << " of " << text;
  }
}

TEST(GenerationService, an_echo_holds_no_start_token_and_offsets_do_not_count_it) {
  SimServer server;
  json::Value body = completion("How many apples", 0);
  body["echo"] = true;
  body["logprobs"] = 0;
  const json::Value of_text = server.post_json("/v1/completions", body)["choices"][0];
  EXPECT_EQ(of_text["text"], "How many apples");
  EXPECT_TRUE(of_text["logprobs"]["tokens"][0].get<std::string>().starts_with("<｜begin"));
  EXPECT_EQ(of_text["logprobs"]["text_offset"][1], 0);
  expect_offsets_in_text(of_text);
  body["prompt"] = server.post_json("/tokenize", {{"prompt", "How many apples"}})["tokens"];
  const json::Value of_ids = server.post_json("/v1/completions", body)["choices"][0];
  EXPECT_EQ(of_ids["text"], "How many apples");
  EXPECT_EQ(of_ids["logprobs"], of_text["logprobs"]);
  body["skip_special_tokens"] = false;
  const json::Value with_specials = server.post_json("/v1/completions", body)["choices"][0];
  EXPECT_EQ(with_specials["text"], "<｜begin▁of▁sentence｜>How many apples");
  EXPECT_GT(with_specials["logprobs"]["text_offset"][1], 0);
}

TEST(GenerationService, a_rid_belongs_to_one_live_request) {
  SimServer server({.step_delay = std::chrono::milliseconds(5)});
  json::Value body = native({{"max_new_tokens", 400}, {"ignore_eos", true}});
  body["rid"] = "mine";
  auto first =
      std::async(std::launch::async, [&] { return server.post("/generate", body).status; });
  ASSERT_TRUE(server.eventually([&] { return !server.is_idle(); }));
  const client::ClientResponse second = server.post("/generate", body);
  EXPECT_EQ(second.status, 400) << second.body;
  EXPECT_EQ(json::parse(second.body).value()["error"]["param"], "rid");
  EXPECT_NE(second.body.find("mine"), std::string::npos);
  json::Value chat = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"rid", "mine"}};
  EXPECT_EQ(server.post("/v1/chat/completions", chat).status, 400);
  EXPECT_EQ(first.get(), 200);
}

// As soon as the answer has been read: whole, streamed, refused.
TEST(GenerationService, a_rid_is_free_when_its_answer_has_come) {
  SimServer server;
  json::Value body = native({{"max_new_tokens", 2}});
  body["rid"] = "mine";
  json::Value streamed = body, refused = body;
  streamed["stream"] = true;
  refused["sampling_params"]["regex"] = "(a";
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(server.post("/generate", body).status, 200) << i;
    ASSERT_EQ(server.post("/generate", refused).status, 400) << i;
    ASSERT_EQ(server.post("/generate", streamed).status, 200) << i;
  }
}

}  // namespace
}  // namespace fathom::serve
