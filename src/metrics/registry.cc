#include "metrics/registry.h"

#include <algorithm>

#include "base/check.h"
#include "metrics/text_format.h"

namespace fathom::metrics {

enum class Registry::Kind { kCounter, kGauge, kHistogram };

// One value; the handle that is set is that of the family's kind.
struct Registry::Series {
  std::unique_ptr<Counter> counter{};
  std::unique_ptr<Gauge> gauge{};
  std::unique_ptr<Histogram> histogram{};

  void write(TextFormat& text, const std::string& name, const Labels& labels) const {
    if (counter) text.sample(name, labels, counter->value());
    if (gauge) text.sample(name, labels, gauge->value());
    if (histogram) text.histogram(name, labels, histogram->snapshot());
  }
};

// One name.
struct Registry::Family {
  std::string name, help;
  Kind kind;
  std::vector<std::pair<Labels, std::shared_ptr<Series>>> series;
};

namespace {

bool is_name(const std::string& text, bool allow_colon) {
  const auto is_letter = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (allow_colon && c == ':');
  };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  });
}

void check_labels(const std::string& metric, const Labels& labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    FATHOM_CHECK(is_name(labels[i].first, false), metric << ": label \"" << labels[i].first << '"');
    for (size_t j = 0; j < i; ++j)
      FATHOM_CHECK(labels[i].first != labels[j].first,
                   metric << ": label " << labels[i].first << " twice");
  }
}

}  // namespace

Registry::Registry(Labels labels) : labels_(std::move(labels)) {
  check_labels("registry", labels_);
}

Registry::~Registry() = default;

Counter& Registry::counter(const MetricOptions& options) {
  auto series = std::make_shared<Series>();
  series->counter = std::make_unique<Counter>();
  Counter& handle = *series->counter;
  add(Kind::kCounter, options, series);
  return handle;
}

Gauge& Registry::gauge(const MetricOptions& options) {
  auto series = std::make_shared<Series>();
  series->gauge = std::make_unique<Gauge>();
  Gauge& handle = *series->gauge;
  add(Kind::kGauge, options, series);
  return handle;
}

Histogram& Registry::histogram(const MetricOptions& options, std::vector<double> upper_bounds) {
  auto series = std::make_shared<Series>();
  series->histogram = std::make_unique<Histogram>(std::move(upper_bounds));
  Histogram& handle = *series->histogram;
  add(Kind::kHistogram, options, series);
  return handle;
}

void Registry::add(Kind kind, const MetricOptions& options, const std::shared_ptr<Series>& series) {
  const MutexLock lock(mutex_);
  add_name(kind, options, {.name = options.name, .labels = options.labels}, series);
  for (const Alias& alias : options.aliases) add_name(kind, options, alias, series);
}

void Registry::add_name(Kind kind, const MetricOptions& options, const Alias& alias,
                        const std::shared_ptr<Series>& series) {
  FATHOM_CHECK(is_name(alias.name, true), "metric name \"" << alias.name << '"');
  Labels labels = labels_;
  const Labels& own = alias.labels.has_value() ? *alias.labels : options.labels;
  labels.insert(labels.end(), own.begin(), own.end());
  check_labels(alias.name, labels);

  auto family = std::find_if(families_.begin(), families_.end(),
                             [&](const Family& other) { return other.name == alias.name; });
  if (family == families_.end())
    family = families_.insert(families_.end(), {alias.name, options.help, kind, {}});
  FATHOM_CHECK(family->kind == kind, alias.name << " has another kind");
  for (const auto& [known, unused] : family->series)
    FATHOM_CHECK(known != labels, alias.name << " is registered twice with the same labels");
  family->series.emplace_back(std::move(labels), series);
}

std::string Registry::expose() const {
  {
    const MutexLock lock(collectors_mutex_);
    for (const auto& [id, refresh] : collectors_) refresh();
  }
  TextFormat text;
  const MutexLock lock(mutex_);
  for (const Family& family : families_) {
    text.family(family.name, family.help,
                family.kind == Kind::kCounter ? "counter"
                : family.kind == Kind::kGauge ? "gauge"
                                              : "histogram");
    for (const auto& [labels, series] : family.series) series->write(text, family.name, labels);
  }
  return std::move(text).str();
}

Registry::Collector Registry::add_collector(std::function<void()> refresh) {
  const MutexLock lock(collectors_mutex_);
  const int64_t id = next_collector_id_++;
  collectors_.emplace_back(id, std::move(refresh));
  return Collector(this, id);
}

void Registry::remove_collector(int64_t id) {
  const MutexLock lock(collectors_mutex_);
  std::erase_if(collectors_, [id](const auto& entry) { return entry.first == id; });
}

Registry::Collector::Collector(Collector&& other) noexcept
    : registry_(std::exchange(other.registry_, nullptr)), id_(other.id_) {}

Registry::Collector& Registry::Collector::operator=(Collector&& other) noexcept {
  std::swap(registry_, other.registry_);
  std::swap(id_, other.id_);
  return *this;
}

Registry::Collector::~Collector() {
  if (registry_ != nullptr) registry_->remove_collector(id_);
}

}  // namespace fathom::metrics
