#include "serve/api_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "base/device_trace.h"
#include "tests/scratch_directory.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value chat(int max_tokens) {
  return {{"model", "demo"},
          {"messages", {{{"role", "user"}, {"content", "How many apples are left?"}}}},
          {"temperature", 0},
          {"max_tokens", max_tokens}};
}

json::Value native(int max_new_tokens) {
  return {{"text", "How many apples are left?"},
          {"sampling_params", {{"temperature", 0}, {"max_new_tokens", max_new_tokens}}}};
}

TEST(ApiServer, says_how_far_loading_is_and_refuses_requests_until_it_is_ready) {
  SimServer server({.ready = false});
  server.api().set_loading("weights", 0.25);
  EXPECT_EQ(server.get("/livez").status, 200);
  const client::ClientResponse ready = server.get("/readyz");
  EXPECT_EQ(ready.status, 503);
  json::Value state = json::parse(ready.body).value();
  EXPECT_TRUE(state.contains("seconds_left"));
  state.erase("seconds_left");
  const json::Value loading = {{"status", "loading"}, {"phase", "weights"}, {"progress", 0.25}};
  EXPECT_EQ(state, loading);
  json::Value of_page = json::parse(server.get("/stats").body).value()["readiness"];
  of_page.erase("seconds_left");
  EXPECT_EQ(of_page, loading);
  EXPECT_EQ(server.get("/v1/models").status, 503);
  EXPECT_EQ(server.post("/generate", native(1)).status, 503);
  server.make_ready();
  EXPECT_EQ(server.get("/readyz").status, 200);
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/health_generate").status, 200);
  EXPECT_EQ(server.post("/generate", native(1)).status, 200);
}

TEST(ApiServer, says_how_long_a_phase_of_loading_still_takes_once_that_can_be_told) {
  SimServer server({.ready = false});
  const auto seconds_left = [&] {
    return json::parse(server.get("/readyz").body).value()["seconds_left"];
  };
  server.api().set_loading("weights", 0.5);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const double left = seconds_left();
  EXPECT_GT(left, 1.0);
  server.api().set_loading("weights", 1);
  EXPECT_EQ(seconds_left(), 0);
  server.api().set_loading("memory plan", 0);  // it begins anew
  EXPECT_EQ(seconds_left(), nullptr);
}

