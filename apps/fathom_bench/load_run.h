#pragma once
// Sends requests at a rate or a concurrency and times each answer's tokens.
//
//   client::Client client;
//   LoadResult result = run_load(client, {.url = base + "/generate", .requests = requests, .max_concurrency = 32});
//
// Blocks until every request has ended. All bookkeeping runs on the client's thread, so there are no locks.

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "apps/fathom_bench/wire.h"
#include "client/client.h"

namespace fathom::apps {

struct LoadRequest {
  std::string body;
  int prompt_tokens = 0, output_tokens = 0;  // expected
};

struct LoadPlan {
  BenchApi api = BenchApi::kNative;
  std::string url;
  http::Headers headers = {};
  std::vector<LoadRequest> requests = {};
  // Poisson arrivals per second; infinite: all at once.
  double request_rate = std::numeric_limits<double>::infinity();
  int max_concurrency = 0;  // 0 = no bound; time is taken from when a request goes out
  uint64_t seed = 1;
  std::function<void()> on_end = {};  // a request has ended; called by the client's thread
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the plan's order
  double duration_seconds = 0;
};

LoadResult run_load(client::Client& client, const LoadPlan& plan);

}  // namespace fathom::apps
