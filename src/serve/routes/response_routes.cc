// /v1/responses: made on a worker, kept in the store, found and deleted by id. A key finds its own responses only.

#include <utility>

#include "answer/pieces/draw_id.h"
#include "api/responses/response_draft.h"
#include "api/responses/responses_request.h"
#include "base/clock.h"
#include "base/json.h"
#include "serve/server_state.h"

namespace fathom::serve {
namespace {

void create(ServerState& state, const http::ExchangePtr& exchange, const Stopwatch& since_arrival) {
  const std::string owner = exchange->request().key_name;
  api::StoredPast past;
  if (state.responses.limits().max_responses > 0) {
    past.find_response = [&state, owner](const std::string& id) {
      return state.responses.find(owner, id);
    };
    past.find_item = [&state, owner](const std::string& id) {
      return state.responses.find_item(owner, id);
    };
  }
  api::Parsed<api::GenerationRequest> parsed =
      api::parse_responses_request(exchange->request().body, state.config.model, past);
  drop_body(exchange);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed)) {
    return send_later(exchange, api::to_response(*error));
  }
  auto& request = std::get<api::GenerationRequest>(parsed);
  if (request.form.response->is_stored) {
    if (request.form.id.empty()) request.form.id = answer::draw_id("resp_");
    request.form.response->keep = [&state, owner,
                                   making = state.responses.begin(owner, request.form.id)](
                                      const std::string& id, api::StoredResponse stored) {
      state.responses.put(owner, id, std::move(stored));
    };
  }
  state.generation.start(std::move(request), exchange, since_arrival);
}

void show(ServerState& state, const http::ExchangePtr& exchange) {
  const http::Request& request = exchange->request();
  if (!request.query.empty()) {
    const std::string& name = request.query.front().first;
    return exchange->send(api::to_response(api::invalid_parameter(
        name.substr(0, 64), "a stored response is shown whole, without settings in the query")));
  }
  const auto found = state.responses.find(request.key_name, request.path_parameter);
  if (found == nullptr) {
    return exchange->send(api::to_response(api::response_not_found("id", request.path_parameter)));
  }
  http::Response response;
  response.body = found->body;
  exchange->send(std::move(response));
}

void remove(ServerState& state, const http::ExchangePtr& exchange) {
  const std::string& id = exchange->request().path_parameter;
  if (!state.responses.erase(exchange->request().key_name, id)) {
    return exchange->send(api::to_response(api::response_not_found("id", id)));
  }
  exchange->send(json_response({{"id", id}, {"object", "response"}, {"deleted", true}}));
}

}  // namespace

void add_response_routes(http::Router& router, ServerState& state) {
  const auto add = [&](const char* method, const char* path, auto handler) {
    router.add({.method = method,
                .path = path,
                .access = http::Access::kInference,
                .handler = std::move(handler)});
  };
  add("POST", "/v1/responses", [&state](const http::ExchangePtr& exchange) {
    if (const std::optional<api::ApiError> refusal = state.refusal()) {
      return exchange->send(api::to_response(*refusal));
    }
    const Stopwatch since_arrival;
    state.run_on_worker(
        exchange, [&state, exchange, since_arrival] { create(state, exchange, since_arrival); });
  });
  add("GET", "/v1/responses/{id}",
      [&state](const http::ExchangePtr& exchange) { show(state, exchange); });
  add("DELETE", "/v1/responses/{id}",
      [&state](const http::ExchangePtr& exchange) { remove(state, exchange); });
}

}  // namespace fathom::serve
