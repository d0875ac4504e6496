#include "apps/fathom_bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "apps/common/svg_panel.h"

namespace fathom::apps {
namespace {

constexpr double kWidth = 1080, kHeading = 74, kPanelWidth = 540, kPanelHeight = 330;
constexpr int kBins = 40;
// A histogram ends a little above this percentile: one straggler would leave all else in a single bar.
constexpr double kShownPercent = 99.5;
constexpr double kMinBucketSeconds = 0.1;
constexpr int kTimeBuckets = 60;

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string shown_time(double milliseconds) {
  if (milliseconds >= 1e4) return formatted("%.1f s", milliseconds / 1e3);
  return formatted(milliseconds >= 100  ? "%.0f ms"
                   : milliseconds >= 10 ? "%.1f ms"
                                        : "%.2f ms",
                   milliseconds);
}

struct HistogramText {
  std::string title, counted;
};

std::string histogram(const SvgArea& area, const HistogramText& text, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double beyond_most = std::max(1e-6, percentile(values, kShownPercent));
  const double low = values.empty() ? 0 : values.front();
  // From zero unless all values are far from it.
  const double min = low > beyond_most * 0.5 ? low * 0.99 : 0;
  const double shown_max = beyond_most + (beyond_most - min) * 0.1;
  const double bin = (shown_max - min) / kBins;
  std::vector<double> counts(kBins);
  double num_beyond = 0;
  for (const double value : values) {
    const double index = (value - min) / bin;
    if (index >= kBins) {
      ++num_beyond;
    } else {
      ++counts[static_cast<size_t>(std::max(0.0, index))];
    }
  }
  SvgPanel panel(area, {.title = text.title,
                        .x_label = "milliseconds",
                        .y_label = text.counted,
                        .x_min = min,
                        .x_max = shown_max,
                        .y_max = *std::max_element(counts.begin(), counts.end()) * 1.05});
  for (int i = 0; i < kBins; ++i) {
    panel.bar(min + i * bin, min + (i + 1) * bin, counts[static_cast<size_t>(i)]);
  }
  const double median = percentile(values, 50), p99 = percentile(values, 99);
  panel.marker(median, "median " + shown_time(median), 0, false);
  panel.marker(p99, "p99 " + shown_time(p99), 1, true);
  std::string note = formatted("%.0f ", static_cast<double>(values.size())) + text.counted;
  if (num_beyond > 0) {
    note += formatted(", %.0f of them to the right of the picture, up to ", num_beyond) +
            shown_time(values.back());
  }
  panel.note(note);
  return panel.finish();
}

std::string rate_over_time(const SvgArea& area, const ServingMetrics& metrics,
                           const std::vector<RequestRecord>& records) {
  const double bucket = std::max(kMinBucketSeconds, metrics.duration_seconds / kTimeBuckets);
  const std::vector<double> counts = tokens_per_bucket(records, bucket);
  const double peak = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  SvgPanel panel(area, {.title = "Output rate over time",
                        .x_label = "seconds since the first request",
                        .y_label = "tokens per second",
                        .x_min = 0,
                        .x_max = static_cast<double>(counts.size()) * bucket,
                        .y_max = std::max(1.0, peak / bucket * 1.05)});
  for (size_t i = 0; i < counts.size(); ++i) {
    const double begin = static_cast<double>(i) * bucket;
    panel.bar(begin, begin + bucket, counts[i] / bucket);
  }
  panel.note("mean " + formatted("%.0f", metrics.output_throughput) + " tokens/s, " +
             formatted("%.2f", bucket) + " s per bar");
  return panel.finish();
}

// "random_input_len" -> "input len": the dataset's name stands beside it.
std::string setting_name(std::string key) {
  for (const std::string_view prefix : {"random_", "gsp_"}) {
    if (key.starts_with(prefix)) key.erase(0, prefix.size());
  }
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string workload(const ServingSetup& setup, const ServingMetrics& metrics) {
  std::string text = setup.backend + ", " + setup.dataset_name + ", " +
                     std::to_string(metrics.completed) + " requests";
  if (metrics.num_failed() > 0) text += ", " + std::to_string(metrics.num_failed()) + " failed";
  text += std::isinf(setup.request_rate) ? "" : formatted(", %g/s", setup.request_rate);
  if (setup.max_concurrency > 0) {
    text += ", at most " + std::to_string(setup.max_concurrency) + " at a time";
  }
  for (const auto& item : setup.dataset.items()) {
    text += ", " + setting_name(item.key()) + " " + json::dump(item.value());
  }
  return text;
}

std::string heading(const std::string& title, const std::string& subtitle) {
  return "<text x=\"24\" y=\"34\" font-size=\"20\" font-weight=\"600\" fill=\"#1f2933\">" +
         svg_escaped(title) +
         "</text>\n<text x=\"24\" y=\"57\" font-size=\"12\" fill=\"#52606d\">" +
         svg_escaped(subtitle) + "</text>\n";
}

}  // namespace

std::string serving_plot(const std::string& title, const ServingSetup& setup,
                         const ServingMetrics& metrics, const std::vector<RequestRecord>& records) {
  std::vector<double> ttft_ms, itl_ms, e2e_ms;
  for (const RequestRecord& record : records) {
    if (!record.ok()) continue;
    ttft_ms.push_back(record.ttft * 1e3);
    e2e_ms.push_back(record.latency * 1e3);
    for (const double gap : record.gaps) itl_ms.push_back(gap * 1e3);
  }
  const auto area = [](int column, int row) {
    return SvgArea{.x = column * kPanelWidth,
                   .y = kHeading + row * kPanelHeight,
                   .width = kPanelWidth,
                   .height = kPanelHeight};
  };
  const std::string width = formatted("%.0f", kWidth);
  const std::string height = formatted("%.0f", kHeading + 2 * kPanelHeight);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
         "\" viewBox=\"0 0 " + width + " " + height +
         "\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
         heading(title, workload(setup, metrics)) +
         histogram(area(0, 0), {"Time to first token", "requests"}, std::move(ttft_ms)) +
         histogram(area(1, 0), {"Inter-token latency", "gaps"}, std::move(itl_ms)) +
         histogram(area(0, 1), {"End-to-end latency", "requests"}, std::move(e2e_ms)) +
         rate_over_time(area(1, 1), metrics, records) + "</svg>\n";
}

}  // namespace fathom::apps
