// Answers in the Responses form: what a stream builds up, item by item, is what its last event and the whole answer
// say.

#include "answer/responses_renderer.h"

#include <gtest/gtest.h>

#include "api/responses/response_draft.h"
#include "base/json.h"
#include "tests/answer/fed_answer.h"

namespace fathom::answer {
namespace {

using core::FinishReason;

api::ShownForm response_form() {
  api::ShownForm form = tests::shown_form(api::Endpoint::kResponses, "resp_1");
  form.response = std::make_shared<api::ResponseDraft>();
  form.response->settings = R"("tools":[])";
  form.response->messages = {{.role = "user", .content = "hi"}};
  return form;
}

struct FedResponse : tests::FedAnswer {
  explicit FedResponse(const api::ShownForm& form = response_form())
      : FedAnswer(form, tests::parsed_choice({.starts_in_reasoning = true})) {
    form.response->keep = [this](const std::string& id, api::StoredResponse response) {
      EXPECT_EQ(id, "resp_1");
      stored = std::move(response);
    };
  }

  api::StoredResponse stored;
};

// Builds the output of a stream from its deltas and checks every event that repeats a part of it.
class ResponseReader {
 public:
  // The response of the last event.
  json::Value read(const std::string& bytes) {
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t line_end = bytes.find('\n', begin), end = bytes.find("\n\n", begin);
      const std::string name = bytes.substr(begin + 7, line_end - begin - 7);
      const json::Value data = json::parse(bytes.substr(line_end + 7, end - line_end - 7)).value();
      EXPECT_EQ(data["type"].get<std::string>(), name);
      EXPECT_EQ(data["sequence_number"].get<int>(), num_events_++) << name;
      take(name, data);
      begin = end + 2;
    }
    EXPECT_EQ(last_["output"], output_);
    return last_;
  }

 private:
  json::Value& item(const json::Value& data) {
    json::Value& found = output_.at(data["output_index"].get<size_t>());
    EXPECT_EQ(data.value("item_id", found["id"]), found["id"]);
    return found;
  }
  void take(const std::string& name, const json::Value& data) {
    if (name == "response.created" || name == "response.in_progress") {
      EXPECT_EQ(data["response"]["status"].get<std::string>(), "in_progress");
      EXPECT_TRUE(data["response"]["output"].empty());
    } else if (name == "response.output_item.added") {
      EXPECT_EQ(data["output_index"].get<size_t>(), output_.size());
      output_.push_back(data["item"]);
    } else if (name == "response.content_part.added") {
      item(data)["content"].push_back(data["part"]);
    } else if (name == "response.output_text.delta" || name == "response.reasoning_text.delta") {
      append(item(data)["content"][0]["text"], data["delta"]);
      if (data.contains("logprobs")) {
        for (const json::Value& token : data["logprobs"])
          item(data)["content"][0]["logprobs"].push_back(token);
      }
    } else if (name == "response.custom_tool_call_input.delta") {
      append(item(data)["input"], data["delta"]);
    } else if (name == "response.custom_tool_call_input.done") {
      EXPECT_EQ(item(data)["input"], data["input"]);
    } else if (name == "response.output_text.done" || name == "response.reasoning_text.done") {
      EXPECT_EQ(item(data)["content"][0]["text"], data["text"]);
      EXPECT_EQ(item(data)["content"][0].value("logprobs", json::Value()),
                data.value("logprobs", json::Value()));
    } else if (name == "response.content_part.done") {
      EXPECT_EQ(item(data)["content"][0], data["part"]);
    } else if (name == "response.function_call_arguments.delta") {
      append(item(data)["arguments"], data["delta"]);
    } else if (name == "response.function_call_arguments.done") {
      EXPECT_EQ(item(data)["arguments"], data["arguments"]);
    } else if (name == "response.output_item.done") {
      item(data)["status"] = data["item"]["status"];
      // Behind the text, so that it comes with the whole of it.
      if (data["item"].contains("encrypted_content")) {
        item(data).erase("status");
        item(data)["encrypted_content"] = data["item"]["encrypted_content"];
        item(data)["status"] = data["item"]["status"];
      }
      EXPECT_EQ(item(data), data["item"]);
    } else {
      EXPECT_TRUE(name == "response.completed" || name == "response.incomplete") << name;
      EXPECT_TRUE(last_.is_null());
      last_ = data["response"];
    }
  }
  static void append(json::Value& target, const json::Value& piece) {
    target = target.get<std::string>() + piece.get<std::string>();
  }

