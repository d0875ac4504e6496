#pragma once
// Registry: all metrics of the process, and their text for Prometheus. One value can have several names: ours
// (`fathom:`) and those that dashboards of other servers know.
//
//   Registry registry(Labels{{"model_name", "demo"}, {"engine_type", "unified"}});
//   Gauge& running = registry.gauge({.name = "fathom:num_running_requests",
//                                    .aliases = {{"sglang:num_running_reqs"}, {"vllm:num_requests_running"}},
//                                    .help = "Sequences that own a slot."});
//   Counter& stopped = registry.counter({.name = "fathom:requests_total",
//                                        .aliases = {{"vllm:request_success_total",
//                                                     Labels{{"finished_reason", "stop"}}}},
//                                        .help = "Requests that ended.", .labels = {{"finish_reason", "stop"}}});
//   std::string text = registry.expose();
//
// Metrics are registered from fixed lists, at start-up or when a series has its first value: names and label values
// are the program's, never a user's, so the number of series is bounded. Handles live as long as the registry.
// Thread-safe; a scrape does not delay those who count.

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "metrics/metric.h"
#include "metrics/text_format.h"

namespace fathom::metrics {

// Another name of the same value. Without labels of its own it has those of the metric.
struct Alias {
  std::string name;
  std::optional<Labels> labels{};
};

struct MetricOptions {
  std::string name;  // with prefix and unit: "fathom:queue_time_seconds"; counters end in _total
  std::vector<Alias> aliases{};
  std::string help{};  // one sentence
  Labels labels{};     // of this series; series of one name differ in values only
};

class Registry {
 public:
  // The labels that every series gets.
  explicit Registry(Labels labels = {});
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // REQUIRES: valid names and labels; a name is used with one kind only, and with distinct labels.
  Counter& counter(const MetricOptions& options);
  Gauge& gauge(const MetricOptions& options);
  Histogram& histogram(const MetricOptions& options, std::vector<double> upper_bounds);

  // Calls `refresh` at the start of every expose(), for values that are read and not counted. The destructor
  // of the returned object ends that, waiting for an expose() under way. `refresh` may not call the registry.
  class Collector {
   public:
    Collector() = default;
    Collector(Collector&& other) noexcept;
    Collector& operator=(Collector&& other) noexcept;
    Collector(const Collector&) = delete;
    Collector& operator=(const Collector&) = delete;
    ~Collector();

   private:
    friend class Registry;
    Collector(Registry* registry, int64_t id) : registry_(registry), id_(id) {}
    Registry* registry_ = nullptr;
    int64_t id_ = 0;
  };
  Collector add_collector(std::function<void()> refresh);

  // Prometheus text format 0.0.4 (Content-Type: text/plain; version=0.0.4). Families in the order of
  // registration.
  std::string expose() const;

 private:
  struct Series;
  struct Family;
  enum class Kind;

  void add(Kind kind, const MetricOptions& options, const std::shared_ptr<Series>& series);
  void add_name(Kind kind, const MetricOptions& options, const Alias& alias,
                const std::shared_ptr<Series>& series) FATHOM_REQUIRES(mutex_);
  void remove_collector(int64_t id);

  const Labels labels_;
  mutable Mutex mutex_;
  std::list<Family> families_ FATHOM_GUARDED_BY(mutex_);
  mutable Mutex collectors_mutex_;
  std::vector<std::pair<int64_t, std::function<void()>>> collectors_
      FATHOM_GUARDED_BY(collectors_mutex_);
  int64_t next_collector_id_ FATHOM_GUARDED_BY(collectors_mutex_) = 1;
};

}  // namespace fathom::metrics
