#include "serve/span_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/startup_error.h"
#include "http/server.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve::tests {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr const char* kNotSampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

// Takes what it is sent, or answers with a status, or never.
class Collector {
 public:
  explicit Collector(int status = 200) : status_(status) {
    http::Router router;
    router.add({"POST", "/v1/traces", http::Access::kInference,
                [this](const http::ExchangePtr& exchange) { take(exchange); }});
    server_ = std::make_unique<http::Server>(http::ServerConfig{}, std::move(router));
    server_->start();
  }
  ~Collector() { server_->stop(); }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_->port()); }
  std::vector<std::string> bodies() {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }
  std::atomic<int> status_;

 private:
  void take(const http::ExchangePtr& exchange) {
    const std::lock_guard lock(mutex_);
    bodies_.push_back(exchange->request().body);
    http::Response response;
    response.status = status_;
    response.body = "{}";
    if (status_ != 0) return exchange->send(std::move(response));
    held_.push_back(exchange);
  }

  std::unique_ptr<http::Server> server_;
  std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::vector<http::ExchangePtr> held_;
};

SpanExporter::Config quick(const Collector& collector) {
  return {.url = traces_url(collector.url()),
          .source = {.model = "demo", .version = "1"},
          .interval = std::chrono::milliseconds(10),
          .timeout = std::chrono::milliseconds(200)};
}

answer::AnswerRecord record_of(const char* request_id, const char* parent = "") {
  answer::AnswerRecord record{
      .request_id = request_id, .key_name = "", .model = "m", .endpoint = "/x"};
  record.traceparent = parent;
  return record;
}

bool comes(const std::function<bool()>& condition) {
  const Stopwatch watch;
  while (!condition() && watch.seconds() < 60)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

TEST(SpanExporter, sends_what_is_sampled) {
  Collector collector;
  metrics::Registry registry;
  {
    SpanExporter::Config config = quick(collector);
    config.timeout = std::chrono::seconds(60);  // what is slow is not lost
    SpanExporter exporter(config, SpanCounters(registry));
    exporter.add(record_of("first"));
    exporter.add(record_of("hidden", kNotSampled));
    exporter.add(record_of("second", kSampled));
    ASSERT_TRUE(comes(
        [&] { return registry.expose().find("fathom:traces_sent_total 2") != std::string::npos; }));
    exporter.add(record_of("last"));
  }
  std::string all;
  for (const std::string& body : collector.bodies()) all += body;
  EXPECT_THAT(all, HasSubstr("first"));
  EXPECT_THAT(all, HasSubstr("4bf92f3577b34da6a3ce929d0e0e4736"));
  EXPECT_THAT(all, HasSubstr("last"));
  EXPECT_THAT(all, ::testing::Not(HasSubstr("hidden")));
}

TEST(SpanExporter, tries_twice_and_then_lets_go) {
  Collector collector(503);
  metrics::Registry registry;
  SpanExporter exporter(quick(collector), SpanCounters(registry));
  exporter.add(record_of("first"));
  ASSERT_TRUE(comes([&] {
    return registry.expose().find("fathom:traces_dropped_total 1") != std::string::npos;
  }));
  EXPECT_EQ(collector.bodies().size(), 2u);
  EXPECT_EQ(collector.bodies()[0], collector.bodies()[1]);
  collector.status_ = 200;
  exporter.add(record_of("second"));
  ASSERT_TRUE(comes(
      [&] { return registry.expose().find("fathom:traces_sent_total 1") != std::string::npos; }));
}

TEST(SpanExporter, holds_up_nobody_where_a_collector_never_answers) {
  Collector collector(0);
  metrics::Registry registry;
  SpanExporter::Config config = quick(collector);
  config.max_queued = 8;
  config.timeout = std::chrono::milliseconds(500);
  const Stopwatch watch;
  {
    SpanExporter exporter(config, SpanCounters(registry));
    exporter.add(record_of("stuck"));
    ASSERT_TRUE(comes([&] { return !collector.bodies().empty(); }));
    for (int i = 0; i < 1000; ++i) exporter.add(record_of("more"));
    EXPECT_THAT(registry.expose(), HasSubstr("fathom:traces_dropped_total 992"));
  }
  EXPECT_LT(watch.seconds(), 30);
  EXPECT_THAT(registry.expose(), HasSubstr("fathom:traces_dropped_total 1001"));
}

TEST(SpanExporter, takes_urls_that_it_can_send_to) {
  EXPECT_EQ(traces_url("http://a:4318"), "http://a:4318/v1/traces");
  EXPECT_EQ(traces_url("http://a:4318/"), "http://a:4318/v1/traces");
  EXPECT_EQ(traces_url("https://a/otlp/v1/traces"), "https://a/otlp/v1/traces");
  for (const char* url : {"localhost:4317", "grpc://localhost:4317", "http://", ""})
    EXPECT_THROW(traces_url(url), StartupError) << url;
}

TEST(SpanExporter, has_each_request_of_a_server) {
  Collector collector;
  SimServer server({.otlp_traces_url = traces_url(collector.url())});
  client::Client client;
  const client::ClientResponse answer =
      client.call({.method = "POST",
                   .url = server.url("/generate"),
                   .headers = {{"traceparent", kSampled}, {"x-request-id", "the-request"}},
                   .body = R"({"text": "Hello", "sampling_params": {"max_new_tokens": 3}})"});
  EXPECT_EQ(answer.status, 200);
  ASSERT_TRUE(comes([&] { return !collector.bodies().empty(); }));
  const json::Value spans =
      json::parse(collector.bodies()[0]).value()["resourceSpans"][0]["scopeSpans"][0]["spans"];
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0]["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_THAT(json::dump(spans[0]), HasSubstr("the-request"));
  EXPECT_THAT(json::dump(spans[0]),
              HasSubstr(R"({"key":"gen_ai.usage.completion_tokens","value":{"intValue":"3"}})"));
  EXPECT_THAT(json::dump(spans[0]),
              HasSubstr(R"({"key":"http.route","value":{"stringValue":"/generate"}})"));
}

}  // namespace
}  // namespace fathom::serve::tests
