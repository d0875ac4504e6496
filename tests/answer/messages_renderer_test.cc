// Answers in Anthropic's form: the blocks of a stream, put together as its clients do it, are those of the whole
// answer, however the output was cut into steps.

#include "answer/messages_renderer.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/answer/fed_answer.h"

namespace fathom::answer {
namespace {

using core::FinishReason;

ChoiceSetup message_choice(text::OutputParser::Options options, std::vector<std::string> stop) {
  ChoiceSetup setup = tests::parsed_choice(options);
  if (!stop.empty()) {
    setup.stop = std::make_shared<const text::StopStrings>(std::move(stop));
  }
  return setup;
}

struct FedMessage : tests::FedAnswer {
  explicit FedMessage(text::OutputParser::Options options, std::vector<std::string> stop = {})
      : FedAnswer(tests::shown_form(api::Endpoint::kMessages, "msg_1"),
                  message_choice(options, std::move(stop))) {}
};

struct NamedEvent {
  std::string name;
  json::Value data;
};

std::vector<NamedEvent> named_events(const std::string& bytes) {
  std::vector<NamedEvent> events;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t line_end = bytes.find('\n', begin), end = bytes.find("\n\n", begin);
    EXPECT_EQ(bytes.substr(begin, 7), "event: ");
    EXPECT_EQ(bytes.substr(line_end, 7), "\ndata: ");
    events.push_back({.name = bytes.substr(begin + 7, line_end - begin - 7),
                      .data = json::parse(bytes.substr(line_end + 7, end - line_end - 7)).value()});
    EXPECT_EQ(events.back().data["type"].get<std::string>(), events.back().name);
    begin = end + 2;
  }
  return events;
}

void append_text(json::Value& target, const json::Value& piece) {
  target = target.get<std::string>() + piece.get<std::string>();
}

// Puts a stream together as clients do it, checking the order of its events.
class StreamReader {
 public:
  json::Value read(const std::string& bytes) {
    for (const NamedEvent& event : named_events(bytes)) take(event);
    EXPECT_TRUE(stopped_ && !open_);
    return message_;
  }

 private:
  void take(const NamedEvent& event) {
    EXPECT_FALSE(stopped_) << event.name;
    if (event.name == "message_start") {
      EXPECT_TRUE(message_.is_null());
      message_ = event.data["message"];
    } else if (event.name == "content_block_start") {
      EXPECT_FALSE(std::exchange(open_, true));
      EXPECT_EQ(event.data["index"].get<size_t>(), message_["content"].size());
      message_["content"].push_back(event.data["content_block"]);
      input_.clear();
    } else if (event.name == "content_block_delta") {
      EXPECT_TRUE(open_);
      EXPECT_EQ(event.data["index"].get<size_t>() + 1, message_["content"].size());
      take_delta(event.data["delta"], message_["content"].back());
    } else if (event.name == "content_block_stop") {
      EXPECT_TRUE(std::exchange(open_, false));
      json::Value& block = message_["content"].back();
      if (json::is_text(block["type"], "tool_use")) block["input"] = input_of(input_);
    } else if (event.name == "message_delta") {
      for (const char* key : {"stop_reason", "stop_sequence"}) {
        message_[key] = event.data["delta"][key];
      }
      message_["usage"] = event.data["usage"];
    } else if (event.name == "message_stop") {
      stopped_ = true;
    } else {
      EXPECT_EQ(event.name, "ping");
    }
  }

  void take_delta(const json::Value& delta, json::Value& block) {
    const auto type = delta["type"].get<std::string>();
    if (type == "text_delta") append_text(block["text"], delta["text"]);
    if (type == "thinking_delta") append_text(block["thinking"], delta["thinking"]);
    if (type == "signature_delta") block["signature"] = delta["signature"];
    if (type == "input_json_delta") input_ += delta["partial_json"].get<std::string>();
  }

  // As a whole answer has it.
  static json::Value input_of(const std::string& text) {
    const Result<json::Value> input = json::parse(text);
    return input && input->is_object() ? *input : json::Value{{"INVALID_JSON", text}};
  }

