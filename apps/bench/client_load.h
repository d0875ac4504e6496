#pragma once
// Clients that each send a request, wait for its end and send the next, on an engine's loop in this thread: what a load
// test from outside sees, without a server.
//
//   ClientLoad load(loop);
//   const ClientLoadResult result = load.run(std::move(requests), /*num_clients=*/16);
//   result.tokens_per_second()              // of prompts and answers together
//
// One thread uses it; the loop outlives it. Throws StartupError when a request is refused or fails.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "core/request.h"
#include "engine/step_loop.h"

namespace fathom::apps {

struct ClientAnswer {
  int num_prompt_tokens = 0;
  std::vector<int32_t> tokens;
  // Since its client sent it; its tokens may come several at once.
  double first_token_seconds = 0, seconds = 0;
  int num_first_tokens = 0;  // that came with the first
  core::SpeculationCounts speculation{};

  double tokens_per_second() const;
  // Of the tokens behind the first ones.
  double decode_tokens_per_second() const;
};

struct ClientLoadResult {
  std::vector<ClientAnswer> answers;  // [request]
  double seconds = 0;

  double tokens_per_second() const;
  // The mean of the requests' own.
  double tokens_per_second_of_request() const;
  double accept_length() const;  // 0: nothing was verified
};

class ClientLoad {
 public:
  explicit ClientLoad(engine::StepLoop& loop) : loop_(loop) {}
  // The ids of the requests are set here. `on_end` is told of each end of a request.
  ClientLoadResult run(std::vector<core::Request> requests, int num_clients,
                       const std::function<void()>& on_end = {});

 private:
  engine::StepLoop& loop_;
  core::RequestId first_id_ = 0;  // of the next run
};

}  // namespace fathom::apps
