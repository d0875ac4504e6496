#pragma once
// What each API key has used, for /metrics: requests and tokens by the key's name.
//
//   KeyTokens used(registry);
//   used.add(record);         // as its answer ends
//
//   fathom:key_completion_tokens_total{key_name="team-a"} 1234
//
// Nothing is counted of requests without a key. Names are the operator's; beyond 512 of them, which reloads of the key
// file may bring, the rest are counted together as "other". Thread-safe. The registry outlives it.

#include <map>
#include <string>

#include "answer/answer.h"
#include "base/mutex.h"
#include "metrics/registry.h"

namespace fathom::serve {

class KeyTokens {
 public:
  explicit KeyTokens(metrics::Registry& registry) : registry_(registry) {}

  void add(const answer::AnswerRecord& record);

 private:
  struct Counters {
    metrics::Counter *requests, *prompt, *cached, *completion;
  };
  Counters& counters(const std::string& key_name) FATHOM_REQUIRES(mutex_);
  metrics::Counter& counter(const char* name, const char* help, const std::string& key_name);

  metrics::Registry& registry_;
  Mutex mutex_;
  std::map<std::string, Counters> counters_ FATHOM_GUARDED_BY(mutex_);
};

}  // namespace fathom::serve
