// docs/api.md against the parsers: every command of the guide has a body that its endpoint takes.

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_request.h"
#include "api/messages_request.h"
#include "api/responses/responses_request.h"
#include "api/score_request.h"
#include "api/tokenize_request.h"
#include "tests/api/api_doc_text.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api::tests {
namespace {

struct GuideCommand {
  std::string path, body;
};

// curl $FATHOM/PATH -d 'BODY', whose body may go over several lines.
std::vector<GuideCommand> guide_commands(const std::string& guide) {
  const std::string address = "$FATHOM", data = " -d '";
  std::vector<GuideCommand> commands;
  for (size_t at = guide.find(address + "/"); at != std::string::npos;
       at = guide.find(address + "/", at + 1)) {
    const size_t path = at + address.size(), path_end = guide.find_first_of(" \n", path);
    if (guide.compare(path_end, data.size(), data) != 0) continue;
    const size_t body = path_end + data.size(), body_end = guide.find('\'', body);
    commands.push_back({guide.substr(path, path_end - path), guide.substr(body, body_end - body)});
  }
  return commands;
}

// Why an endpoint refuses a body; nothing where it takes it.
std::optional<std::string> why_refused(const GuideCommand& command) {
  const ServedModel model = demo_served_model();
  const auto reason = [](const auto& parsed) -> std::optional<std::string> {
    if (const auto* error = std::get_if<ApiError>(&parsed)) return to_json(*error);
    return std::nullopt;
  };
  const auto& [path, body] = command;
  if (path == "/v1/chat/completions") return reason(parse_chat_request(body, model));
  if (path == "/v1/completions") return reason(parse_completion_request(body, model));
  if (path == "/v1/messages") return reason(parse_messages_request(body, model));
  if (path == "/v1/messages/count_tokens") return reason(parse_count_tokens_request(body, model));
  if (path == "/v1/responses") return reason(parse_responses_request(body, model, StoredPast{}));
  if (path == "/generate") return reason(parse_generate_request(body, model));
  if (path == "/tokenize") return reason(parse_tokenize_request(body, model));
  if (path == "/detokenize") return reason(parse_detokenize_request(body, model));
  if (path == "/v1/score") return reason(parse_score_request(body, model));
  return "this test knows no parser of the path";
}

TEST(ApiGuideDoc, has_commands_that_the_endpoints_take) {
  const std::vector<GuideCommand> commands = guide_commands(doc_text("docs/api.md"));
  EXPECT_GE(commands.size(), 12U);
  for (const GuideCommand& command : commands) {
    EXPECT_EQ(why_refused(command).value_or("taken"), "taken") << command.path << command.body;
  }
}

}  // namespace
}  // namespace fathom::api::tests
