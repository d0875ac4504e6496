#pragma once
// The rows of the ablation: which optimisations are on together. Those of SGLang's two published tables (version
// 0.4.3.post2, DeepSeek-R1 on 16 H20), with what became of each there, those that its text excludes, our own, and
// those of five more columns: what is compiled at run time, tuned and quantised.
//
//   for (const AblationRow& row : ablation_rows())
//     words = flags_of(row, {.tp_size = 2, .on_cpu = true, .max_clients = 16});     // of `fathom bench engine`
//
// Constants and pure functions.

#include <optional>
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

enum class AblationWeights { kAsGiven, kInt8, kInt4 };

// Five more columns, of rows that have them; the others run with the defaults of these flags.
struct AblationExtras {
  bool chains = false;  // --enable-fusion: chains of operators that NVRTC compiles
  bool jit = false;     // --jit wait; without: off
  bool tuned = false;   // the tuned files; without: --tuned-dir none
  AblationWeights weights = AblationWeights::kAsGiven;
  bool operator==(const AblationExtras&) const = default;
};

enum class AblationTable { kSingle, kBatch, kExcluded, kOwn, kExtra };

struct AblationRow {
  std::string name;  // "1", "B1", "K1", "F1", "X1"
  AblationTable table = AblationTable::kSingle;
  AblationColumns columns{};
  std::string_view published{};           // there: tokens per second, or why it failed
  std::string_view more{};                // what else is on or off, for people
  std::vector<std::string_view> flags{};  // of `more`
  std::optional<AblationExtras> extras{};

  // Rows of the same work are measured once.
  bool same_work(const AblationRow& other) const {
    return columns == other.columns && flags == other.flags && extras == other.extras;
  }
};

const std::vector<AblationRow>& ablation_rows();

// Of all rows.
struct AblationMachine {
  int tp_size = 2;
  bool on_cpu = true;
  int max_clients = 16;
  std::string int8_model{},
      int4_model{};  // directories of the quantised forms; empty: none was given
};
std::vector<std::string> flags_of(const AblationRow& row, const AblationMachine& machine);
// The flags that all rows share, as this one has them: without those that it says itself and, where its weights are of
// another form, as they are stored.
std::vector<std::string> shared_flags_of(const AblationRow& row, const AblationMachine& machine,
                                         const std::vector<std::string>& shared);
// Why a row makes no sense on this machine; empty: it does.
std::string why_not(const AblationRow& row, const AblationMachine& machine);
// Whether it is left out where nobody names it, for want of something that the command was not given.
bool is_left_out(const AblationRow& row, const AblationMachine& machine);
// What an FP8 cache or other weights change is more than rounding.
bool is_exact(const AblationRow& row);

}  // namespace fathom::apps
