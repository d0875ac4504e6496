// A stop string within a structure leaves its beginning, and the finish does not call that whole.
#include <gtest/gtest.h>

#include <string>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value choice_of(SimServer& server, json::Value more) {
  more["messages"] = {{{"role", "user"}, {"content", "Hello"}}};
  more["max_tokens"] = 200;
  return server.post_json("/v1/chat/completions", more)["choices"][0];
}

TEST(StopInStructure, a_cut_is_no_natural_end) {
  SimServer server;
  const json::Value cut = choice_of(server, {{"regex", "xyz"}, {"stop", {"z"}}});
  EXPECT_EQ(cut["message"]["content"], json::Value("xy"));
  EXPECT_EQ(cut["finish_reason"], json::Value("length"));
  EXPECT_EQ(cut["matched_stop"], json::Value("z"));
  const json::Value form = {{"type", "json_object"}};
  const json::Value object = choice_of(server, {{"response_format", form}, {"stop", {"{"}}});
  EXPECT_EQ(object["finish_reason"], json::Value("length"));
  EXPECT_EQ(object["matched_stop"], json::Value("{"));
}

TEST(StopInStructure, what_is_whole_where_it_stops_is_finished) {
  SimServer server;
  const json::Value kept =
      choice_of(server, {{"regex", "xyz"}, {"stop", {"z"}}, {"include_stop_str_in_output", true}});
  EXPECT_EQ(kept["message"]["content"], json::Value("xyz"));
  EXPECT_EQ(kept["finish_reason"], json::Value("stop"));
  // The grammar may end before the stop string, wherever that falls into tokens.
  const json::Value optional = choice_of(server, {{"regex", "xy(?:zz)*|xyzzz"}, {"stop", {"zz"}}});
  EXPECT_EQ(optional["message"]["content"], json::Value("xy"));
  EXPECT_EQ(optional["finish_reason"], json::Value("stop"));
  const json::Value free = choice_of(server, {{"stop", {"e"}}, {"seed", 1}, {"temperature", 1}});
  EXPECT_NE(free["matched_stop"], json::Value(nullptr));
  EXPECT_EQ(free["finish_reason"], json::Value("stop"));
}

TEST(StopInStructure, a_cut_response_is_incomplete) {
  SimServer server;
  const json::Value form = {{"type", "json_object"}};
  const json::Value cut = server.post_json("/v1/responses", {{"input", "Hello"},
                                                             {"max_output_tokens", 200},
                                                             {"text", {{"format", form}}},
                                                             {"stop", {"{"}}});
  EXPECT_EQ(cut["status"], json::Value("incomplete"));
  EXPECT_EQ(cut["incomplete_details"]["reason"], json::Value("stop"));
  const json::Value free = server.post_json(
      "/v1/responses", {{"input", "Hello"}, {"max_output_tokens", 200}, {"stop", {"e"}}});
  EXPECT_EQ(free["status"], json::Value("completed"));
}

TEST(StopInStructure, a_cut_call_is_no_finished_call) {
  SimServer server;
  const json::Value tool = {{"type", "function"},
                            {"function",
                             {{"name", "f"},
                              {"parameters",
                               {{"type", "object"},
                                {"properties", {{"n", {{"type", "boolean"}}}}},
                                {"required", {"n"}}}}}}};
  const json::Value cut =
      choice_of(server, {{"tools", {tool}}, {"tool_choice", "required"}, {"stop", {"\"n\""}}});
  EXPECT_EQ(cut["finish_reason"], json::Value("length"));
  EXPECT_EQ(cut["matched_stop"], json::Value("\"n\""));
}

}  // namespace
}  // namespace fathom::serve
