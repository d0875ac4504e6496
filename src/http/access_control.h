#pragma once
// Who may call which route: decided on the matched route object, never on a string of the request.
//
//   const AccessDecision decision = decide_access(keys, found.route, head.headers, Logins::kAll);
//   if (decision.error) answer(*decision.error);
//
// Pure functions, thread-safe.

#include <optional>
#include <string>

#include "http/key_store.h"
#include "http/message.h"
#include "http/router.h"
#include "http/transport_error.h"

namespace fathom::http {

struct AccessDecision {
  std::optional<TransportError> error;
  const KeyStore::Key* key = nullptr;  // of the store; null: none was needed
};

// Which forms of the Authorization header count. A browser that has a Basic login for this server sends it with the
// calls of any page, so for a page of another origin (BrowserDecision::is_foreign) it proves nothing: only a bearer
// key, which the page must know itself, counts.
enum class Logins { kAll, kBearerOnly };

// route null (no such path or method): decided as for a route that any key may call, so that who has no key cannot find
// out which routes there are.
AccessDecision decide_access(const KeyStore& keys, const Route* route, const Headers& headers,
                             Logins logins);

// The challenge of a 401. Browsers ask their user for a key only on a page's own route: the answers to a
// page's calls go to its scripts.
std::string challenge_for(const Route* route);

}  // namespace fathom::http
