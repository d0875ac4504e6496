#pragma once
// Prometheus' text format 0.0.4, a family after the other.
//
//   TextFormat text;
//   text.family("fathom:requests_total", "Requests that ended.", "counter");
//   text.sample("fathom:requests_total", {{"reason", "stop"}}, 3);      // fathom:requests_total{reason="stop"} 3
//   std::string page = std::move(text).str();
//
// Escapes help texts and label values; names are the caller's and valid. Numbers read back as the same double. A value
// type: no state but the text.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/metric.h"

namespace fathom::metrics {

using Labels = std::vector<std::pair<std::string, std::string>>;  // name, value

class TextFormat {
 public:
  // `type` is counter, gauge or histogram.
  void family(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view name, const Labels& labels, double value);
  // The lines of _count, _sum and _bucket, the last one with le="+Inf".
  void histogram(std::string_view name, const Labels& labels, const HistogramSnapshot& snapshot);

  std::string str() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace fathom::metrics
