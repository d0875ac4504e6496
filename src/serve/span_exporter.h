#pragma once
// SpanExporter: sends the spans of finished requests (serve/request_spans.h) to an OpenTelemetry collector, OTLP over
// HTTP in JSON, in batches, from a thread of its own.
//
//   SpanCounters counters(registry);
//   SpanExporter exporter({.url = "http://127.0.0.1:4318/v1/traces", .source = source}, counters);
//   exporter.add(record);              // as an answer ends; never waits
//
// Answers never wait for a collector: what a bounded queue has no room for is dropped and counted, and so is a batch
// that the collector did not take at a second try. Thread-safe. The destructor sends one batch more, and waits for
// that a few seconds at most. The registry outlives it.

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "answer/answer.h"
#include "base/mutex.h"
#include "client/client.h"
#include "metrics/registry.h"
#include "serve/request_spans.h"

namespace fathom::serve {

// What became of requests' spans; 0 where they go nowhere.
struct SpanCounters {
  explicit SpanCounters(metrics::Registry& registry);
  metrics::Counter &sent, &dropped;
};

class SpanExporter {
 public:
  struct Config {
    std::string url;
    SpanSource source;
    size_t max_queued = 4096;                  // requests
    std::chrono::milliseconds interval{1000};  // between batches
    std::chrono::milliseconds timeout{3000};   // of one
  };
  SpanExporter(Config config, const SpanCounters& counters);
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  void add(const answer::AnswerRecord& record);

 private:
  void run();
  void send(std::vector<RequestTrace> batch);
  bool post(const std::string& body);

  const Config config_;
  const SpanCounters counters_;
  client::Client client_;
  bool was_taken_ = true;  // the last batch; of the thread
  Mutex mutex_;
  CondVar wake_;
  std::vector<RequestTrace> queue_ FATHOM_GUARDED_BY(mutex_);
  bool stops_ FATHOM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

// A collector's URL; without a path the one that OTLP has for traces. Throws StartupError where it is none.
std::string traces_url(const std::string& endpoint);

}  // namespace fathom::serve