  json::Value message_;
  std::string input_;
  bool open_ = false, stopped_ = false;
};

// Calls have ids that were drawn.
json::Value without_ids(json::Value message) {
  for (json::Value& block : message["content"]) {
    if (!block.contains("id")) continue;
    EXPECT_TRUE(block["id"].get<std::string>().starts_with("toolu_"));
    block["id"] = "toolu";
  }
  return message;
}

const std::string kCalls = "<｜tool▁calls▁begin｜>", kEndOfCalls = "<｜tool▁calls▁end｜>";

std::string call_text(const std::string& name, const std::string& arguments) {
  return "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + arguments + "<｜tool▁call▁end｜>";
}

struct MessageCase {
  std::string output;
  FinishReason reason;
  std::string content, stop_reason;  // content as JSON
  std::string stop_sequence = "null";
  std::vector<std::string> stop = {};
};

std::vector<MessageCase> message_cases() {
  const std::string weather = call_text("get", R"({"city": "Oslo"})");
  const std::string get_block =
      R"({"type":"tool_use","id":"toolu","name":"get","input":{"city":"Oslo"}})";
  const std::string thought = R"({"type":"thinking","thinking":"hm","signature":"msg_1"})";
  return {
      {"hm</think>Hello", FinishReason::kStop,
       "[" + thought + R"(,{"type":"text","text":"Hello"}])", R"("end_turn")"},
      {"hm</think>Hello", FinishReason::kLength,
       "[" + thought + R"(,{"type":"text","text":"Hello"}])", R"("max_tokens")"},
      {"hm", FinishReason::kLength, "[" + thought + "]", R"("max_tokens")"},
      {"</think>", FinishReason::kStop, "[]", R"("end_turn")"},
      {"</think>one two END three",
       FinishReason::kStop,
       R"([{"type":"text","text":"one two "}])",
       R"("stop_sequence")",
       R"("END")",
       {"END"}},
      {"hm</think>I look." + kCalls + weather + weather + kEndOfCalls, FinishReason::kStop,
       "[" + thought + R"(,{"type":"text","text":"I look."},)" + get_block + "," + get_block + "]",
       R"("tool_use")"},
      {"</think>" + kCalls + weather + kEndOfCalls, FinishReason::kLength, "[" + get_block + "]",
       R"("max_tokens")"},
      {"</think>" + kCalls + call_text("get", "{,}") + kEndOfCalls, FinishReason::kStop,
       R"([{"type":"tool_use","id":"toolu","name":"get","input":{"INVALID_JSON":"{,}"}}])",
       R"("end_turn")"},
      {"</think>" + kCalls + "<｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"a\": \"b",
       FinishReason::kLength,
       R"([{"type":"tool_use","id":"toolu","name":"get","input":{"INVALID_JSON":"{\"a\": \"b"}}])",
       R"("max_tokens")"},
      {"</think>a", FinishReason::kCancelled, R"([{"type":"text","text":"a"}])", R"("abort")"},
  };
}

TEST(MessagesRenderer, streams_the_blocks_of_the_whole_answer_however_it_is_cut) {
  for (const MessageCase& c : message_cases()) {
    SCOPED_TRACE(c.output);
    FedMessage whole({.starts_in_reasoning = true}, c.stop);
    whole.feed(c.output, 0);
    whole.end(c.reason);
    const json::Value message = without_ids(json::parse(whole.body()).value());
    EXPECT_EQ(json::dump(message["content"]), c.content);
    EXPECT_EQ(json::dump(message["stop_reason"]), c.stop_reason);
    EXPECT_EQ(json::dump(message["stop_sequence"]), c.stop_sequence);
    for (const size_t step_tokens : {1U, 2U, 5U, 1000U}) {
      FedMessage streamed({.starts_in_reasoning = true}, c.stop);
      std::string events = streamed.feed(c.output, step_tokens);
      streamed.end(c.reason);
      events += streamed.last_events();
      EXPECT_EQ(json::dump(without_ids(StreamReader().read(events))), json::dump(message));
      EXPECT_EQ(events.find("<｜"), std::string::npos) << events;
      EXPECT_EQ(events.find("think>"), std::string::npos) << events;
    }
  }
}

