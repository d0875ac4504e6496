#pragma once
// Clients that vanish in the middle of their streams, half of them with FIN and half with RST, all at once;
// and how long the server, idle before, takes until nothing of them is left: no open request, no running
// sequence, no block in use or fenced.
//
//   VanishOutcome outcome = run_vanishing_clients({.url = url, .num_clients = 1000, .vocab_size = 2048});
//   outcome.problem.empty() && outcome.seconds <= 1
//
// Blocking; for one thread.

#include <string>

namespace fathom::bench {

struct VanishOptions {
  std::string url;  // http://127.0.0.1:PORT
  int num_clients = 1000;
  int vocab_size = 0;
};

struct VanishOutcome {
  double seconds = 0;  // from the first that goes
  std::string problem;
};

VanishOutcome run_vanishing_clients(const VanishOptions& options);

}  // namespace fathom::bench
