// Thousands of concurrent streams against `fathom serve --engine sim`: nothing lost, duplicated or reordered,
// every token in time, so much memory per stream; then clients that vanish in the middle of their streams.
// tools/load_test.sh starts the server and runs this; docs/perf/load.md has figures. Exit status 1: a bound
// is not held.

#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "base/json.h"
#include "bench/http/checked_stream.h"
#include "bench/http/step_delays.h"
#include "bench/http/vanishing_clients.h"
#include "client/client.h"

namespace fathom::bench {
namespace {

using std::chrono::seconds;

struct Options {
  std::string url;
  int pid = 0, step_us = 0;
  int num_streams = 5000, num_vanishing = 1000, num_threads = 2, vocab_size = 2048;
  double seconds = 60, ramp_seconds = 10;
  double max_p99_ms = 100, max_stream_kib = 64, max_vanish_seconds = 1;
};

// Of /proc/PID: what the server has taken so far.
struct ProcessUse {
  int64_t resident_bytes = 0;
  double cpu_seconds = 0;
};

ProcessUse process_use(int pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  ProcessUse use;
  std::ifstream status(folder + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) use.resident_bytes = std::stoll(line.substr(6)) * 1024;
  }
  std::ifstream stat(folder + "/stat");
  std::string text;
  std::getline(stat, text);
  // After the name in brackets: state is field 3, user and system time are fields 14 and 15.
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  use.cpu_seconds = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return use;
}

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Streams of one run, spread over client threads. Each stream belongs to its thread until all are done.
class StreamRun {
 public:
  StreamRun(const Options& options, int first_index, int num_streams, int num_tokens)
      : options_(options) {
    for (int i = 0; i < num_streams; ++i)
      streams_.push_back(std::make_unique<CheckedStream>(StreamPlan{
          .index = first_index + i, .num_tokens = num_tokens, .vocab_size = options.vocab_size}));
    for (int i = 0; i < options.num_threads; ++i)
      clients_.push_back(std::make_unique<client::Client>());
  }

  // Opens them evenly within the time.
  void open(double ramp_seconds) {
    const Stopwatch watch;
    for (size_t i = 0; i < streams_.size(); ++i) {
      const double due =
          ramp_seconds * static_cast<double>(i) / static_cast<double>(streams_.size());
      if (const double early = due - watch.seconds(); early > 0)
        std::this_thread::sleep_for(std::chrono::duration<double>(early));
      send(*streams_[i], *clients_[i % clients_.size()]);
    }
  }
  bool is_done() const { return num_done_ == static_cast<int>(streams_.size()); }
  int num_begun() const { return num_begun_; }
  int num_done() const { return num_done_; }
  // Once is_done().
  const std::vector<std::unique_ptr<CheckedStream>>& streams() const { return streams_; }

 private:
  void send(CheckedStream& stream, client::Client& client) {
    client.send({.method = "POST", .url = options_.url + "/generate", .body = stream.body()},
                {.on_body =
                     [this, &stream](std::string_view bytes) {
                       const bool had_begun = stream.has_begun();
                       stream.feed(bytes);
                       if (!had_begun && stream.has_begun()) ++num_begun_;
                     },
                 .on_done =
                     [this, &stream](const client::ClientResponse& response) {
                       stream.finish(response.status, response.error);
                       ++num_done_;
                     }});
  }

