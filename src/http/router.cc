#include "http/router.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fathom::http {
namespace {

// The fixed part of "/v1/models/{id}" up to the brace; the whole path when there is no parameter.
std::string_view fixed_part(std::string_view path) { return path.substr(0, path.find('{')); }

constexpr std::string_view kVersion = "/v1";

bool has_parameter(const Route& route) { return route.path.back() == '}'; }

bool matches(const Route& route, std::string_view path, std::string* parameter) {
  if (!has_parameter(route)) return route.path == path;
  const std::string_view fixed = fixed_part(route.path);
  if (path.size() <= fixed.size() || path.substr(0, fixed.size()) != fixed) return false;
  *parameter = path.substr(fixed.size());
  return true;
}

}  // namespace

void Router::add(Route route) {
  FATHOM_CHECK(!route.path.empty() && route.path.front() == '/', "path " << route.path);
  FATHOM_CHECK(route.method != "HEAD" && route.method != "OPTIONS",
               route.method << " is answered by the transport");
  FATHOM_CHECK(fixed_part(route.path).size() == route.path.size() || has_parameter(route),
               "the parameter of " << route.path << " must be the last segment");
  for (const Route& other : routes_)
    FATHOM_CHECK(other.method != route.method || other.path != route.path,
                 route.method << " " << route.path << " is taken");
  routes_.push_back(std::move(route));
}

Router::Found Router::find_exactly(std::string_view method, std::string_view path) const {
  Found found;
  // An exact path goes before one with a parameter.
  for (const bool with_parameter : {false, true}) {
    for (const Route& route : routes_) {
      std::string parameter;
      if (has_parameter(route) != with_parameter || !matches(route, path, &parameter)) continue;
      found.form = route.form;
      found.allowed_methods += (found.allowed_methods.empty() ? "" : ", ") + route.method;
      if (route.method == "GET") found.allowed_methods += ", HEAD";
      if (route.method == method && found.route == nullptr) {
        found.route = &route;
        if (with_parameter) found.parameter_begin = path.size() - parameter.size();
        found.parameter = std::move(parameter);
      }
    }
    if (!found.allowed_methods.empty()) break;
  }
  return found;
}

Router::Found Router::find(std::string_view method, std::string_view path) const {
  Found found = find_exactly(method, path);
  if (!found.allowed_methods.empty()) return found;
  const bool has_version =
      path.starts_with(kVersion) && path.substr(kVersion.size()).starts_with('/');
  const std::string other = has_version ? std::string(path.substr(kVersion.size()))
                                        : std::string(kVersion) + std::string(path);
  if (!has_version || other.starts_with(std::string(kVersion) + "/")) {
    Found renamed = find_exactly(method, other);
    if (!renamed.allowed_methods.empty()) {
      // In the path as it came.
      if (renamed.parameter_begin != std::string::npos)
        renamed.parameter_begin = renamed.parameter_begin + path.size() - other.size();
      return renamed;
    }
  }
  const auto above = std::ranges::find_if(routes_, [&](const Route& route) {
    return !has_parameter(route) && path.starts_with(route.path) &&
           path.substr(route.path.size()).starts_with('/');
  });
  if (above != routes_.end()) found.form = above->form;
  return found;
}

}  // namespace fathom::http
