// GET /v1/models: OpenAI's form, and Anthropic's for clients that send anthropic-version.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/serve/sim_server.h"

namespace fathom::serve::tests {
namespace {

client::ClientResponse get_as_anthropic(SimServer& server, const std::string& path) {
  return server.client().call(
      {.url = server.url(path), .headers = {{"anthropic-version", "2023-06-01"}}});
}

TEST(ModelList, has_openais_form) {
  SimServer server;
  const json::Value list = server.get_json("/v1/models");
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("data").size(), 2U);
  EXPECT_EQ(list.at("data")[0].at("object"), "model");
  EXPECT_FALSE(list.contains("has_more"));
}

TEST(ModelList, has_anthropics_form_for_its_clients) {
  SimServer server;
  for (const char* path : {"/v1/models", "/v1/models/", "/models", "/v1/v1/models"}) {
    const client::ClientResponse response = get_as_anthropic(server, path);
    ASSERT_EQ(response.status, 200) << path << response.body;
    const json::Value list = json::parse(response.body).value();
    EXPECT_EQ(list.at("has_more"), false);
    EXPECT_EQ(list.at("first_id"), "demo");
    EXPECT_EQ(list.at("last_id"), "fathom-demo");
    ASSERT_EQ(list.at("data").size(), 2U);
    const json::Value& model = list.at("data")[0];
    EXPECT_EQ(model.at("type"), "model");
    EXPECT_EQ(model.at("id"), "demo");
    EXPECT_EQ(model.at("display_name"), "demo");
    EXPECT_EQ(model.at("lifecycle"), "active");
    EXPECT_THAT(model.at("created_at").get<std::string>(),
                testing::MatchesRegex("20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:"
                                      "[0-5][0-9]Z"));
  }
  const client::ClientResponse one = get_as_anthropic(server, "/v1/models/fathom-demo");
  EXPECT_EQ(json::parse(one.body).value().at("display_name"), "fathom-demo");
}

TEST(ModelList, errors_of_anthropics_clients_have_their_form_too) {
  SimServer server;
  const client::ClientResponse missing = get_as_anthropic(server, "/v1/models/nobody");
  EXPECT_EQ(missing.status, 404);
  const json::Value body = json::parse(missing.body).value();
  EXPECT_EQ(body.at("type"), "error");
  EXPECT_EQ(body.at("error").at("type"), "not_found_error");
  EXPECT_EQ(body.at("request_id"), missing.header("x-request-id"));
  EXPECT_EQ(server.get("/v1/models/nobody").body.substr(0, 10), R"({"error":{)");
}

}  // namespace
}  // namespace fathom::serve::tests
