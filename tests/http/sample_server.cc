#include "tests/http/sample_server.h"

#include <chrono>
#include <thread>
#include <utility>

namespace fathom::http::tests {
namespace {

Response text(std::string body) {
  Response response;
  response.content_type = "text/plain";
  response.body = std::move(body);
  return response;
}

void hold(const std::shared_ptr<SampleEvents>& events, const ExchangePtr& exchange) {
  exchange->on_close([events] {
    --events->num_held;
    ++events->num_closed;
  });
  {
    const std::lock_guard lock(events->mutex);
    events->held.push_back(exchange);
  }
  ++events->num_held;
}

// Keeps the stream's backlog full; the exchange itself is held by the task alone.
void flood(const std::shared_ptr<SampleEvents>& events, const ExchangePtr& exchange) {
  if (exchange->is_closed()) return;
  while (exchange->backlog_bytes() < 512 << 10 && !exchange->is_closed())
    exchange->write("data: " + std::string(4096, 'x') + "\n\n");
  exchange->post([events, exchange] { flood(events, exchange); });
}

void add_holding_routes(const std::shared_ptr<SampleEvents>& events, Router* router) {
  // Answered by the test, or never.
  router->add({"POST", "/hold", Access::kInference,
               [events](const ExchangePtr& exchange) { hold(events, exchange); }});
  router->add({"GET", "/hold", Access::kInference,
               [events](const ExchangePtr& exchange) { hold(events, exchange); }});
  const auto stream_and_hold = [events](const ExchangePtr& exchange) {
    exchange->begin_stream();
    exchange->write("data: begun\n\n");
    hold(events, exchange);
  };
  router->add({"GET", "/stream/hold", Access::kInference, stream_and_hold});
  router->add({"GET", "/stream/quiet", Access::kInference, [events](const ExchangePtr& exchange) {
                 exchange->begin_stream([num = 0]() mutable {
                   return "data: still here, " + std::to_string(num++) + "\n\n";
                 });
                 hold(events, exchange);
               }});
  // As many bytes as the client takes, and more.
  router->add({"GET", "/stream/flood", Access::kInference, [events](const ExchangePtr& exchange) {
                 exchange->begin_stream();
                 ++events->num_held;
                 exchange->on_close([events] {
                   --events->num_held;
                   ++events->num_closed;
                 });
                 flood(events, exchange);
               }});
}

}  // namespace

Router sample_router(const std::shared_ptr<SampleEvents>& events) {
  Router router;
  router.add({"GET", "/", Access::kPage,
              [](const ExchangePtr& exchange) { exchange->send(text("page")); }});
  router.add({.method = "GET",
              .path = "/livez",
              .access = Access::kOpen,
              .handler = [](const ExchangePtr& exchange) { exchange->send(text("alive")); },
              .is_probe = true});
  router.add({"GET", "/hello", Access::kInference,
              [](const ExchangePtr& exchange) { exchange->send(text("hello")); }});
  for (const char* method : {"POST", "GET"})
    router.add({method, "/flush", Access::kAdmin,
                [](const ExchangePtr& exchange) { exchange->send(text("flushed")); },
                std::string_view(method) == "GET"});
  router.add({"GET", "/v1/models/{id}", Access::kInference, [](const ExchangePtr& exchange) {
                exchange->send(text(exchange->request().path_parameter));
              }});
  router.add({"POST", "/echo", Access::kInference,
              [](const ExchangePtr& exchange) { exchange->send(text(exchange->take_body())); }});
  // As Anthropic's clients call it.
  router.add({.method = "POST",
              .path = "/messages",
              .access = Access::kInference,
              .handler = [](const ExchangePtr& exchange) { exchange->send(text("message")); },
              .form = ClientForm::kAnthropic});
  router.add({.method = "POST",
              .path = "/messages/drop",
              .access = Access::kInference,
              .handler = [](const ExchangePtr&) {},
              .form = ClientForm::kAnthropic});
  // Answers from another thread.
  router.add({"POST", "/later", Access::kInference, [](ExchangePtr exchange) {
                std::thread([exchange] {
                  exchange->post([exchange] { exchange->send(text(exchange->request().body)); });
                }).detach();
              }});
  // Goes without an answer.
  router.add({"GET", "/drop", Access::kInference, [](const ExchangePtr&) {}});
  // query n: that many events, in one write each.
  router.add({"GET", "/stream", Access::kInference, [](const ExchangePtr& exchange) {
                const auto& query = exchange->request().query;
                const int num = query.empty() ? 3 : std::atoi(query[0].second.c_str());
                exchange->begin_stream();
                for (int i = 0; i < num; ++i)
                  exchange->write("data: " + std::to_string(i) + "\n\n");
                exchange->finish_stream(true);
              }});
  router.add({"GET", "/stream/broken", Access::kInference, [](const ExchangePtr& exchange) {
                exchange->begin_stream();
                exchange->write("data: {\"error\":{}}\n\n");
                exchange->finish_stream(false);
              }});
  if (events != nullptr) add_holding_routes(events, &router);
  return router;
}

ServerConfig sample_config() { return {.num_threads = 2, .allowed_hosts = {"a"}}; }

std::unique_ptr<Server> sample_server(ServerConfig config,
                                      const std::shared_ptr<SampleEvents>& events) {
  auto server = std::make_unique<Server>(std::move(config), sample_router(events));
  server->start();
  return server;
}

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace fathom::http::tests
