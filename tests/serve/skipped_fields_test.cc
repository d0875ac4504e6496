#include "serve/skipped_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/serve/sim_server.h"

namespace fathom::serve::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SkippedFields, are_counted_by_endpoint_and_field) {
  SimServer server({.unknown_fields = std::nullopt});
  for (int i = 0; i < 2; ++i) {
    server.post_json(
        "/v1/completions",
        {{"prompt", "Hi"}, {"max_tokens", 1}, {"user", "u"}, {"metadata", {{"a", 1}}}});
  }
  server.post_json("/v1/messages",
                   {{"messages", json::Value::array({{{"role", "user"}, {"content", "Hi"}}})},
                    {"max_tokens", 1},
                    {"a_name_of_tomorrow", true}});
  const std::string text = server.get("/metrics").body;
  EXPECT_THAT(text,
              HasSubstr(R"(endpoint="/v1/completions",kind="without_effect",field="user"} 2)"));
  EXPECT_THAT(text,
              HasSubstr(R"(endpoint="/v1/completions",kind="without_effect",field="metadata"} 2)"));
  EXPECT_THAT(text, HasSubstr(R"(endpoint="/v1/messages",kind="unknown",field="other"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(endpoint="/generate",kind="unknown",field="other"} 0)"));
  EXPECT_THAT(text, Not(HasSubstr("a_name_of_tomorrow")));
}

TEST(SkippedFields, make_no_series_of_the_names_that_clients_choose) {
  metrics::Registry registry;
  SkippedFields skipped(registry);
  const size_t before = registry.expose().size();
  for (int i = 0; i < 2000; ++i) {
    skipped.add({.kind = api::SkippedField::Kind::kTool,
                 .endpoint = "/v1/responses",
                 .name = "tool_" + std::to_string(i),
                 .why = {}});
  }
  const std::string text = registry.expose();
  EXPECT_LT(text.size(), before + 200);
  EXPECT_THAT(text, HasSubstr(R"(endpoint="/v1/responses",kind="tool",field="other"} 2000)"));
}

}  // namespace
}  // namespace fathom::serve::tests
