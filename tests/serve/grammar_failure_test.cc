// A grammar that contradicts its masks, or leads nowhere, is named as what it is: never a number of the model.
#include <gtest/gtest.h>

#include <string>

#include "base/failpoint.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

const json::Value& constrained_body() {
  static const json::Value body = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
                                   {"regex", "[a-z]{40}"},
                                   {"max_tokens", 60}};
  return body;
}

bool counts(SimServer& server, const std::string& why, int number) {
  const std::string line = "fathom:grammar_failures_total{";
  const std::string metrics = server.get("/metrics").body;
  for (size_t at = metrics.find(line); at != metrics.npos; at = metrics.find(line, at + 1)) {
    const std::string sample = metrics.substr(at, metrics.find('\n', at) - at);
    if (sample.find("why=\"" + why + "\"") != sample.npos)
      return sample.ends_with(" " + std::to_string(number));
  }
  return false;
}

struct Planted {
  const char *failpoint, *code, *why, *other;
};

TEST(GrammarFailure, is_an_error_of_the_server_with_a_name_and_a_count) {
  for (const Planted& planted :
       {Planted{"late_masks.accept", "grammar_mismatch", "refusal", "dead_end"},
        Planted{"late_masks.fill", "grammar_dead_end", "dead_end", "refusal"}}) {
    for (const bool overlap : {false, true}) {
      SimServer server({.overlap = overlap});
      arm_failpoint(planted.failpoint, 3);
      const client::ClientResponse failed = server.post("/v1/chat/completions", constrained_body());
      disarm_failpoints();
      EXPECT_EQ(failed.status, 500) << failed.body;
      const json::Value error = json::parse(failed.body).value()["error"];
      EXPECT_EQ(error["code"], json::Value(planted.code));
      EXPECT_EQ(error["type"], json::Value("server_error"));
      EXPECT_TRUE(server.eventually([&] { return counts(server, planted.why, 1); }));
      EXPECT_TRUE(counts(server, planted.other, 0));
      // The next request is none the worse.
      const json::Value answer = server.post_json("/v1/chat/completions", constrained_body());
      EXPECT_EQ(answer["choices"][0]["message"]["content"].get<std::string>().size(), 40U);
    }
  }
}

TEST(GrammarFailure, ends_a_stream_with_its_error) {
  SimServer server;
  json::Value body = constrained_body();
  arm_failpoint("late_masks.accept", 3);
  const std::vector<json::Value> events = server.post_stream("/v1/chat/completions", body);
  disarm_failpoints();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["error"]["code"], json::Value("grammar_mismatch"));
}

}  // namespace
}  // namespace fathom::serve
