// What a body may cost before it is admitted or refused: time grows with its size and no faster, whatever it
// is made of.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_request.h"
#include "api/messages_request.h"
#include "tests/api/demo_served_model.h"
#include "tests/cpu_time.h"
#include "tests/sanitized.h"

namespace fathom::api::tests {
namespace {

constexpr double kCostSlowdown = kIsSanitized ? 20 : 1;
constexpr int kItems = kIsSanitized ? 10'000 : 100'000;

std::string items(const std::string& text, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    if (i > 0) list += ',';
    list += text;
  }
  return list;
}

// A body of about `count` of something.
struct Shape {
  std::string name;
  std::function<std::string(int count)> body;
  std::function<bool(const std::string& body, const ServedModel& model)> parse;
};

template <class T>
bool is_accepted(const Parsed<T>& parsed) {
  return std::holds_alternative<T>(parsed);
}

bool parse_chat(const std::string& body, const ServedModel& model) {
  return is_accepted(parse_chat_request(body, model));
}
bool parse_completion(const std::string& body, const ServedModel& model) {
  return is_accepted(parse_completion_request(body, model));
}
bool parse_generate(const std::string& body, const ServedModel& model) {
  return is_accepted(parse_generate_request(body, model));
}

bool parse_messages(const std::string& body, const ServedModel& model) {
  return is_accepted(parse_messages_request(body, model));
}

const char* const kUser = R"({"role": "user", "content": "hi there"})";

std::string chat_with(const std::string& more) {
  return R"({"max_tokens": 1, "messages": [)" + std::string(kUser) + "], " + more + "}";
}

Shape chat_shape(const std::string& name, std::function<std::string(int)> body) {
  return {name, std::move(body), parse_chat};
}

// "z": 1, "z0": 1, "z1": 1, ...
std::string members(int count) {
  std::string text = "\"z\": 1";
  for (int i = 0; i < count; ++i) text += ",\"z" + std::to_string(i) + "\": 1";
  return text;
}

std::string chat_with_members(int count) { return chat_with(members(count)); }

std::vector<Shape> refused_shapes() {
  return {
      chat_shape("unknown fields", chat_with_members),
      chat_shape("a very long name",
                 [](int n) {
                   return chat_with("\"" + std::string(static_cast<size_t>(n), 't') + "\": 1");
                 }),
      chat_shape("unknown fields of a message",
                 [](int n) { return "{\"messages\": [{" + members(n) + "}]}"; }),
      chat_shape("stop strings",
                 [](int n) { return chat_with("\"stop\": [" + items("\"abc\"", n) + "]"); }),
      chat_shape("stop ids",
                 [](int n) { return chat_with("\"stop_token_ids\": [" + items("7", n) + "]"); }),
      chat_shape("biases",
                 [](int n) {
                   std::string bias;
                   for (int i = 0; i < 1024 + n; ++i) bias += ",\"" + std::to_string(i) + "\":1";
                   return chat_with("\"logit_bias\": {" + bias.substr(1) + "}");
                 }),
      chat_shape("messages beyond the limit",
                 [](int n) { return "{\"messages\": [" + items(kUser, 16'384 + n) + "]}"; }),
      chat_shape("tools beyond the limit",
                 [](int n) {
                   return chat_with("\"tools\": [" + items(R"({"name": "f"})", 16'384 + n) + "]");
                 }),
      chat_shape("broken depth", [](int n) { return std::string(static_cast<size_t>(n), '['); }),
      {"unknown names of messages",
       [](int n) {
         std::string fields = "\"z\": 1";
         for (int i = 0; i < n; ++i) fields += ",\"z" + std::to_string(i) + "\": 1";
         return R"({"max_tokens": 1, "messages": [)" + std::string(kUser) + "], " + fields + "}";
       },
       parse_messages},
      {"sampling_params",
       [](int n) {
         return R"({"input_ids": [[5], [6]], "sampling_params": [)" + items("{}", n) + "]}";
       },
       parse_generate},
      {"prompts beyond the limit",
       [](int n) { return "{\"prompt\": [" + items("[5]", 1024 + n) + "]}"; }, parse_completion},
  };
}

std::vector<Shape> accepted_shapes() {
  return {
      chat_shape("a field without effect",
                 [](int n) { return chat_with("\"user\": {" + members(n) + "}"); }),
      chat_shape("messages up to the limit",
                 [](int n) { return "{\"messages\": [" + items(kUser, n / 10) + "]}"; }),
      chat_shape("tool results",
                 [](int n) {
                   const std::string call = R"({"id": "c", "function": {"name": "f"}})";
                   const std::string turn =
                       R"({"role": "assistant", "tool_calls": [)" + items(call, 3) + "]}," +
                       items(R"({"role": "tool", "content": "r", "tool_call_id": "c"})", 3);
                   return "{\"messages\": [" + std::string(kUser) + "," + items(turn, n / 40) +
                          "]}";
                 }),
      chat_shape("content parts",
                 [](int n) {
                   return R"({"messages": [{"role": "user", "content": [)" +
                          items(R"({"type": "text", "text": "ab"})", n / 10) + "]}]}";
                 }),
      chat_shape("one word",
                 [](int n) {
                   return R"({"messages": [{"role": "user", "content": ")" +
                          std::string(static_cast<size_t>(n), 'a') + "\"}]}";
                 }),
      chat_shape("escaped text",
                 [](int n) {
                   std::string text;
                   for (int i = 0; i < n; ++i) text += "\\u00e9";
                   return R"({"messages": [{"role": "user", "content": ")" + text + "\"}]}";
                 }),
      chat_shape("text that looks like markup",
                 [](int n) {
                   std::string text;
                   for (int i = 0; i < n / 10; ++i) text += "<｜Assistant｜></think>";
                   return R"({"messages": [{"role": "user", "content": ")" + text + "\"}]}";
                 }),
      {"blocks of text",
       [](int n) {
         return R"({"max_tokens": 1, "messages": [{"role": "user", "content": [)" +
                items(R"({"type": "text", "text": "ab"})", n / 10) + "]}]}";
       },
       parse_messages},
      {"blocks of results",
       [](int n) {
         return R"({"max_tokens": 1, "messages": [)" + std::string(kUser) + "," +
                items(
                    R"({"role": "assistant", "content": [)" +
                        items(R"({"type": "tool_use", "id": "c", "name": "f", "input": {}})", 3) +
                        R"(]}, {"role": "user", "content": [)" +
                        items(R"({"type": "tool_result", "tool_use_id": "c", "content": "r"})", 3) +
                        "]}",
                    n / 40) +
                "]}";
       },
       parse_messages},
      {"token ids", [](int n) { return "{\"prompt\": [" + items("5", n) + "]}"; },
       parse_completion},
      {"special tokens",
       [](int n) {
         std::string text;
         for (int i = 0; i < n; ++i) text += "<think>";
         return "{\"text\": \"" + text + "\"}";
       },
       parse_generate},
  };
}

// The least of three: a page fault or a moved thread is not the parser's cost.
double seconds_of(const Shape& shape, const std::string& body, const ServedModel& model,
                  bool is_good) {
  double least = 1e9;
  for (int round = 0; round < 3; ++round) {
    const CpuStopwatch watch;
    const bool is_accepted = shape.parse(body, model);
    least = std::min(least, watch.seconds());
    EXPECT_EQ(is_accepted, is_good) << shape.name;
  }
  return least;
}

void check_cost(const std::vector<Shape>& shapes, bool are_good,
                UnknownFields unknown_fields = UnknownFields::kRefuse) {
  // Wide enough for every shape: what is refused is refused for another reason.
  ServedModel model = demo_served_model(10'000'000);
  model.unknown_fields = unknown_fields;
  for (const Shape& shape : shapes) {
    const std::string small = shape.body(kItems / 10), large = shape.body(kItems);
    const double small_seconds = seconds_of(shape, small, model, are_good);
    const double large_seconds = seconds_of(shape, large, model, are_good);
    const double ratio = static_cast<double>(large.size()) / static_cast<double>(small.size());
    // Quadratic would be ratio * ratio, a hundred. 2 ms: what is too short to be compared.
    EXPECT_LE(large_seconds, ratio * 3 * small_seconds + 0.002) << shape.name;
    const double mebibytes = static_cast<double>(large.size()) / (1 << 20);
    // 50 ms for a MiB is the aim; the rest is for slow and busy machines.
    EXPECT_LE(large_seconds, (0.2 * mebibytes + 0.05) * kCostSlowdown) << shape.name;
    testing::Test::RecordProperty(shape.name + " us/MiB",
                                  static_cast<int>(large_seconds / mebibytes * 1e6));
  }
}

TEST(RequestCost, a_refusal_costs_time_linear_in_the_body) { check_cost(refused_shapes(), false); }

TEST(RequestCost, fields_that_are_skipped_cost_time_linear_in_the_body) {
  check_cost({chat_shape("unknown fields", chat_with_members)}, true, UnknownFields::kIgnore);
}

TEST(RequestCost, an_admission_costs_time_linear_in_the_body) {
  check_cost(accepted_shapes(), true);
}

}  // namespace
}  // namespace fathom::api::tests
