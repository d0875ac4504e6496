#include <cstdio>
#include <sstream>

#include "apps/bench/ablation/report.h"

namespace fathom::apps {
namespace {

constexpr const char *kOn = "✅", *kOff = "➖", *kFails = "❌";
constexpr const char* kColumns =
    "Torch Compile | Cuda Graph | Radix Cache | Flashinfer-mla | Next-N | EP-MoE | DP-Attention";
constexpr int kNumColumns = 7;

std::string number_text(double value, const char* form = "%.1f") {
  char text[40];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

std::string columns_text(const AblationColumns& columns) {
  std::string text;
  for (const bool is_on : {columns.fusion, columns.graph, columns.radix, columns.attention,
                           columns.next_n, columns.experts, columns.lanes})
    text += (text.empty() ? "" : " | ") + std::string(is_on ? kOn : kOff);
  return text;
}

constexpr const char* kExtras = "Fusion by NVRTC | JIT | Tuned | INT8 | W4";
constexpr int kNumExtras = 5;

std::string extras_text(const AblationExtras& extras) {
  std::string text;
  for (const bool is_on :
       {extras.chains, extras.jit, extras.tuned, extras.weights == AblationWeights::kInt8,
        extras.weights == AblationWeights::kInt4})
    text += (text.empty() ? "" : " | ") + std::string(is_on ? kOn : kOff);
  return text;
}

std::string verdict_text(const AblationOutcome& outcome) {
  return outcome.runs() ? kOn : kFails + (" " + outcome.why_failed);
}

std::string query_text(const AblationOutcome& outcome) {
  if (outcome.measured.is_null()) return "N/A";
  return number_text(outcome.measured.at("query").at("tokens_per_second").get<double>());
}

std::string tokens_text(const AblationOutcome& outcome) {
  if (outcome.num_answers == 0) return "N/A";
  return std::to_string(outcome.num_equal) + " of " + std::to_string(outcome.num_answers);
}

std::string accuracy_text(const AblationOutcome& outcome) {
  if (outcome.measured.is_null()) return "N/A";
  return number_text(outcome.measured.at("questions").at("accuracy").get<double>(), "%.3f");
}

// A cell with a line for each number of clients.
std::string batches_text(const AblationOutcome& outcome, const char* key, const char* form) {
  if (outcome.measured.is_null()) return "N/A";
  std::string text;
  for (const json::Value& batch : outcome.measured.at("batches"))
    text += (text.empty() ? "" : "<br>") + number_text(batch.at(key).get<double>(), form);
  return text;
}

std::string batch_cells(const AblationOutcome& outcome) {
  const std::string most =
      outcome.measured.is_null()
          ? "N/A"
          : number_text(outcome.measured.at("settings").at("max_running_requests").get<double>(),
                        "%.0f");
  return batches_text(outcome, "clients", "%.0f") + " | " +
         batches_text(outcome, "tokens_per_second", "%.1f") + " | " +
         batches_text(outcome, "tokens_per_second_of_request", "%.2f") + " | " +
         batches_text(outcome, "requests", "%.0f") + " | " + most;
}

std::string ruler(int num_cells) {
  std::string text = "|";
  for (int cell = 0; cell < num_cells; ++cell) text += "---|";
  return text + "\n";
}

bool has_rows(const std::vector<AblationOutcome>& outcomes, AblationTable table) {
  for (const AblationOutcome& outcome : outcomes)
    if (outcome.row->table == table) return true;
  return false;
}

// The table's rows, each as `cells` writes them.
template <class Cells>
void write_rows(std::ostream& out, const std::vector<AblationOutcome>& outcomes,
                AblationTable table, const Cells& cells) {
  for (const AblationOutcome& outcome : outcomes)
    if (outcome.row->table == table)
      out << "| " << outcome.row->name << " | " << cells(outcome) << " |\n";
}

void write_single(std::ostream& out, const std::vector<AblationOutcome>& outcomes) {
  if (!has_rows(outcomes, AblationTable::kSingle)) return;
  out << "\n## Single query\n| # | Runnable | TPS@1 | " << kColumns
      << " | tokens of row 1 | gsm8k | SGLang's TPS@1 |\n"
      << ruler(kNumColumns + 6);
  write_rows(out, outcomes, AblationTable::kSingle, [](const AblationOutcome& outcome) {
    return verdict_text(outcome) + " | " + query_text(outcome) + " | " +
           columns_text(outcome.row->columns) + " | " + tokens_text(outcome) + " | " +
           accuracy_text(outcome) + " | " + std::string(outcome.row->published);
  });
}

void write_batch(std::ostream& out, const std::vector<AblationOutcome>& outcomes) {
  if (!has_rows(outcomes, AblationTable::kBatch)) return;
  out << "\n## Offline batch\n| # | Runnable | " << kColumns
      << " | Client Concurrency | Avg Throughput (p+d, token/s) | Per-req Throughput (d, token/s) "
         "| Total Req | Max-running-req | SGLang's throughput (clients) |\n"
      << ruler(kNumColumns + 8);
  write_rows(out, outcomes, AblationTable::kBatch, [](const AblationOutcome& outcome) {
    return verdict_text(outcome) + " | " + columns_text(outcome.row->columns) + " | " +
           batch_cells(outcome) + " | " + std::string(outcome.row->published);
  });
}

// Rows of both kinds of measurement, told apart by what else is on.
void write_both(std::ostream& out, const std::vector<AblationOutcome>& outcomes,
                AblationTable table, const char* title) {
  if (!has_rows(outcomes, table)) return;
  out << "\n## " << title << "\n| # | Runnable | what | TPS@1 | " << kColumns
      << " | tokens of row 1 | gsm8k | Client Concurrency | Avg Throughput (p+d, token/s) | "
         "Per-req Throughput (d, token/s) | Total Req | Max-running-req |\n"
      << ruler(kNumColumns + 11);
  write_rows(out, outcomes, table, [](const AblationOutcome& outcome) {
    return verdict_text(outcome) + " | " + std::string(outcome.row->more) + " | " +
           query_text(outcome) + " | " + columns_text(outcome.row->columns) + " | " +
           tokens_text(outcome) + " | " + accuracy_text(outcome) + " | " + batch_cells(outcome);
  });
}

void write_extra(std::ostream& out, const std::vector<AblationOutcome>& outcomes) {
  if (!has_rows(outcomes, AblationTable::kExtra)) return;
  out << "\n## Compiled, tuned and quantised\n| # | Runnable | TPS@1 | " << kExtras << " | "
      << kColumns
      << " | tokens of row 1 | gsm8k | Client Concurrency | Avg Throughput (p+d, token/s) | "
         "Per-req Throughput (d, token/s) | Total Req | Max-running-req |\n"
      << ruler(kNumExtras + kNumColumns + 10);
  write_rows(out, outcomes, AblationTable::kExtra, [](const AblationOutcome& outcome) {
    return verdict_text(outcome) + " | " + query_text(outcome) + " | " +
           extras_text(*outcome.row->extras) + " | " + columns_text(outcome.row->columns) + " | " +
           tokens_text(outcome) + " | " + accuracy_text(outcome) + " | " + batch_cells(outcome);
  });
}

int num_failed(const std::vector<AblationOutcome>& outcomes) {
  int count = 0;
  for (const AblationOutcome& outcome : outcomes)
    if (!outcome.runs()) ++count;
  return count;
}

}  // namespace

std::string ablation_markdown(const AblationSetup& setup,
                              const std::vector<AblationOutcome>& outcomes) {
  std::ostringstream out;
  out << outcomes.size() << " rows, " << num_failed(outcomes) << " of them " << kFails << ".\n\n"
      << "- Model: " << setup.model << "\n- Device: " << setup.device
      << "\n- Commit: " << setup.commit << "\n- Flags of all rows: `" << setup.flags
      << "`\n- Single query: SGLang's, " << setup.query_tokens << " tokens. Batch: prompts of "
      << setup.input_len << " random tokens, answers of " << setup.output_len
      << ". gsm8k: " << setup.num_questions
      << " questions, whose answers and the query's are compared with row "
      << (outcomes.empty() ? "1" : std::string(outcomes.front().row->name)) << "'s: they must be "
      << (setup.is_exact ? "equal, but with the FP8 cache and with other weights"
                         : "as often right, since rounding differs")
      << ".\n";
  write_single(out, outcomes);
  write_batch(out, outcomes);
  write_both(out, outcomes, AblationTable::kExcluded, "Combinations that SGLang's table excludes");
  write_both(out, outcomes, AblationTable::kOwn, "Our own columns");
  write_extra(out, outcomes);
  return out.str();
}

}  // namespace fathom::apps
