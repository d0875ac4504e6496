// /v1/score on the simulation: what is scored, in which order, and what is counted. That the numbers are the model's is
// tests/apps/serve_score_test.py's affair.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

// What the native API tells of a label behind a prompt.
double probability_of(SimServer& server, json::Value ids, int label) {
  ids.push_back(label);
  const json::Value answer =
      server.post_json("/generate", {{"input_ids", ids},
                                     {"return_logprob", true},
                                     {"logprob_start_len", 0},
                                     {"sampling_params", {{"max_new_tokens", 0}}}});
  return std::exp(answer["meta_info"]["input_token_logprobs"].back()[0].get<double>());
}

json::Value ids_of_text(SimServer& server, const std::string& text) {
  return server.post_json("/tokenize", {{"prompt", text}})["tokens"];
}

TEST(Score, is_the_probability_of_each_label_behind_each_item) {
  SimServer server;
  const std::vector<std::string> items = {" red", " green and blue"};
  const std::vector<int> labels = {1, 500, 17};  // the end token among them
  for (const bool item_first : {false, true}) {
    const json::Value answer = server.post_json("/v1/score", {{"query", "The sky is"},
                                                              {"items", items},
                                                              {"label_token_ids", labels},
                                                              {"item_first", item_first}});
    EXPECT_EQ(answer["object"], "scoring");
    EXPECT_EQ(answer["model"], "demo");
    ASSERT_EQ(answer["scores"].size(), items.size());
    int64_t num_prompt_tokens = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      const json::Value ids =
          ids_of_text(server, item_first ? items[i] + "The sky is" : "The sky is" + items[i]);
      num_prompt_tokens += static_cast<int64_t>(ids.size());
      ASSERT_EQ(answer["scores"][i].size(), labels.size());
      for (size_t k = 0; k < labels.size(); ++k) {
        EXPECT_NEAR(answer["scores"][i][k].get<double>(), probability_of(server, ids, labels[k]),
                    1e-5);
      }
    }
    EXPECT_EQ(answer["usage"]["prompt_tokens"], num_prompt_tokens);
    EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
    EXPECT_EQ(answer["usage"]["total_tokens"], num_prompt_tokens);
  }
}

TEST(Score, of_token_ids_and_of_one_item_is_the_same) {
  SimServer server;
  const json::Value query = ids_of_text(server, "The sky is");
  json::Value item = ids_of_text(server, " red");
  item.erase(0);  // the start token
  const json::Value by_text = server.post_json(
      "/v1/score", {{"query", "The sky is"}, {"items", " red"}, {"label_token_ids", {7, 8}}});
  const json::Value by_ids = server.post_json(
      "/v1/score",
      {{"query", query}, {"items", json::Value::array({item})}, {"label_token_ids", {7, 8}}});
  EXPECT_EQ(by_ids["scores"], by_text["scores"]);
  EXPECT_EQ(by_ids["usage"]["prompt_tokens"], by_text["usage"]["prompt_tokens"]);
}

TEST(Score, with_softmax_adds_up_to_one) {
  SimServer server;
  const json::Value body = {
      {"query", "The sky is"}, {"items", {" red"}}, {"label_token_ids", {7, 8, 9}}};
  json::Value shares = body;
  shares["apply_softmax"] = true;
  const json::Value plain = server.post_json("/v1/score", body)["scores"][0];
  const json::Value shared = server.post_json("/v1/score", shares)["scores"][0];
  double sum = 0;
  for (const json::Value& score : plain) sum += score.get<double>();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(shared[i].get<double>(), plain[i].get<double>() / sum, 1e-5);
  }
}

TEST(Score, refuses_more_pairs_than_a_request_may_have) {
  SimServer server;
  const client::ClientResponse response =
      server.post("/v1/score", {{"query", "a"},
                                {"items", std::vector<std::string>(40, "b")},
                                {"label_token_ids", std::vector<int>(40, 5)}});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body).value()["error"]["param"], "items");
}

}  // namespace
}  // namespace fathom::serve