  json::Value output_ = json::Value::array(), last_;
  int num_events_ = 0;
};

// Ids are drawn.
json::Value without_drawn_ids(json::Value response) {
  for (json::Value& item : response["output"]) {
    item["id"] = item["id"].get<std::string>().substr(0, 3);
    if (item.contains("call_id")) item["call_id"] = item["call_id"].get<std::string>().substr(0, 5);
  }
  return response;
}

struct ResponseCase {
  std::string output;
  FinishReason reason;
  std::string items, status, details;  // items as JSON
};

std::vector<ResponseCase> response_cases() {
  const auto call = [](const std::string& arguments) {
    return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>" + arguments;
  };
  const std::string end = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  const auto text_item = [](const char* text, const char* status) {
    return R"({"id":"msg","type":"message","role":"assistant","content":[{"type":"output_text","text":")" +
           std::string(text) + R"(","annotations":[],"logprobs":[]}],"status":")" + status + "\"}";
  };
  const auto thought = [](const char* status) {
    return R"({"id":"rs_","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],"status":")" +
           std::string(status) + "\"}";
  };
  const auto call_item = [](const char* arguments, const char* status) {
    return R"({"id":"fc_","type":"function_call","call_id":"call_","name":"get","arguments":")" +
           std::string(arguments) + R"(","status":")" + status + "\"}";
  };
  const std::string cut = R"({"reason":"max_output_tokens"})";
  return {
      {"hm</think>Hello", FinishReason::kStop,
       "[" + thought("completed") + "," + text_item("Hello", "completed") + "]", "completed",
       "null"},
      {"hm</think>Hello", FinishReason::kLength,
       "[" + thought("completed") + "," + text_item("Hello", "incomplete") + "]", "incomplete",
       cut},
      {"hm", FinishReason::kLength, "[" + thought("incomplete") + "]", "incomplete", cut},
      {"</think>", FinishReason::kStop, "[]", "completed", "null"},
      {"</think>I look." + call("{}") + end, FinishReason::kStop,
       "[" + text_item("I look.", "completed") + "," + call_item("{}", "completed") + "]",
       "completed", "null"},
      {"</think>" + call("{\"a"), FinishReason::kLength,
       "[" + call_item(R"({\"a)", "incomplete") + "]", "incomplete", cut},
      {"</think>a", FinishReason::kCancelled, "[" + text_item("a", "incomplete") + "]",
       "incomplete", R"({"reason":"abort"})"},
  };
}

TEST(ResponsesRenderer, streams_the_items_of_the_whole_answer_however_it_is_cut) {
  for (const ResponseCase& c : response_cases()) {
    SCOPED_TRACE(c.output);
    FedResponse whole;
    whole.feed(c.output, 0);
    whole.end(c.reason);
    const std::string body = whole.body();
    EXPECT_EQ(whole.stored.body, body);
    const json::Value made = without_drawn_ids(json::parse(body).value());
    EXPECT_EQ(json::dump(made["output"]), c.items);
    EXPECT_EQ(made["status"].get<std::string>(), c.status);
    EXPECT_EQ(json::dump(made["incomplete_details"]), c.details);
    for (const size_t step_tokens : {1U, 2U, 5U, 1000U}) {
      FedResponse streamed;
      std::string events = streamed.feed(c.output, step_tokens);
      streamed.end(c.reason);
      events += streamed.last_events();
      EXPECT_EQ(without_drawn_ids(ResponseReader().read(events)), made);
      EXPECT_EQ(events.find("<｜"), std::string::npos) << events;
      EXPECT_EQ(events.find("think>"), std::string::npos) << events;
    }
  }
}

constexpr const char* kMadeCallEnd = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
constexpr const char* kMadeCallBegin = "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>";

// A form whose model sees tools that are no plain functions.
api::ShownForm form_with_kinds() {
  api::ShownForm form = response_form();
  form.tool_kinds = std::make_shared<const api::ToolKinds>(api::ToolKinds{
      {"patch", {.is_custom = true, .name = "patch", .name_space = ""}},
      {"agents__wait", {.is_custom = false, .name = "wait", .name_space = "agents"}}});
  return form;
}

// The response of a stream in steps of each length, which is that of the whole answer.
json::Value response_of(const api::ShownForm& form, const std::string& output,
                        FinishReason reason) {
  FedResponse whole(form);
  whole.feed(output, 0);
  whole.end(reason);
  const json::Value made = without_drawn_ids(json::parse(whole.body()).value());
  for (const size_t step_tokens : {1U, 3U, 1000U}) {
    FedResponse streamed(form);
    std::string events = streamed.feed(output, step_tokens);
    streamed.end(reason);
    events += streamed.last_events();
    EXPECT_EQ(without_drawn_ids(ResponseReader().read(events)), made);
  }
  return made;
}

TEST(ResponsesRenderer, calls_of_custom_tools_have_their_input_and_those_of_namespaces_both_names) {
  const std::string patch = kMadeCallBegin + std::string("patch<｜tool▁sep｜>");
  EXPECT_EQ(
      json::dump(response_of(form_with_kinds(), patch + R"({"input": "a\nb\"c"})" + kMadeCallEnd,
                             FinishReason::kStop)["output"]),
      R"([{"id":"ctc","type":"custom_tool_call","call_id":"call_","name":"patch","input":"a\nb\"c","status":"completed"}])");
  EXPECT_EQ(
      json::dump(response_of(form_with_kinds(), patch + R"({"input": "a\n)",
                             FinishReason::kLength)["output"]),
      R"([{"id":"ctc","type":"custom_tool_call","call_id":"call_","name":"patch","input":"a\n","status":"incomplete"}])");
  EXPECT_EQ(
      json::dump(
          response_of(form_with_kinds(),
                      kMadeCallBegin + std::string("agents__wait<｜tool▁sep｜>{}") + kMadeCallEnd,
                      FinishReason::kStop)["output"]),
      R"([{"id":"fc_","type":"function_call","call_id":"call_","name":"wait","namespace":"agents","arguments":"{}","status":"completed"}])");
}

