#pragma once
// BrowserPolicy: which web pages may call. A browser makes its user's machine call whatever a page names, so a server
// without keys is open to every page that the user visits unless three headers that no page can forge are looked at:
//
//   Host            a name that somebody else's DNS points at this server (DNS rebinding) is not ours
//   Origin          which page calls: this server's own, one that --cors-origin names, or somebody else's
//   Sec-Fetch-Site  the same for calls that have no Origin: images, scripts, links
//
//   const BrowserPolicy policy({.host = "127.0.0.1", .bound_address = "127.0.0.1"});
//   const BrowserDecision decision = policy.decide(head, route, keys.has_role(KeyRole::kInference));
//   if (decision.error) reject(*decision.error, decision.named);
//
// Clients that are no browsers send neither Origin nor Sec-Fetch-*, and pass. Immutable, thread-safe.

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/message.h"
#include "http/router.h"
#include "http/transport_error.h"

namespace fathom::http {

struct BrowserPolicyConfig {
  std::string host;                             // as the operator named it
  std::string bound_address;                    // what it resolved to
  bool is_tls = false;                          // a page over plain HTTP is then another origin
  std::vector<std::string> allowed_hosts = {};  // names or addresses without a port; "*": any
  std::vector<std::string> cors_origins = {};   // "https://app.example.org"; "*": any
};

struct BrowserDecision {
  std::optional<TransportError> error = {};
  std::string named = {};        // what the error is about; empty when it has no plain form
  std::string cors_origin = {};  // for Access-Control-Allow-Origin; empty: no such header
  // The call comes from a page of another origin that is let in. A login that the browser keeps for this server is the
  // user's and not that page's, so it does not count.
  bool is_foreign = false;
};

class BrowserPolicy {
 public:
  // Errors name the entry and the rule.
  static Result<BrowserPolicy> create(const BrowserPolicyConfig& config);

  // asks_for_key: the server has API keys. Then a Host is only looked at where allowed_hosts says which.
  // route null: none matched.
  BrowserDecision decide(const Headers& headers, const Route* route, bool asks_for_key) const;
  // Whether the answer's CORS header depends on who asks.
  bool varies_by_origin() const { return takes_any_origin_ || !cors_origins_.empty(); }

 private:
  BrowserPolicy() = default;

  bool is_own_host(std::string_view host) const;
  bool is_own_origin(std::string_view origin, std::string_view host) const;
  BrowserDecision decide_origin(const Headers& headers) const;

  std::set<std::string> hosts_, cors_origins_;  // in the form that they are compared in
  bool takes_any_host_ = false, takes_any_address_ = false, takes_any_origin_ = false;
  bool names_hosts_ = false, is_tls_ = false;
};

// Whether a browser sent it. For routes that tools may call with GET although it changes something.
bool is_from_browser(const Headers& headers);

}  // namespace fathom::http
