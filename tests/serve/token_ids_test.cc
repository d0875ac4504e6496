// Token ids and the prompt's log-probabilities in the answers of chat and completions, against what /tokenize and the
// native API say of the same request.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value chat_with_ids() {
  return {{"messages", {{{"role", "user"}, {"content", "How many apples are left?"}}}},
          {"temperature", 0},
          {"max_tokens", 24},
          {"ignore_eos", true},
          {"return_token_ids", true}};
}

json::Value completion_with_ids() {
  return {{"prompt", "How many apples are left?"},
          {"temperature", 0},
          {"max_tokens", 24},
          {"ignore_eos", true},
          {"return_token_ids", true}};
}

json::Value prompt_ids(SimServer& server, const json::Value& body) {
  const char* key = body.contains("messages") ? "messages" : "prompt";
  return server.post_json("/tokenize", {{key, body[key]}})["tokens"];
}

// The native answer to the same prompt.
json::Value native_answer(SimServer& server, const json::Value& ids) {
  return server.post_json(
      "/generate",
      {{"input_ids", ids},
       {"return_logprob", true},
       {"logprob_start_len", 0},
       {"top_logprobs_num", 3},
       {"return_text_in_logprobs", true},
       {"sampling_params", {{"temperature", 0}, {"max_new_tokens", 24}, {"ignore_eos", true}}}});
}

void append_to(json::Value& list, const json::Value& more) {
  if (more.is_array()) list.insert(list.end(), more.begin(), more.end());
}

TEST(TokenIds, of_chat_are_those_of_tokenize_and_generate) {
  SimServer server;
  const json::Value ids = prompt_ids(server, chat_with_ids());
  const json::Value answer = server.post_json("/v1/chat/completions", chat_with_ids());
  EXPECT_EQ(answer["prompt_token_ids"], ids);
  EXPECT_EQ(answer["choices"][0]["token_ids"], native_answer(server, ids)["output_ids"]);
  EXPECT_EQ(answer["choices"][0]["token_ids"].size(), 24U);

  json::Value streamed = json::Value::array();
  int num_prompts = 0;
  for (const json::Value& event : server.post_stream("/v1/chat/completions", chat_with_ids())) {
    if (!event.is_object()) continue;
    if (event.contains("prompt_token_ids")) {
      ++num_prompts;
      EXPECT_EQ(event["prompt_token_ids"], ids);
    }
    append_to(streamed, event["choices"][0]["token_ids"]);
  }
  EXPECT_EQ(num_prompts, 1);
  EXPECT_EQ(streamed, answer["choices"][0]["token_ids"]);
}

TEST(TokenIds, of_completions_belong_to_each_choice) {
  SimServer server;
  json::Value body = completion_with_ids();
  const json::Value ids = prompt_ids(server, body);
  const json::Value expected = native_answer(server, ids)["output_ids"];
  json::Value streamed = json::Value::array(), streamed_prompt;
  for (const json::Value& event : server.post_stream("/v1/completions", body)) {
    if (!event.is_object()) continue;
    const json::Value& choice = event["choices"][0];
    append_to(streamed, choice["token_ids"]);
    if (!choice["prompt_token_ids"].is_null()) streamed_prompt = choice["prompt_token_ids"];
  }
  EXPECT_EQ(streamed, expected);
  EXPECT_EQ(streamed_prompt, ids);
  body["prompt"] = json::Value::array({ids, {5, 6, 7}});
  const json::Value answer = server.post_json("/v1/completions", body);
  EXPECT_EQ(answer["choices"][0]["prompt_token_ids"], ids);
  EXPECT_EQ(answer["choices"][0]["token_ids"], expected);
  EXPECT_EQ(answer["choices"][1]["prompt_token_ids"], (json::Value{5, 6, 7}));
  EXPECT_EQ(answer["choices"][1]["token_ids"], native_answer(server, {5, 6, 7})["output_ids"]);
}

TEST(TokenIds, of_native_prompts_come_once_with_the_end_of_each_answer) {
  SimServer server;
  json::Value body = {{"text", {"How many apples are left?", "apples"}},
                      {"return_prompt_token_ids", true},
                      {"sampling_params", {{"max_new_tokens", 4}, {"n", 2}, {"ignore_eos", true}}}};
  const auto ids_of = [&](size_t choice) {
    return prompt_ids(server, {{"prompt", body["text"][choice / 2]}});
  };
  const json::Value answers = server.post_json("/generate", body);
  ASSERT_EQ(answers.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(answers[i]["prompt_token_ids"], ids_of(i));
  std::vector<int> num_shown(4, 0);
  for (const json::Value& event : server.post_stream("/generate", body)) {
    if (!event.is_object()) continue;
    EXPECT_EQ(event.contains("prompt_token_ids"), !event["meta_info"]["finish_reason"].is_null());
    if (!event.contains("prompt_token_ids")) continue;
    const auto choice = event["index"].get<size_t>();
    EXPECT_EQ(event["prompt_token_ids"], ids_of(choice));
    ++num_shown[choice];
  }
  EXPECT_EQ(num_shown, std::vector<int>(4, 1));
}

TEST(TokenIds, are_not_there_unless_asked_for) {
  SimServer server;
  EXPECT_FALSE(native_answer(server, {5, 6, 7}).contains("prompt_token_ids"));
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    json::Value body =
        std::string_view(path) == "/v1/completions" ? completion_with_ids() : chat_with_ids();
    body.erase("return_token_ids");
    for (const char* name : {"token_ids", "prompt_logprobs"}) {
      EXPECT_EQ(server.post(path, body).body.find(name), std::string::npos) << path << name;
    }
  }
}

