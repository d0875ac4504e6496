#include "http/router.h"

#include <gtest/gtest.h>

#include <string>

namespace fathom::http {
namespace {

Router router() {
  Router router;
  const auto add = [&](const char* method, const char* path, ClientForm form) {
    router.add(
        {.method = method, .path = path, .handler = [](const ExchangePtr&) {}, .form = form});
  };
  add("POST", "/v1/responses", ClientForm::kOpenAi);
  add("GET", "/v1/models/{id}", ClientForm::kOpenAi);
  add("POST", "/v1/messages", ClientForm::kAnthropic);
  add("GET", "/livez", ClientForm::kOpenAi);
  return router;
}

std::string route_of(const Router::Found& found) {
  return found.route == nullptr ? "none" : found.route->path;
}

TEST(Router, finds_a_path_with_no_version_and_with_two) {
  const Router routes = router();
  for (const char* path : {"/v1/responses", "/responses", "/v1/v1/responses"}) {
    EXPECT_EQ(route_of(routes.find("POST", path)), "/v1/responses") << path;
    EXPECT_EQ(routes.find("DELETE", path).allowed_methods, "POST") << path;
  }
  EXPECT_EQ(route_of(routes.find("GET", "/livez")), "/livez");
  for (const char* path : {"/v1/v1/v1/responses", "/v1/livez", "/v1", "/v1/v1", "/v1responses",
                           "/v1/v1livez", "/v2/responses", "/"}) {
    EXPECT_EQ(route_of(routes.find("POST", path)), "none") << path;
    EXPECT_EQ(routes.find("POST", path).allowed_methods, "") << path;
  }
}

TEST(Router, says_where_the_parameter_is_in_the_path_as_it_came) {
  const Router routes = router();
  for (const std::string path : {"/v1/models/a/b", "/models/a/b", "/v1/v1/models/a/b"}) {
    const Router::Found found = routes.find("GET", path);
    EXPECT_EQ(found.parameter, "a/b") << path;
    EXPECT_EQ(path.substr(found.parameter_begin), "a/b") << path;
  }
}

TEST(Router, knows_whose_api_a_path_without_a_route_is_of) {
  const Router routes = router();
  EXPECT_EQ(routes.find("POST", "/messages").form, ClientForm::kAnthropic);
  EXPECT_EQ(routes.find("GET", "/v1/messages").form, ClientForm::kAnthropic);
  EXPECT_EQ(routes.find("POST", "/v1/messages/batches").form, ClientForm::kAnthropic);
  EXPECT_EQ(routes.find("POST", "/v1/messages_").form, ClientForm::kOpenAi);
  EXPECT_EQ(routes.find("POST", "/v1/nothing").form, ClientForm::kOpenAi);
}

}  // namespace
}  // namespace fathom::http
