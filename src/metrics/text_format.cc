#include "metrics/text_format.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace fathom::metrics {
namespace {

// Up to here every integer is a double.
constexpr double kMaxExactInteger = 9007199254740992.0;

// A quote is escaped in label values alone.
void append_escaped(std::string& out, std::string_view text, bool quoted) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quoted) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (std::abs(value) < kMaxExactInteger && value == std::trunc(value))
    return std::to_string(static_cast<int64_t>(value));
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

}  // namespace

void TextFormat::family(std::string_view name, std::string_view help, std::string_view type) {
  if (!help.empty()) {
    text_.append("# HELP ").append(name).append(" ");
    append_escaped(text_, help, false);
    text_ += '\n';
  }
  text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

void TextFormat::sample(std::string_view name, const Labels& labels, double value) {
  text_ += name;
  char separator = '{';
  for (const auto& [label, content] : labels) {
    text_.append(1, separator).append(label).append("=\"");
    append_escaped(text_, content, true);
    text_ += '"';
    separator = ',';
  }
  if (!labels.empty()) text_ += '}';
  text_.append(" ").append(number(value)).append("\n");
}

void TextFormat::histogram(std::string_view name, const Labels& labels,
                           const HistogramSnapshot& snapshot) {
  uint64_t cumulative = 0;
  std::vector<std::pair<std::string, uint64_t>> buckets;
  for (size_t i = 0; i < snapshot.upper_bounds.size(); ++i) {
    cumulative += snapshot.counts[i];
    buckets.emplace_back(number(snapshot.upper_bounds[i]), cumulative);
  }
  cumulative += snapshot.counts.back();
  buckets.emplace_back("+Inf", cumulative);
  const std::string base(name);
  sample(base + "_count", labels, static_cast<double>(cumulative));
  sample(base + "_sum", labels, snapshot.sum);
  Labels with_bound = labels;
  with_bound.emplace_back("le", "");
  for (auto& [bound, count] : buckets) {
    with_bound.back().second = std::move(bound);
    sample(base + "_bucket", with_bound, static_cast<double>(count));
  }
}

}  // namespace fathom::metrics