TEST(ResponsesRenderer, stores_calls_as_the_model_wrote_them) {
  FedResponse made(form_with_kinds());
  made.feed(kMadeCallBegin + std::string(R"(patch<｜tool▁sep｜>{"input": "x"})") + kMadeCallEnd, 0);
  made.end(FinishReason::kStop);
  made.body();
  ASSERT_EQ(made.stored.messages.size(), 2U);
  ASSERT_EQ(made.stored.messages[1].tool_calls.size(), 1U);
  EXPECT_EQ(made.stored.messages[1].tool_calls[0].arguments, R"({"input": "x"})");
}

TEST(ResponsesRenderer, stored_items_are_where_they_stand_in_the_body) {
  FedResponse made;
  made.feed("hm</think>I \"look\".", 0);
  made.end(FinishReason::kStop);
  const json::Value body = json::parse(made.body()).value();
  ASSERT_EQ(made.stored.items.size(), 2U);
  for (size_t i = 0; i < made.stored.items.size(); ++i) {
    const api::StoredItem& item = made.stored.items[i];
    EXPECT_EQ(json::parse(made.stored.body.substr(item.begin, item.size)).value(),
              body["output"][i]);
    EXPECT_EQ(body["output"][i]["id"].get<std::string>(), item.id);
  }
}

TEST(ResponsesRenderer, reasoning_carries_its_text_where_that_is_asked_for) {
  api::ShownForm form = response_form();
  form.response->has_encrypted_reasoning = true;
  const json::Value made = response_of(form, "hm</think>Hello", FinishReason::kStop);
  EXPECT_EQ(made["output"][0]["encrypted_content"].get<std::string>(), "aG0=");
  EXPECT_FALSE(made["output"][1].contains("encrypted_content"));
}

TEST(ResponsesRenderer, log_probabilities_are_those_of_the_tokens_of_each_text) {
  api::ShownForm form = response_form();
  form.logprobs = true;
  const auto choice = [] {
    ChoiceSetup setup = tests::parsed_choice({.starts_in_reasoning = true});
    setup.places_tokens = true;
    return setup;
  };
  const std::string text = "It is grün, \U0001F600!";
  const std::string output = "hm</think>\n\n" + text + std::string(kMadeCallBegin).substr(8) +
                             "get<｜tool▁sep｜>{}" + kMadeCallEnd;
  tests::FedAnswer whole(form, choice());
  whole.feed(output, 0);
  whole.end(FinishReason::kStop);
  const json::Value made = without_drawn_ids(json::parse(whole.body()).value());
  std::string bytes;
  for (const json::Value& token : made["output"][1]["content"][0]["logprobs"]) {
    EXPECT_TRUE(token["top_logprobs"].empty());
    for (const json::Value& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(bytes, text);
  for (const size_t step_tokens : {1U, 2U, 5U}) {
    tests::FedAnswer streamed(form, choice());
    std::string events = streamed.feed(output, step_tokens);
    streamed.end(FinishReason::kStop);
    events += streamed.last_events();
    EXPECT_EQ(without_drawn_ids(ResponseReader().read(events)), made);
  }
}

TEST(ResponsesRenderer, keeps_the_conversation_with_its_answer) {
  FedResponse made;
  made.feed(
      "hm</think>I "
      "look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
      "｜tool▁calls▁end｜>",
      0);
  made.end(FinishReason::kStop);
  const json::Value body = json::parse(made.body()).value();
  ASSERT_EQ(made.stored.messages.size(), 2U);
  EXPECT_EQ(made.stored.messages[0].role, "user");
  const text::Message& answer = made.stored.messages[1];
  EXPECT_EQ(answer.role, "assistant");
  EXPECT_EQ(answer.content, "I look.");
  EXPECT_EQ(answer.reasoning, body["output"][0]["content"][0]["text"].get<std::string>());
  ASSERT_EQ(answer.tool_calls.size(), 1U);
  EXPECT_EQ(answer.tool_calls[0].id, body["output"][2]["call_id"].get<std::string>());
  EXPECT_EQ(answer.tool_calls[0].arguments, "{}");
}

TEST(ResponsesRenderer, a_failure_is_the_last_event) {
  FedResponse made;
  std::string events;
  made.renderer->write_error(api::out_of_memory(), events);
  EXPECT_EQ(events.find("event: response.created\n"), 0U);
  const size_t at = events.rfind("\ndata: ");
  const json::Value last = json::parse(events.substr(at + 7)).value();
  EXPECT_EQ(last["type"].get<std::string>(), "response.failed");
  EXPECT_EQ(last["response"]["status"].get<std::string>(), "failed");
  EXPECT_EQ(last["response"]["error"]["code"].get<std::string>(), "out_of_memory");
  EXPECT_TRUE(made.stored.body.empty());
}

}  // namespace
}  // namespace fathom::answer
