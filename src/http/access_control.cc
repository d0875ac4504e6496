#include "http/access_control.h"

#include <string_view>

#include "base/base64.h"
#include "http/header_syntax.h"

namespace fathom::http {
namespace {

// The key in "Bearer KEY" or in "Basic base64(USER:KEY)".
std::optional<std::string> presented_key(std::string_view authorization, Logins logins) {
  const size_t space = authorization.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const std::string_view scheme = authorization.substr(0, space);
  const std::string_view credentials = trim(authorization.substr(space + 1));
  if (equals_ignoring_case(scheme, "bearer")) return std::string(credentials);
  if (logins == Logins::kBearerOnly || !equals_ignoring_case(scheme, "basic")) return std::nullopt;
  const std::optional<std::string> user_and_key = decode_base64(credentials);
  if (!user_and_key) return std::nullopt;
  const size_t colon = user_and_key->find(':');
  if (colon == std::string::npos) return std::nullopt;
  return user_and_key->substr(colon + 1);
}

// x-api-key, where clients of Anthropic's API and of llama.cpp have it, holds a key without "Bearer". It counts on
// every route, without Authorization: a client has one way to send its key, whichever endpoint it calls.
std::optional<std::string> key_in(const Headers& headers, Logins logins) {
  const bool is_bare =
      count_of(headers, "authorization") == 0 && count_of(headers, "x-api-key") > 0;
  return is_bare ? std::string(trim(value_of(headers, "x-api-key")))
                 : presented_key(value_of(headers, "authorization"), logins);
}

// An inference key opens everything but what an admin key guards; an admin key opens everything. Of several inference
// keys none may end or hold up what the others do, so without an admin key nobody may.
std::optional<TransportError> refusal_of(const KeyStore& keys, const KeyStore::Key& key,
                                         Access access) {
  if (key.role == KeyRole::kAdmin || access != Access::kAdmin) return std::nullopt;
  if (keys.has_role(KeyRole::kAdmin)) return TransportError::kUnauthorized;
  if (keys.num_of(KeyRole::kInference) > 1) return TransportError::kNoAdminKey;
  return std::nullopt;
}

bool needs_key(const KeyStore& keys, Access access) {
  if (access == Access::kOpen || keys.empty()) return false;
  // Where the only keys are admin keys, only admin routes ask for one.
  return access == Access::kAdmin || keys.has_role(KeyRole::kInference);
}

}  // namespace

AccessDecision decide_access(const KeyStore& keys, const Route* route, const Headers& headers,
                             Logins logins) {
  if (count_of(headers, "authorization") > 1 || count_of(headers, "x-api-key") > 1)
    return {.error = TransportError::kRepeatedAuthorization};
  const Access access = route != nullptr ? route->access : Access::kInference;
  if (!needs_key(keys, access)) return {};
  const std::optional<std::string> presented = key_in(headers, logins);
  const KeyStore::Key* key = presented ? keys.find(*presented) : nullptr;
  if (key == nullptr) return {.error = TransportError::kUnauthorized};
  if (const auto refusal = refusal_of(keys, *key, access)) return {.error = refusal};
  return {.error = std::nullopt, .key = key};
}

std::string challenge_for(const Route* route) {
  return route != nullptr && route->access == Access::kPage
             ? R"(Basic realm="fathom: any user name, the API key as password", charset="UTF-8")"
             : R"(Bearer realm="fathom")";
}

}  // namespace fathom::http