  const Options& options_;
  std::vector<std::unique_ptr<CheckedStream>> streams_;
  std::atomic<int> num_begun_ = 0, num_done_ = 0;
  std::vector<std::unique_ptr<client::Client>> clients_;  // last: ends before what it calls
};

struct Outcome {
  int num_problems = 0;
  int64_t num_joined_tokens = 0;
  std::string first_problem;
  StepDelays delays;
  double all_open_seconds = 0, stream_kib = 0, server_cores = 0;
  int64_t idle_bytes = 0, peak_bytes = 0;
};

// Runs until all streams have ended; the server's use is taken while all are open.
void watch(StreamRun& run, const Options& options, Outcome& outcome) {
  const Stopwatch since_start;
  const double patience = 4 * (options.seconds + options.ramp_seconds) + 60;
  double open_since = -1, cpu_then = 0;
  while (!run.is_done() && since_start.seconds() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const ProcessUse use = process_use(options.pid);
    if (run.num_begun() < options.num_streams || run.num_done() > 0) continue;
    if (open_since < 0) {
      open_since = since_start.seconds();
      cpu_then = use.cpu_seconds;
    }
    outcome.peak_bytes = std::max(outcome.peak_bytes, use.resident_bytes);
    outcome.all_open_seconds = since_start.seconds() - open_since;
    if (outcome.all_open_seconds > 0)
      outcome.server_cores = (use.cpu_seconds - cpu_then) / outcome.all_open_seconds;
  }
}

void judge(const StreamRun& run, const Options& options, Outcome& outcome) {
  if (!run.is_done()) {
    outcome.num_problems = options.num_streams - run.num_done();
    outcome.first_problem = std::to_string(outcome.num_problems) + " streams did not end in time";
    return;
  }
  std::vector<const Arrivals*> arrivals;
  for (const auto& stream : run.streams()) {
    arrivals.push_back(&stream->arrivals());
    outcome.num_joined_tokens += stream->num_joined_tokens();
    if (stream->problem().empty()) continue;
    if (outcome.num_problems++ == 0) outcome.first_problem = stream->problem();
  }
  outcome.delays = step_delays(arrivals, std::chrono::microseconds(options.step_us));
  outcome.stream_kib = static_cast<double>(outcome.peak_bytes - outcome.idle_bytes) / 1024 /
                       static_cast<double>(options.num_streams);
}

// What the first requests allocate for good does not count as the streams' memory.
void warm_up(const Options& options) {
  StreamRun run(options, 1'000'000, std::max(1, options.num_streams / 50), 5);
  run.open(0);
  const Stopwatch watch;
  while (!run.is_done() && watch.seconds() < 60)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

Outcome run_streams(const Options& options) {
  warm_up(options);
  std::this_thread::sleep_for(seconds(1));
  Outcome outcome;
  outcome.idle_bytes = process_use(options.pid).resident_bytes;
  // Long enough that the first is still there `seconds` after the last has begun.
  const double length = options.seconds + options.ramp_seconds + 1;
  const int num_tokens = static_cast<int>(length * 1e6 / options.step_us) + 5;
  StreamRun run(options, 0, options.num_streams, num_tokens);
  run.open(options.ramp_seconds);
  watch(run, options, outcome);
  judge(run, options, outcome);
  return outcome;
}

class Report {
 public:
  void row(bool holds, const char* name, double value, const char* unit, const std::string& bound) {
    all_hold_ = all_hold_ && holds;
    std::printf("%-34s %12.3f %-8s %-12s %s\n", name, value, unit, bound.c_str(),
                bound.empty() ? "" : (holds ? "holds" : "FAILS"));
  }
  void show(const char* name, double value, const char* unit) { row(true, name, value, unit, ""); }
  // A bound of 0 is not judged.
  void at_most(const char* name, double value, const char* unit, double bound) {
    if (bound <= 0) return show(name, value, unit);
    char text[32];
    std::snprintf(text, sizeof text, "<= %g", bound);
    row(value <= bound, name, value, unit, text);
  }
  bool all_hold() const { return all_hold_; }

 private:
  bool all_hold_ = true;
};

int run(const Options& options) {
  raise_file_limit();
  const Outcome outcome = run_streams(options);
  Report report;
  report.show("streams", options.num_streams, "");
  report.show("tokens", static_cast<double>(outcome.delays.num_tokens), "");
  report.row(outcome.all_open_seconds >= options.seconds, "all streams open",
             outcome.all_open_seconds, "s",
             ">= " + std::to_string(static_cast<int>(options.seconds)));
  report.row(outcome.num_problems == 0, "streams with a wrong token", outcome.num_problems, "",
             "0");
  report.show("tokens joined in one event", static_cast<double>(outcome.num_joined_tokens), "");
  report.show("delay p50", outcome.delays.p50_ms, "ms");
  report.at_most("delay p99", outcome.delays.p99_ms, "ms", options.max_p99_ms);
  report.show("delay p99.9", outcome.delays.p999_ms, "ms");
  report.show("delay max", outcome.delays.max_ms, "ms");
  report.show("behind the step's first, p99", outcome.delays.spread_p99_ms, "ms");
  report.show("server memory, idle", static_cast<double>(outcome.idle_bytes) / (1 << 20), "MiB");
  report.show("server memory, all open", static_cast<double>(outcome.peak_bytes) / (1 << 20),
              "MiB");
  report.at_most("memory per stream", outcome.stream_kib, "KiB", options.max_stream_kib);
  report.show("server's processor use", outcome.server_cores, "cores");
  if (options.num_vanishing > 0) {
    const VanishOutcome vanished = run_vanishing_clients({.url = options.url,
                                                          .num_clients = options.num_vanishing,
                                                          .vocab_size = options.vocab_size});
    report.row(vanished.problem.empty(), "vanishing clients", options.num_vanishing, "",
               "all begin");
    report.at_most("blocks and slots back after", vanished.seconds, "s",
                   options.max_vanish_seconds);
    if (!vanished.problem.empty()) std::printf("%s\n", vanished.problem.c_str());
  }
  if (!outcome.first_problem.empty()) std::printf("%s\n", outcome.first_problem.c_str());
  return report.all_hold() ? 0 : 1;
}

}  // namespace
}  // namespace fathom::bench

int main(int argc, char** argv) {
  fathom::bench::Options options;
  CLI::App app("Load on the simulation backend: exact, timed streams and clients that vanish");
  app.add_option("--url", options.url, "The server, http://127.0.0.1:PORT")->required();
  app.add_option("--pid", options.pid, "Its process, for memory and processor time")->required();
  app.add_option("--step-us", options.step_us, "Its --sim-step-us")->required();
  app.add_option("--streams", options.num_streams)->check(CLI::Range(1, 100'000));
  app.add_option("--seconds", options.seconds, "For which all streams are open");
  app.add_option("--ramp-seconds", options.ramp_seconds, "In which they are opened");
  app.add_option("--vanish", options.num_vanishing, "Clients that vanish; 0 = none");
  app.add_option("--threads", options.num_threads, "Of the client")->check(CLI::Range(1, 64));
  app.add_option("--vocab-size", options.vocab_size);
  app.add_option("--max-p99-ms", options.max_p99_ms, "0 = not judged");
  app.add_option("--max-stream-kib", options.max_stream_kib, "0 = not judged");
  app.add_option("--max-vanish-seconds", options.max_vanish_seconds, "0 = not judged");
  CLI11_PARSE(app, argc, argv);
  return fathom::bench::run(options);
}
