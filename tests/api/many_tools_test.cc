// Agents with several tool servers offer hundreds of tools.

#include <gtest/gtest.h>

#include <string>

#include "api/chat_request.h"
#include "api/messages_request.h"
#include "api/responses/responses_request.h"
#include "base/json.h"
#include "tests/api/demo_served_model.h"
#include "tests/cpu_time.h"
#include "tests/sanitized.h"

namespace fathom::api::tests {
namespace {

constexpr int kNumTools = 300;

// "[{..."name": "f0"...}, ...]" of `before` NAME `after`.
std::string tools_of(const std::string& before, const std::string& after, int count = kNumTools) {
  std::string list = "[";
  for (int i = 0; i < count; ++i) {
    list += (i > 0 ? ", " : "") + before + "\"f" + std::to_string(i) + "\"" + after;
  }
  return list + "]";
}

const char* const kOneTurn = R"([{"role": "user", "content": "hi"}])";

TEST(ManyTools, are_all_offered_by_every_endpoint) {
  const ServedModel model = demo_served_model(100'000);
  const std::string messages = R"({"max_tokens": 1, "messages": )" + std::string(kOneTurn);
  const std::string wrapped = tools_of(R"({"type": "function", "function": {"name": )", "}}");
  const auto chat =
      accepted(parse_chat_request(messages + R"(, "tools": )" + wrapped + "}", model));
  const std::string of_messages =
      messages + R"(, "tools": )" + tools_of(R"({"name": )", R"(, "input_schema": {}})") + "}";
  const auto message = accepted(parse_messages_request(of_messages, model));
  const auto response = accepted(parse_responses_request(
      R"({"input": "hi", "tools": )" + tools_of(R"({"type": "function", "name": )", "}") + "}",
      model, {}));
  for (const GenerationRequest* request : {&chat, &message, &response}) {
    const std::string prompt = model.tokenizer->decode(request->items.at(0).prompt, false);
    for (const char* name : {"f0\n", "f128\n", "f299\n"}) {
      EXPECT_NE(prompt.find(name), std::string::npos) << name;
    }
  }
  EXPECT_EQ(accepted(parse_count_tokens_request(of_messages, model)),
            static_cast<int>(message.items.at(0).prompt.size()));
}

// A choice may name as many as there are.
TEST(ManyTools, are_chosen_among_in_linear_time) {
  const ServedModel model = demo_served_model(4'000'000);
  const int count = 16'384;
  const CpuStopwatch watch;
  const auto request = accepted(parse_chat_request(
      R"({"max_tokens": 1, "messages": )" + std::string(kOneTurn) + R"(, "tools": )" +
          tools_of(R"({"type": "function", "function": {"name": )", "}}", count) +
          R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": )" +
          tools_of(R"({"type": "function", "function": {"name": )", "}}", count) + "}}}",
      model));
  EXPECT_EQ(request.chat.tool_constraint.tools->size(), static_cast<size_t>(count));
  EXPECT_LT(watch.seconds(), kIsSanitized ? 60 : 5);
}

}  // namespace
}  // namespace fathom::api::tests
