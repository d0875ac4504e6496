#pragma once
// A server with a few routes for tests: what each does is said beside its name in sample_server.cc.
//
//   const auto server = sample_server();            // or with a config: sample_server({.num_threads = 1})
//   RawConnection connection(server->port());

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/server.h"

namespace fathom::http::tests {

// What happened on the server's side, for tests to wait for.
struct SampleEvents {
  std::atomic<int> num_held{0};    // requests of /hold, /stream/hold and /stream/flood in work
  std::atomic<int> num_closed{0};  // on_close calls
  std::mutex mutex;
  std::vector<ExchangePtr> held;  // of /hold and /stream/hold, until the test takes them
};

Router sample_router(const std::shared_ptr<SampleEvents>& events = nullptr);
ServerConfig sample_config();
std::unique_ptr<Server> sample_server(ServerConfig config = sample_config(),
                                      const std::shared_ptr<SampleEvents>& events = nullptr);

// Polls until the condition holds or, for busy machines, sixty seconds have passed.
bool eventually(const std::function<bool()>& condition);

}  // namespace fathom::http::tests
