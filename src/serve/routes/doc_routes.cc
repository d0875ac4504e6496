// What the API is, made of the tables that its parsers refuse by: GET /openapi.json and a page of it, GET /docs.

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/tables/docs_page.h"
#include "api/tables/openapi.h"
#include "base/json.h"
#include "serve/server_state.h"

namespace fathom::serve {
namespace {

struct Summary {
  std::string_view path, text;
};

// The headings of /docs, and what stands below them, in order.
struct SummaryGroup {
  std::string_view title;
  std::vector<Summary> summaries;
};

const std::vector<SummaryGroup>& summary_groups() {
  static const std::vector<SummaryGroup> groups = {
      {"Generation",
       {
           {"/v1/chat/completions", "an answer to a conversation"},
           {"/chat/completions", "as /v1/chat/completions"},
           {"/beta/chat/completions", "as /v1/chat/completions"},
           {"/v1/completions", "the continuation of a text"},
           {"/completions", "as /v1/completions"},
           {"/beta/completions", "as /v1/completions"},
           {"/v1/responses", "an answer in the form of OpenAI's Responses"},
           {"/v1/responses/{id}", "a stored answer, or its end"},
           {"/v1/messages", "an answer in the form of Anthropic's Messages"},
           {"/anthropic/v1/messages", "as /v1/messages"},
           {"/generate", "SGLang's native API"},
       }},
      {"Tokens and text",
       {
           {"/v1/messages/count_tokens", "how many tokens a conversation has"},
           {"/anthropic/v1/messages/count_tokens", "as /v1/messages/count_tokens"},
           {"/tokenize", "text or a conversation to token ids"},
           {"/v1/tokenize", "as /tokenize"},
           {"/detokenize", "token ids to text"},
           {"/v1/detokenize", "as /detokenize"},
           {"/v1/score", "how likely tokens are behind a query and each of some items"},
           {"/parse_function_call", "text of a model to its tool calls"},
           {"/separate_reasoning", "text of a model to its reasoning and the rest"},
       }},
      {"Model and server",
       {
           {"/v1/models", "what is served"},
           {"/models", "as /v1/models"},
           {"/v1/models/{id}", "one served model"},
           {"/models/{id}", "as /v1/models/{id}"},
           {"/model_info", "the checkpoint"},
           {"/get_model_info", "as /model_info"},
           {"/server_info", "every setting and the engine's state"},
           {"/get_server_info", "as /server_info"},
           {"/load", "how many requests run and wait, as vLLM says it"},
           {"/get_load", "how many requests run and wait, as SGLang says it"},
           {"/v1/loads", "what runs and waits and how full the memory is, as SGLang says it"},
           {"/version", "the server's version"},
       }},
      {"Health and metrics",
       {
           {"/metrics", "metrics for Prometheus"},
           {"/livez", "whether the process lives"},
           {"/readyz", "whether requests are taken"},
           {"/health", "as /readyz"},
           {"/ping", "as /readyz"},
           {"/health_generate", "as /readyz, and generates a token"},
       }},
      {"For operators",
       {
           {"/flush_cache", "empties the prefix cache"},
           {"/start_profile", "begins a trace"},
           {"/stop_profile", "ends and writes a trace"},
           {"/abort_request", "ends requests by their rid"},
           {"/pause_generation", "holds every request until /continue_generation"},
           {"/continue_generation", "ends a pause"},
       }},
      {"This description",
       {
           {"/openapi.json", "this description"},
           {"/docs", "this description as a page"},
       }},
  };
  return groups;
}

http::Route doc_route(const char* path, http::Access access, http::Response response) {
  auto handler = [response = std::make_shared<const http::Response>(std::move(response))](
                     const http::ExchangePtr& exchange) { exchange->send(*response); };
  return {.method = "GET", .path = path, .access = access, .handler = std::move(handler)};
}

// With their summaries, in the order of the headings; what has none stands last, without.
std::vector<api::OpenApiOperation> in_order(std::vector<api::OpenApiOperation> operations) {
  std::vector<api::OpenApiOperation> ordered;
  for (const SummaryGroup& group : summary_groups()) {
    for (const Summary& summary : group.summaries) {
      for (api::OpenApiOperation& operation : operations) {
        if (operation.path != summary.path) continue;
        operation.summary = summary.text;
        operation.group = group.title;
        ordered.push_back(operation);
      }
    }
  }
  std::ranges::copy_if(
      operations, std::back_inserter(ordered),
      [](const api::OpenApiOperation& operation) { return operation.group.empty(); });
  return ordered;
}

http::Response page_of(const api::OpenApiFacts& facts) {
  http::Response response;
  response.content_type = "text/html; charset=utf-8";
  response.headers = {
      {"Cache-Control", "no-cache"},
      {"Content-Security-Policy",
       "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"}};
  response.body = api::docs_page(facts);
  return response;
}

}  // namespace

// Called when all other routes are there: it describes them.
void add_doc_routes(http::Router& router, ServerState& state) {
  const std::vector<http::Route>& routes = router.routes();
  std::vector<api::OpenApiOperation> operations;
  for (const http::Route& route : routes) {
    // The page's own files are no API.
    if (route.access == http::Access::kPage) continue;
    operations.push_back({.method = route.method,
                          .path = route.path,
                          .needs_key = route.access != http::Access::kOpen});
  }
  for (const char* path : {"/openapi.json", "/docs"})
    operations.push_back({.method = "GET", .path = path});
  api::OpenApiFacts facts{.version = state.config.settings->value("version", ""),
                          .model = state.config.model.name(),
                          .unknown_fields = state.config.model.unknown_fields,
                          .operations = in_order(std::move(operations))};
  router.add(doc_route("/openapi.json", http::Access::kInference,
                       json_response(api::openapi_document(facts))));
  router.add(doc_route("/docs", http::Access::kPage, page_of(facts)));
}

}  // namespace fathom::serve