TEST(MessagesRenderer, signatures_keep_thoughts_that_are_omitted) {
  const auto fed = [] {
    api::ShownForm form = tests::shown_form(api::Endpoint::kMessages, "msg_1");
    form.omits_thinking = true;
    return tests::FedAnswer(std::move(form), message_choice({.starts_in_reasoning = true}, {}));
  };
  const std::string output = "hm, äh</think>Hello";
  tests::FedAnswer whole = fed();
  whole.feed(output, 0);
  whole.end(FinishReason::kStop);
  const json::Value message = json::parse(whole.body()).value();
  EXPECT_EQ(json::dump(message["content"]),
            R"([{"type":"thinking","thinking":"","signature":"aG0sIMOkaA=="},)"
            R"({"type":"text","text":"Hello"}])");
  for (const size_t step_tokens : {1U, 1000U}) {
    tests::FedAnswer streamed = fed();
    std::string events = streamed.feed(output, step_tokens);
    streamed.end(FinishReason::kStop);
    events += streamed.last_events();
    EXPECT_EQ(json::dump(StreamReader().read(events)["content"]), json::dump(message["content"]));
    EXPECT_EQ(events.find("thinking_delta"), std::string::npos) << events;
  }
}

// "event: NAME\ndata: {"type":"NAME"MEMBERS}\n\n"
std::string event_text(const std::string& name, const std::string& members) {
  return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + members + "}\n\n";
}

TEST(MessagesRenderer, writes_the_documented_events) {
  FedMessage message({.starts_in_reasoning = true});
  const auto usage = [](const std::string& num_output) {
    return R"("usage":{"input_tokens":5,"cache_creation_input_tokens":0,)"
           R"("cache_read_input_tokens":0,"output_tokens":)" +
           num_output + R"(,"output_tokens_details":{"thinking_tokens":)" + num_output +
           R"(},"service_tier":"standard"})";
  };
  const auto delta = [](const std::string& what) {
    return event_text("content_block_delta", R"(,"index":0,"delta":{"type":)" + what + "}");
  };
  EXPECT_EQ(
      message.begin(),
      event_text("message_start",
                 R"(,"message":{"id":"msg_1","type":"message","role":"assistant","model":"demo",)"
                 R"("content":[],"stop_reason":null,"stop_sequence":null,)" +
                     usage("0") + "}") +
          event_text("ping", ""));
  std::string events = message.feed("a", 1);
  EXPECT_EQ(events, event_text("content_block_start",
                               R"(,"index":0,"content_block":{"type":"thinking","thinking":"",)"
                               R"("signature":""})") +
                        delta(R"("thinking_delta","thinking":"a")"));
  message.end(FinishReason::kLength);
  events = message.last_events();
  EXPECT_EQ(events,
            delta(R"("signature_delta","signature":"msg_1")") +
                event_text("content_block_stop", R"(,"index":0)") +
                event_text(
                    "message_delta",
                    R"(,"delta":{"stop_reason":"max_tokens","stop_sequence":null},)" + usage("1")) +
                event_text("message_stop", ""));
}

TEST(MessagesRenderer, arguments_come_as_they_are_made) {
  FedMessage message({});
  message.feed(kCalls + "<｜tool▁call▁begin｜>f<｜tool▁sep｜>", 1);
  const std::string events = message.feed("{", 1);
  EXPECT_NE(events.find(R"("name":"f","input":{}})"), std::string::npos) << events;
  EXPECT_NE(events.find(R"({"type":"input_json_delta","partial_json":"{"})"), std::string::npos);
}

TEST(MessagesRenderer, what_the_cache_had_is_not_in_the_input_tokens) {
  FedMessage message({});
  message.feed("a", 0);
  engine::RequestEnd end;
  end.reason = FinishReason::kStop;
  end.num_cached_tokens = 3;
  message.choices[0].end(end);
  const json::Value usage = json::parse(message.body()).value()["usage"];
  EXPECT_EQ(usage["input_tokens"].get<int>(), 2);
  EXPECT_EQ(usage["cache_read_input_tokens"].get<int>(), 3);
}

TEST(MessagesRenderer, an_error_in_a_stream_is_an_event_of_its_own) {
  FedMessage message({});
  std::string events;
  message.renderer->write_error(api::overloaded(), events);
  EXPECT_EQ(events, "event: error\ndata: " +
                        api::to_json(api::overloaded(), http::ClientForm::kAnthropic) + "\n\n");
  EXPECT_NE(events.find(R"({"type":"error","error":{"type":"rate_limit_error","message")"),
            std::string::npos);
}

}  // namespace
}  // namespace fathom::answer