// DeepSeek's clients leave the version out, or say /beta.
TEST(ApiServer, answers_under_deepseeks_paths_as_under_openais) {
  SimServer server;
  const auto text_of = [&](const std::string& path, const json::Value& body) {
    const client::ClientResponse response = server.post(path, body);
    EXPECT_EQ(response.status, 200) << path << response.body;
    const json::Value choice = json::parse(response.body).value()["choices"][0];
    return choice.contains("text") ? choice["text"] : choice["message"]["content"];
  };
  const json::Value chat = {
      {"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 8}, {"temperature", 0}};
  const json::Value completion = {{"prompt", "Hi"}, {"max_tokens", 8}, {"temperature", 0}};
  for (const char* base : {"", "/beta"}) {
    EXPECT_EQ(text_of(base + std::string("/chat/completions"), chat),
              text_of("/v1/chat/completions", chat));
    EXPECT_EQ(text_of(base + std::string("/completions"), completion),
              text_of("/v1/completions", completion));
  }
}

TEST(ApiServer, tells_its_load_as_sglang_and_vllm_do) {
  SimServer server({.step_delay = std::chrono::milliseconds(2), .ranks = {}});
  const auto get = [&](const char* path) { return json::parse(server.get(path).body).value(); };
  EXPECT_EQ(get("/load"), (json::Value{{"server_load", 0}}));
  EXPECT_EQ(server.get("/ping").status, 200);
  EXPECT_TRUE(get("/version").contains("version"));
  std::thread client([&] { server.post("/generate", native(10'000)); });
  // It waits before it runs.
  const auto num_running = [&] { return get("/v1/loads")["aggregate"]["total_running_reqs"]; };
  while (num_running() != 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(get("/load")["server_load"], 1);
  const json::Value rank = get("/get_load").at(0);
  EXPECT_EQ(rank["num_reqs"], 1);
  EXPECT_EQ(rank["num_waiting_reqs"], 0);
  EXPECT_GT(rank["num_tokens"], 0);
  const json::Value loads = get("/v1/loads");
  EXPECT_EQ(loads["dp_rank_count"], 1);
  EXPECT_EQ(loads["loads"][0]["num_total_reqs"], 1);
  EXPECT_EQ(loads["loads"][0]["max_total_num_tokens"], get("/server_info")["max_total_num_tokens"]);
  server.post("/abort_request", {{"abort_all", true}});
  client.join();
}

TEST(ApiServer, describes_every_route_that_is_no_page) {
  SimServer server;
  const client::ClientResponse response = server.get("/openapi.json");
  ASSERT_EQ(response.status, 200) << response.body;
  const json::Value document = json::parse(response.body).value();
  for (const char* path : {"/v1/chat/completions", "/generate", "/metrics", "/openapi.json",
                           "/docs", "/abort_request", "/v1/models/{id}"}) {
    EXPECT_TRUE(document["paths"].contains(path)) << path;
  }
  EXPECT_TRUE(document["paths"]["/generate"].contains("put"));
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      EXPECT_NE(operation["summary"], "") << method << " " << path << " has no summary";
    }
  }
  const client::ClientResponse page = server.get("/docs");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.body.find("<code>temperature</code>"), std::string::npos);
}

TEST(ApiServer, a_field_that_nobody_knows_is_refused_on_the_way_in) {
  SimServer server;
  const client::ClientResponse response =
      server.post("/v1/completions", {{"prompt", "a"}, {"temprature", 0}});
  EXPECT_EQ(response.status, 400);
  const json::Value error = json::parse(response.body).value()["error"];
  EXPECT_EQ(error["param"], "temprature");
  EXPECT_EQ(error["code"], "unknown_parameter");
  EXPECT_EQ(error["message"], "unknown field 'temprature'; did you mean 'temperature'?");
}

TEST(ApiServer, lists_its_model_once_under_each_name_and_not_under_its_path) {
  SimServer server;
  const json::Value models = json::parse(server.get("/v1/models").body).value();
  const std::string id = models["data"][0]["id"];
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"].size(), api::tests::demo_served_model().names.size());
  EXPECT_GT(models["data"][0]["max_model_len"].get<int>(), 0);
  EXPECT_EQ(json::parse(server.get("/v1/models/" + id).body).value()["id"], id);
  EXPECT_EQ(server.get("/models").body, server.get("/v1/models").body);
  EXPECT_EQ(server.get("/models/" + id).body, server.get("/v1/models/" + id).body);
  const client::ClientResponse unknown = server.get("/v1/models/other");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(json::parse(unknown.body).value()["error"]["code"], "model_not_found");
}

TEST(ApiServer, tells_benchmark_clients_what_they_read) {
  SimServer server;
  for (const char* path : {"/server_info", "/get_server_info"}) {
    const json::Value info = json::parse(server.get(path).body).value();
    for (const char* key : {"model_path", "tokenizer_path", "served_model_name", "tp_size",
                            "dp_size", "status", "max_total_num_tokens", "max_req_input_len"}) {
      EXPECT_TRUE(info.contains(key)) << key;
    }
    EXPECT_EQ(info["compiled_kernels"], json::Value::array());
    EXPECT_EQ(info["chat_defaults"], (json::Value{{"temperature", 1.0},
                                                  {"top_p", 1.0},
                                                  {"top_k", -1},
                                                  {"min_p", 0.0},
                                                  {"repetition_penalty", 1.0},
                                                  {"thinking", "off"}}));
    const json::Value& state = info["internal_states"][0];
    EXPECT_GT(state["effective_max_running_requests_per_dp"].get<int>(), 0);
    EXPECT_GT(state["memory_usage"]["token_capacity"].get<int>(), 0);
    EXPECT_TRUE(state.contains("last_gen_throughput"));
    EXPECT_FALSE(state.contains("avg_spec_accept_length"));
  }
  for (const char* path : {"/model_info", "/get_model_info"}) {
    const json::Value info = json::parse(server.get(path).body).value();
    EXPECT_TRUE(info.contains("model_path"));
    EXPECT_EQ(info["is_generation"], true);
  }
}

TEST(ApiServer, says_whether_a_chat_reasons_where_it_says_nothing) {
  for (const auto& [format, thinking] :
       {std::pair{text::ChatFormat::kV3, "never"}, std::pair{text::ChatFormat::kV31, "off"},
        std::pair{text::ChatFormat::kV32, "off"}, std::pair{text::ChatFormat::kR1, "always"}}) {
    SimServer server({.chat_format = format});
    EXPECT_EQ(server.get_json("/server_info")["chat_defaults"]["thinking"], thinking);
  }
}

TEST(ApiServer, tokenises_and_detokenises) {
  SimServer server;
  const json::Value tokens = server.post_json("/tokenize", {{"prompt", "apples"}})["tokens"];
  EXPECT_FALSE(tokens.empty());
  const json::Value text = server.post_json("/v1/detokenize", {{"tokens", tokens}});
  EXPECT_EQ(text["text"], "apples");
}

TEST(ApiServer, answers_errors_of_the_parsers_with_the_parameter) {
  SimServer server;
  json::Value body = chat(5);
  body["temperature"] = -1;
  const client::ClientResponse response = server.post("/v1/chat/completions", body);
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body).value()["error"]["param"], "temperature");
}

TEST(ApiServer, flushes_the_cache_when_nothing_runs_and_refuses_while_something_does) {
  SimServer server({.step_delay = std::chrono::milliseconds(5)});
  EXPECT_EQ(server.post("/generate", native(2)).status, 200);
  EXPECT_EQ(server.get("/flush_cache").status, 200);
  std::atomic<bool> done = false;
  const auto id = server.client().send(
      {.method = "POST", .url = server.url("/generate"), .body = json::dump(native(2000))},
      {.on_done = [&](const auto&) { done = true; }});
  ASSERT_TRUE(server.eventually([&] { return server.engine().snapshot().num_running > 0; }));
  EXPECT_EQ(server.post("/flush_cache", {}).status, 400);
  server.client().cancel(id);
  ASSERT_TRUE(server.eventually([&] { return server.is_idle(); }));
  EXPECT_EQ(server.get("/flush_cache?timeout=5").status, 200);
  EXPECT_EQ(server.get("/flush_cache?timeout=x").status, 400);
  ASSERT_TRUE(server.eventually([&] { return done.load(); }));
}

TEST(ApiServer, records_a_profile_only_where_the_operator_said) {
  SimServer closed;
  EXPECT_EQ(closed.post("/start_profile", json::Value::object()).status, 400);
  const ScratchDirectory folder;
  SimServer server({.profile_dir = folder.path()});
  for (const char* name : {"output_dir", "profile_prefix", "profile_id", "outputdir"}) {
    EXPECT_EQ(server.post("/start_profile", {{name, "/tmp"}}).status, 400) << name;
  }
  EXPECT_EQ(server.post("/start_profile", {{"activities", {"CPU", "MEM"}}}).status, 400);
  EXPECT_EQ(server.get("/stop_profile").status, 400);
  EXPECT_EQ(server.get("/start_profile").status, 200);
  EXPECT_EQ(server.get("/start_profile").status, 400);
  EXPECT_EQ(server.post("/generate", native(4)).status, 200);
  EXPECT_EQ(server.get("/stop_profile").status, 200);
  const auto file = std::filesystem::directory_iterator(folder.path());
  std::ifstream stream(file->path());
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_TRUE(json::parse(text).value().contains("traceEvents"));
}

class SilentDevice : public trace::DeviceRecorder {
 public:
  Status start(int64_t) override { return Error{ErrorCode::kNotFound, "no library"}; }
  trace::DeviceRecording stop() override { return {}; }
};

TEST(ApiServer, says_what_a_profile_lacks) {
  const ScratchDirectory folder;
  SimServer server({.profile_dir = folder.path()});
  SilentDevice device;
  trace::set_device_recorder(&device);
  const client::ClientResponse started = server.get("/start_profile");
  EXPECT_EQ(started.status, 200);
  EXPECT_EQ(started.body, "Start profiling.\nThe profile lacks kernels: no library\n");
  EXPECT_EQ(server.get("/stop_profile").status, 200);
  trace::set_device_recorder(nullptr);
}

TEST(ApiServer, drains_admitted_requests_and_refuses_new_ones) {
  SimServer server({.step_delay = std::chrono::milliseconds(2)});
  std::atomic<int> num_whole = 0;
  for (int i = 0; i < 8; ++i) {
    json::Value body = native(100);
    body["sampling_params"]["ignore_eos"] = true;
    body["stream"] = true;
    server.client().send(
        {.method = "POST", .url = server.url("/generate"), .body = json::dump(body)},
        {.on_done = [&](const client::ClientResponse& response) {
          if (response.body.ends_with("data: [DONE]\n\n")) ++num_whole;
        }});
  }
  // Not those that are open: on a busy machine some may be done before the last comes.
  ASSERT_TRUE(server.eventually([&] { return server.engine().snapshot().num_received == 8; }));
  server.api().begin_drain();
  EXPECT_EQ(server.get("/livez").status, 200);
  EXPECT_EQ(server.get("/readyz").status, 503);
  const client::ClientResponse refused = server.post("/generate", native(1));
  EXPECT_EQ(refused.status, 503);
  EXPECT_FALSE(refused.header("retry-after").empty());
  ASSERT_TRUE(server.eventually([&] { return num_whole == 8; }));
  EXPECT_EQ(server.api().num_open_requests(), 0);
}

TEST(ApiServer, ends_what_is_left_after_the_drain_with_an_error_event_and_no_done) {
  SimServer server({.step_delay = std::chrono::milliseconds(5)});
  std::promise<std::string> body_received;
  json::Value body = native(5000);
  body["stream"] = true;
  body["sampling_params"]["ignore_eos"] = true;
  server.client().send(
      {.method = "POST", .url = server.url("/generate"), .body = json::dump(body)},
      {.on_done = [&](const auto& response) { body_received.set_value(response.body); }});
  ASSERT_TRUE(server.eventually([&] { return server.engine().snapshot().num_output_tokens > 2; }));
  server.api().begin_drain();
  server.api().fail_open_requests();
  const std::vector<json::Value> events = SimServer::events_of(body_received.get_future().get());
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(events.back().contains("error"));
  ASSERT_TRUE(server.eventually([&] { return server.is_idle(); }));
}

}  // namespace
}  // namespace fathom::serve