// What vLLM's form must hold for the native entries [value, id, text] of one position.
void expect_prompt_entry(const json::Value& entry, const json::Value& own, const json::Value& tops,
                         size_t num_top) {
  const std::string id = std::to_string(own[1].get<int>());
  ASSERT_TRUE(entry.contains(id)) << json::dump(entry);
  EXPECT_EQ(entry[id]["logprob"], own[0]);
  EXPECT_EQ(entry[id]["decoded_token"], own[2]);
  bool is_top = false;
  for (size_t i = 0; i < num_top; ++i) {
    const std::string top = std::to_string(tops[i][1].get<int>());
    ASSERT_TRUE(entry.contains(top));
    EXPECT_EQ(entry[top]["logprob"], tops[i][0]);
    EXPECT_EQ(entry[top]["rank"], i + 1);
    is_top = is_top || top == id;
  }
  EXPECT_EQ(entry.size(), num_top + (is_top ? 0 : 1));
  if (!is_top) {
    EXPECT_TRUE(entry[id]["rank"].is_null());
  }
}

TEST(PromptLogprobs, are_those_of_the_native_api) {
  SimServer server;
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    const bool is_chat = std::string_view(path) == "/v1/chat/completions";
    json::Value body = is_chat ? chat_with_ids() : completion_with_ids();
    const json::Value ids = prompt_ids(server, body);
    const json::Value native = native_answer(server, ids)["meta_info"];
    for (const size_t num_top : {3U, 0U}) {
      SCOPED_TRACE(path + std::to_string(num_top));
      body["prompt_logprobs"] = num_top;
      const json::Value answer = server.post_json(path, body);
      const json::Value& shown =
          is_chat ? answer["prompt_logprobs"] : answer["choices"][0]["prompt_logprobs"];
      ASSERT_EQ(shown.size(), ids.size());
      EXPECT_TRUE(shown[0].is_null());
      for (size_t i = 1; i < shown.size(); ++i) {
        expect_prompt_entry(shown[i], native["input_token_logprobs"][i],
                            native["input_top_logprobs"][i], num_top);
      }
      EXPECT_TRUE(answer["choices"][0]["logprobs"].is_null());
    }
    body["stream"] = true;
    const client::ClientResponse refused = server.post(path, body);
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(json::parse(refused.body).value()["error"]["param"], "prompt_logprobs");
  }
}

TEST(TokensAsTokenIds, name_every_token_by_its_id) {
  SimServer server;
  json::Value body = chat_with_ids();
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const json::Value plain = server.post_json("/v1/chat/completions", body)["choices"][0];
  body["return_tokens_as_token_ids"] = true;
  const json::Value named = server.post_json("/v1/chat/completions", body)["choices"][0];
  const auto name_of = [](const json::Value& id) {
    return "token_id:" + std::to_string(id.get<int>());
  };
  for (size_t i = 0; i < 24; ++i) {
    const json::Value& entry = named["logprobs"]["content"][i];
    const json::Value& as_text = plain["logprobs"]["content"][i];
    EXPECT_EQ(entry["token"], name_of(named["token_ids"][i]));
    EXPECT_EQ(entry["bytes"], as_text["bytes"]);
    EXPECT_EQ(entry["logprob"], as_text["logprob"]);
    for (size_t j = 0; j < 2; ++j) {
      EXPECT_EQ(entry["top_logprobs"][j]["bytes"], as_text["top_logprobs"][j]["bytes"]);
      EXPECT_TRUE(entry["top_logprobs"][j]["token"].get<std::string>().starts_with("token_id:"));
    }
  }
  json::Value completion = completion_with_ids();
  completion["logprobs"] = 1;
  const json::Value texts = server.post_json("/v1/completions", completion)["choices"][0];
  completion["return_tokens_as_token_ids"] = true;
  const json::Value names = server.post_json("/v1/completions", completion)["choices"][0];
  EXPECT_EQ(names["logprobs"]["text_offset"], texts["logprobs"]["text_offset"]);
  for (size_t i = 0; i < 24; ++i) {
    const std::string name = name_of(names["token_ids"][i]);
    EXPECT_EQ(names["logprobs"]["tokens"][i], name);
    EXPECT_TRUE(names["logprobs"]["top_logprobs"][i].contains(name));
  }
}

TEST(TokenStrs, are_the_vocabularys_own) {
  SimServer server;
  std::ifstream file(source_path("models/demo/tokenizer.json"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const json::Value vocabulary =
      json::parse(text, {.max_bytes = 16 << 20}).value()["model"]["vocab"];
  const json::Value answer = server.post_json("/tokenize", {{"prompt", "apples are left 梨"},
                                                            {"add_special_tokens", false},
                                                            {"return_token_strs", true}});
  ASSERT_EQ(answer["token_strs"].size(), answer["tokens"].size());
  for (size_t i = 0; i < answer["tokens"].size(); ++i) {
    EXPECT_EQ(vocabulary[answer["token_strs"][i].get<std::string>()], answer["tokens"][i]);
  }
  const json::Value two =
      server.post_json("/tokenize", {{"prompt", {"apples", "left"}}, {"return_token_strs", true}});
  EXPECT_EQ(two["token_strs"].size(), 2U);
  EXPECT_EQ(two["token_strs"][0].size(), two["tokens"][0].size());
  EXPECT_FALSE(server.post_json("/tokenize", {{"prompt", "a"}}).contains("token_strs"));
}

}  // namespace
}  // namespace fathom::serve
