#pragma once
// The rows of the ablation: which optimisations are on together. Those of SGLang's two published tables (version
// 0.4.3.post2, DeepSeek-R1 on 16 H20), with what became of each there, those that its text excludes, and our own.
//
//   for (const AblationRow& row : ablation_rows())
//     words = flags_of(row, {.tp_size = 2, .on_cpu = true, .max_clients = 16});     // of `fathom bench engine`
//
// Constants and pure functions.

#include <string>
#include <string_view>
#include <vector>

namespace fathom::apps {

// In the order of the published tables' columns.
struct AblationColumns {
  bool fusion = false;  // there: Torch Compile; here: --disable-fusion is not given
  bool graph = false;   // CUDA graphs
  bool radix = false;   // the prefix cache
  bool attention =
      false;             // there: FlashInfer's MLA; here: --attention-backend auto and not generic
  bool next_n = false;   // speculative decoding
  bool experts = false;  // expert parallelism
  bool lanes = false;    // DP attention
  bool operator==(const AblationColumns&) const = default;
};

enum class AblationTable { kSingle, kBatch, kExcluded, kOwn };

struct AblationRow {
  std::string_view name;  // "1", "B1", "K1", "F1"
  AblationTable table = AblationTable::kSingle;
  AblationColumns columns{};
  std::string_view published{};           // there: tokens per second, or why it failed
  std::string_view more{};                // what else is on or off, for people
  std::vector<std::string_view> flags{};  // of `more`

  // Rows of the same work are measured once.
  bool same_work(const AblationRow& other) const {
    return columns == other.columns && flags == other.flags;
  }
};

const std::vector<AblationRow>& ablation_rows();

// Of all rows.
struct AblationMachine {
  int tp_size = 2;
  bool on_cpu = true;
  int max_clients = 16;
};
std::vector<std::string> flags_of(const AblationRow& row, const AblationMachine& machine);
// Why a row makes no sense with so few ranks; empty: it does.
std::string why_not(const AblationRow& row, const AblationMachine& machine);
// What an FP8 cache changes is more than rounding.
bool is_exact(const AblationRow& row);

}  // namespace fathom::apps
