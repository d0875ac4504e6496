#include "serve/span_exporter.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/startup_error.h"
#include "client/url.h"

namespace fathom::serve {
namespace {

// Requests of one batch, of some 2 KB each as JSON.
constexpr size_t kMaxBatch = 256;

int64_t unix_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string traces_url(const std::string& endpoint) {
  const Result<client::Url> url = client::parse_url(endpoint);
  if (!url) {
    throw StartupError("--otlp-traces-endpoint: " + url.error().message +
                       ": spans are sent as OTLP over HTTP, http://HOST:4318/v1/traces, not gRPC");
  }
  if (url->target != "/") return endpoint;
  return endpoint + (endpoint.ends_with('/') ? "v1/traces" : "/v1/traces");
}

SpanCounters::SpanCounters(metrics::Registry& registry)
    : sent(registry.counter(
          {.name = "fathom:traces_sent_total", .help = "Requests whose spans a collector took."})),
      dropped(registry.counter({.name = "fathom:traces_dropped_total",
                                .help = "Requests whose spans found no room or no collector."})) {}

SpanExporter::SpanExporter(Config config, const SpanCounters& counters)
    : config_(std::move(config)), counters_(counters), thread_([this] { run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SpanExporter::add(const answer::AnswerRecord& record) {
  RequestTrace trace = request_trace(record, unix_ns());
  if (!is_sampled(trace)) return;
  bool is_full_batch = false;
  {
    const MutexLock lock(mutex_);
    if (queue_.size() >= config_.max_queued) return counters_.dropped.add();
    queue_.push_back(std::move(trace));
    is_full_batch = queue_.size() % kMaxBatch == 0;
  }
  if (is_full_batch) wake_.notify_one();
}

void SpanExporter::run() {
  MutexLock lock(mutex_);
  while (!stops_) {
    wake_.wait_for(lock, config_.interval, [this]() FATHOM_REQUIRES(mutex_) {
      return stops_ || queue_.size() >= kMaxBatch;
    });
    if (queue_.empty()) continue;
    const size_t count = std::min(queue_.size(), kMaxBatch);
    const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<RequestTrace> batch(std::make_move_iterator(queue_.begin()),
                                    std::make_move_iterator(end));
    queue_.erase(queue_.begin(), end);
    lock.unlock();
    send(std::move(batch));
    lock.lock();
  }
  counters_.dropped.add(static_cast<double>(queue_.size()));
}

void SpanExporter::send(std::vector<RequestTrace> batch) {
  const std::string body = otlp_json(batch, config_.source);
  bool is_taken = post(body);
  if (!is_taken) {
    // A collector that begins anew is back soon; more would keep others waiting.
    MutexLock lock(mutex_);
    const bool stops =
        wake_.wait_for(lock, config_.interval, [this]() FATHOM_REQUIRES(mutex_) { return stops_; });
    lock.unlock();
    is_taken = !stops && post(body);
  }
  (is_taken ? counters_.sent : counters_.dropped).add(static_cast<double>(batch.size()));
}

bool SpanExporter::post(const std::string& body) {
  const client::ClientResponse response = client_.call(
      {.method = "POST", .url = config_.url, .body = body, .timeout = config_.timeout});
  const bool is_taken = response.ok();
  // Once for each time that it stops taking them.
  if (!is_taken && was_taken_) {
    const std::string why =
        response.error.empty() ? "status " + std::to_string(response.status) : response.error;
    FATHOM_LOG(kWarning, "server", "spans are not taken", {{"url", config_.url}, {"why", why}});
  }
  was_taken_ = is_taken;
  return is_taken;
}

}  // namespace fathom::serve
