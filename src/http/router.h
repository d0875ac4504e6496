#pragma once
// Router: which handler answers which method and path, and what a caller must show to reach it. Access is
// decided on the matched route and nothing else; a route without a rule does not exist.
//
// A path that is no route's is tried with /v1 before it, and without one of two (/v1/v1/models): clients are given base
// URLs with and without the version, and add their own.
//
//   Router router;
//   router.add({.method = "GET", .path = "/v1/models/{id}", .access = Access::kInference, .handler = ...});
//
// Built before the server starts, read-only and thread-safe afterwards.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "http/exchange.h"

namespace fathom::http {

enum class Access {
  kOpen,       // nobody is asked: /livez, /readyz, and probes and metrics that the operator opened
  kInference,  // any API key
  kAdmin,      // an admin key; when there is none, the API key if it is the only one
  kPage,  // as kInference, and a browser is told to ask for the key (Basic, the key as password)
};

struct Route {
  std::string method;
  // Exact; one last segment may be "{name}": a non-empty rest, which may hold slashes.
  std::string path;
  Access access = Access::kInference;
  std::function<void(ExchangePtr)> handler;
  // A GET that changes something. Refused to browsers: any page can make them send one.
  bool is_for_tools = false;
  // Answered also when there are too many connections: at once, without a body to read.
  bool is_probe = false;
  ClientForm form = ClientForm::kOpenAi;
  // Anthropic's API has the path too: its form for clients that send anthropic-version.
  bool is_of_both_apis = false;
};

class Router {
 public:
  void add(Route route);  // aborts when method and path are taken

  struct Found {
    const Route* route = nullptr;                // null: no such path, or not with this method
    std::string parameter;                       // what "{name}" stands for
    size_t parameter_begin = std::string::npos;  // where in the path it begins
    std::string allowed_methods;  // not empty: the path exists with these ("GET, POST")
    // Of the route; of a path without one, that of the route that it is below.
    ClientForm form = ClientForm::kOpenAi;
  };
  Found find(std::string_view method, std::string_view path) const;
  const std::vector<Route>& routes() const { return routes_; }

 private:
  Found find_exactly(std::string_view method, std::string_view path) const;

  std::vector<Route> routes_;
};

}  // namespace fathom::http
