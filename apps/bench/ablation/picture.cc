#include <algorithm>
#include <cstdio>
#include <string>

#include "apps/bench/ablation/report.h"
#include "apps/common/svg_panel.h"

namespace fathom::apps {
namespace {

constexpr int kRowHeight = 18, kPictureTop = 60, kLabelWidth = 250, kLongestBar = 300, kGap = 90;
constexpr int kWidth = kLabelWidth + 2 * (kLongestBar + kGap);

double query_rate(const AblationOutcome& outcome) {
  if (outcome.measured.is_null()) return 0;
  return outcome.measured.at("query").at("tokens_per_second").get<double>();
}

// With the most clients.
double batch_rate(const AblationOutcome& outcome) {
  double rate = 0, most = 0;
  if (outcome.measured.is_null()) return rate;
  for (const json::Value& batch : outcome.measured.at("batches")) {
    if (batch.at("clients").get<double>() < most) continue;
    most = batch.at("clients").get<double>();
    rate = batch.at("tokens_per_second").get<double>();
  }
  return rate;
}

std::string label_at(int x, int y, const std::string& text, const char* more = "") {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\"" + more + ">" +
         svg_escaped(text) + "</text>\n";
}

std::string label_of(const AblationOutcome& outcome) {
  const AblationColumns& columns = outcome.row->columns;
  std::string label(outcome.row->name);
  if (columns.fusion) label += " TC";
  if (columns.graph) label += " CG";
  if (columns.radix) label += " RC";
  if (columns.attention) label += " FI";
  if (columns.next_n) label += " NN";
  if (columns.experts) label += " EP";
  if (columns.lanes) label += " DP";
  if (const std::optional<AblationExtras>& extras = outcome.row->extras) {
    if (extras->chains) label += " NVRTC";
    if (extras->jit) label += " JIT";
    if (extras->tuned) label += " tuned";
    if (extras->weights != AblationWeights::kAsGiven)
      label += extras->weights == AblationWeights::kInt8 ? " INT8" : " W4";
  }
  if (outcome.row->table == AblationTable::kOwn) label += ", " + std::string(outcome.row->more);
  constexpr size_t kMostBytes = 44;
  if (label.size() > kMostBytes) label = label.substr(0, kMostBytes - 3) + "...";
  return label;
}

std::string bar(int x, int y, double value, double most) {
  const double width = most > 0 ? kLongestBar * value / most : 0;
  char text[160];
  std::snprintf(text, sizeof text,
                "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#4477aa\"/>\n", x,
                y - kRowHeight + 6, width, kRowHeight - 5);
  char number[32];
  std::snprintf(number, sizeof number, "%.1f", value);
  return text + label_at(x + static_cast<int>(width) + 4, y, number);
}

}  // namespace

std::string ablation_svg(const AblationSetup& setup, const std::vector<AblationOutcome>& outcomes) {
  double most_query = 0, most_batch = 0;
  for (const AblationOutcome& outcome : outcomes) {
    most_query = std::max(most_query, query_rate(outcome));
    most_batch = std::max(most_batch, batch_rate(outcome));
  }
  const int height = kPictureTop + kRowHeight * static_cast<int>(outcomes.size()) + 20;
  const int query_x = kLabelWidth, batch_x = kLabelWidth + kLongestBar + kGap;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(kWidth) +
                    "\" height=\"" + std::to_string(height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += label_at(10, 20, setup.model + " on " + setup.device + ", " + setup.commit);
  svg += label_at(query_x, 44, "single query, token/s", " font-weight=\"bold\"");
  svg +=
      label_at(batch_x, 44, "batch with the most clients, token/s (p+d)", " font-weight=\"bold\"");
  int y = kPictureTop + kRowHeight - 4;
  for (const AblationOutcome& outcome : outcomes) {
    svg += label_at(10, y, label_of(outcome));
    if (!outcome.runs()) {
      svg += label_at(query_x, y, "x  " + outcome.why_failed, " fill=\"#aa3333\"");
    } else {
      svg += bar(query_x, y, query_rate(outcome), most_query);
      svg += bar(batch_x, y, batch_rate(outcome), most_batch);
    }
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

json::Value ablation_json(const AblationSetup& setup,
                          const std::vector<AblationOutcome>& outcomes) {
  json::Value rows = json::Value::array();
  for (const AblationOutcome& outcome : outcomes) {
    const AblationColumns& columns = outcome.row->columns;
    json::Value row = {{"row", std::string(outcome.row->name)},
                       {"what", std::string(outcome.row->more)},
                       {"published", std::string(outcome.row->published)},
                       {"runs", outcome.runs()},
                       {"why_failed", outcome.why_failed},
                       {"num_answers", outcome.num_answers},
                       {"num_equal", outcome.num_equal},
                       {"columns",
                        {{"fusion", columns.fusion},
                         {"cuda_graph", columns.graph},
                         {"radix_cache", columns.radix},
                         {"tuned_attention", columns.attention},
                         {"next_n", columns.next_n},
                         {"ep_moe", columns.experts},
                         {"dp_attention", columns.lanes}}},
                       {"measured", outcome.measured}};
    if (const std::optional<AblationExtras>& extras = outcome.row->extras)
      row["columns"].update({{"compiled_chains", extras->chains},
                             {"jit", extras->jit},
                             {"tuned", extras->tuned},
                             {"int8", extras->weights == AblationWeights::kInt8},
                             {"int4", extras->weights == AblationWeights::kInt4}});
    // Compared, and too long to be read.
    if (!outcome.measured.is_null()) row["measured"]["questions"].erase("tokens");
    rows.push_back(std::move(row));
  }
  return {{"model", setup.model},         {"device", setup.device},
          {"commit", setup.commit},       {"flags", setup.flags},
          {"input_len", setup.input_len}, {"output_len", setup.output_len},
          {"is_exact", setup.is_exact},   {"rows", std::move(rows)}};
}

}  // namespace fathom::apps
