#include "apps/bench/ablation/rows.h"

#include <algorithm>

namespace fathom::apps {
namespace {

constexpr std::string_view kAtCapture = "fails: CUDA error at graph capture";
constexpr std::string_view kTypeError = "fails: TypeError";

// "1110000": a digit for each column.
constexpr AblationColumns on(std::string_view digits) {
  return {.fusion = digits[0] == '1',
          .graph = digits[1] == '1',
          .radix = digits[2] == '1',
          .attention = digits[3] == '1',
          .next_n = digits[4] == '1',
          .experts = digits[5] == '1',
          .lanes = digits[6] == '1'};
}

void add_published(std::vector<AblationRow>& rows) {
  constexpr AblationTable kSingle = AblationTable::kSingle, kBatch = AblationTable::kBatch;
  const std::vector<AblationRow> published = {
      {"1", kSingle, on("1110000"), "37.0"},
      {"2", kSingle, on("1111000"), "33.6"},
      {"3", kSingle, on("1111001"), "19.1"},
      {"4", kSingle, on("1111011"), kAtCapture},
      {"5", kSingle, on("1110010"), kAtCapture},
      {"6", kSingle, on("1010010"), "6.5"},
      {"7", kSingle, on("0110010"), "24.4"},
      {"8", kSingle, on("0111010"), "23.6"},
      {"9", kSingle, on("0000110"), "13.0"},
      {"10", kSingle, on("0100110"), "41.0, out of memory by default"},
      {"11", kSingle, on("1100110"), kAtCapture},
      {"12", kSingle, on("0110011"), "16.0"},
      {"13", kSingle, on("1110011"), kAtCapture},
      {"14", kSingle, on("0111011"), "15.8"},
      {"15", kSingle, on("0110111"), kAtCapture},
      {"16", kSingle, on("0000101"), kTypeError},
      {"B1", kBatch, on("1111000"), "3909 (768)"},
      {"B2", kBatch, on("1111001"), "306 (16), 4329 (512), 5457 (768)"},
      {"B3", kBatch, on("1111011"), kAtCapture},
      {"B4", kBatch, on("1110010"), kAtCapture},
      {"B5", kBatch, on("1010010"), "2101 (768)"},
      {"B6", kBatch, on("0110010"), "2135 (256), 3843 (512), 3453 (768)"},
      {"B7", kBatch, on("0111010"), "2221 (256), 3583 (512), 3557 (768)"},
      {"B8", kBatch, on("0000110"), "runs, not measured"},
      {"B9", kBatch, on("0100110"), "732 (16), 1228 (32)"},
      {"B10", kBatch, on("1100110"), kAtCapture},
      {"B11", kBatch, on("0110011"),
       "862 (16), 1598 (128), 2664 (256), 4098 (512), out of memory (768)"},
      {"B12", kBatch, on("1110011"), kAtCapture},
      {"B13", kBatch, on("0111011"), "406 (16), 3633 (512), out of memory (768)"},
      {"B14", kBatch, on("0100111"), kAtCapture},
      {"B15", kBatch, on("0000101"), kTypeError}};
  rows.insert(rows.end(), published.begin(), published.end());
}

void add_excluded(std::vector<AblationRow>& rows) {
  constexpr AblationTable kTable = AblationTable::kExcluded;
  const std::vector<AblationRow> excluded = {
      {"K1", kTable, on("0001100"), "excluded", "Next-N with Flashinfer-mla"},
      {"K2", kTable, on("0010100"), "excluded", "Next-N with Radix Cache"},
      {"K3", kTable, on("0110101"), "excluded", "Next-N with DP-Attention"},
      {"K4", kTable, on("1100100"), "excluded", "Next-N with CUDA Graph and Torch Compile"},
      {"K5", kTable, on("1110010"), "excluded", "EP-MoE with CUDA Graph and Torch Compile"},
      {"K6",
       kTable,
       on("1111001"),
       "excluded",
       "DP-Attention without a warm-up phase",
       {"--no-warm-up"}},
      {"K7", kTable, on("1111111"), "excluded", "all seven"}};
  rows.insert(rows.end(), excluded.begin(), excluded.end());
}

void add_own(std::vector<AblationRow>& rows) {
  constexpr AblationTable kTable = AblationTable::kOwn;
  constexpr AblationColumns kBase = on("1111000");
  const std::vector<AblationRow> own = {
      {"F1", kTable, kBase, "", "nothing else", {}},
      {"F2", kTable, kBase, "", "FP8 cache", {"--kv-cache-dtype=fp8_e4m3"}},
      {"F3",
       kTable,
       kBase,
       "",
       "chain of three drafts",
       {"--speculative-algorithm=NEXTN", "--speculative-num-steps=3"}},
      {"F4",
       kTable,
       kBase,
       "",
       "tree of six tokens, three deep",
       {"--speculative-algorithm=NEXTN", "--speculative-num-steps=3", "--speculative-eagle-topk=2",
        "--speculative-num-draft-tokens=6"}},
      {"F5",
       kTable,
       kBase,
       "",
       "no overlap of planning and computing",
       {"--disable-overlap-schedule"}},
      {"F6", kTable, kBase, "", "prompts in chunks of 64 tokens", {"--chunked-prefill-size=64"}},
      {"F7", kTable, kBase, "", "a grammar that any text fits", {"--any-text-grammar"}}};
  rows.insert(rows.end(), own.begin(), own.end());
}

// All of the five columns with one another, beside what is always on; then all of them with each of the others off or
// on. Chains are compiled, so they want JIT.
void add_extra(std::vector<AblationRow>& rows) {
  auto add = [&rows, number = 0](std::string_view columns, AblationExtras extras) mutable {
    rows.push_back({.name = "X" + std::to_string(++number),
                    .table = AblationTable::kExtra,
                    .columns = on(columns),
                    .extras = extras});
  };
  constexpr AblationWeights kForms[] = {AblationWeights::kAsGiven, AblationWeights::kInt8,
                                        AblationWeights::kInt4};
  for (const AblationWeights weights : kForms)
    for (const bool tuned : {false, true})
      for (const int compiled : {0, 1, 2})
        add("1111000",
            {.chains = compiled == 2, .jit = compiled > 0, .tuned = tuned, .weights = weights});
  for (const AblationWeights weights : {AblationWeights::kInt8, AblationWeights::kInt4})
    for (const std::string_view columns : {"1011000", "1101000", "1110000", "1111100", "1111111"})
      add(columns, {.chains = true, .jit = true, .tuned = true, .weights = weights});
}

const std::string& model_of(AblationWeights weights, const AblationMachine& machine) {
  return weights == AblationWeights::kInt8 ? machine.int8_model : machine.int4_model;
}

std::string why_no_extras(const AblationExtras& extras, const AblationMachine& machine) {
  const std::string_view of_gpu = extras.chains  ? "fusion by NVRTC"
                                  : extras.jit   ? "JIT"
                                  : extras.tuned ? "a tuned file"
                                                 : "";
  if (machine.on_cpu && !of_gpu.empty()) return std::string(of_gpu) + " needs a GPU";
  if (extras.weights == AblationWeights::kAsGiven || !model_of(extras.weights, machine).empty())
    return "";
  return extras.weights == AblationWeights::kInt8 ? "INT8 needs --int8-model-path"
                                                  : "W4 needs --int4-model-path";
}

std::string_view name_of(const std::string& word) {
  return std::string_view(word).substr(0, word.find('='));
}

}  // namespace

const std::vector<AblationRow>& ablation_rows() {
  static const std::vector<AblationRow> rows = [] {
    std::vector<AblationRow> all;
    add_published(all);
    add_excluded(all);
    add_own(all);
    add_extra(all);
    return all;
  }();
  return rows;
}

std::vector<std::string> flags_of(const AblationRow& row, const AblationMachine& machine) {
  const AblationColumns& columns = row.columns;
  const std::string ranks = std::to_string(machine.tp_size);
  std::vector<std::string> words = {"--tp-size=" + ranks};
  if (!columns.fusion) words.push_back("--disable-fusion");
  if (!columns.graph) words.push_back("--disable-cuda-graph");
  // A CPU captures none unless it is told to.
  if (columns.graph && machine.on_cpu)
    words.push_back("--cuda-graph-max-bs=" + std::to_string(machine.max_clients));
  if (!columns.radix) words.push_back("--disable-radix-cache");
  words.push_back(std::string("--attention-backend=") + (columns.attention ? "auto" : "generic"));
  if (columns.next_n) words.push_back("--speculative-algorithm=NEXTN");
  if (columns.experts) words.push_back("--enable-ep-moe");
  if (columns.lanes) {
    words.push_back("--enable-dp-attention");
    words.push_back("--dp-size=" + ranks);
  }
  for (const std::string_view flag : row.flags) words.emplace_back(flag);
  if (!row.extras) return words;
  words.push_back(std::string("--jit=") + (row.extras->jit ? "wait" : "off"));
  if (row.extras->chains) words.push_back("--enable-fusion");
  if (!row.extras->tuned) words.push_back("--tuned-dir=none");
  if (row.extras->weights != AblationWeights::kAsGiven)
    words.push_back("--model-path=" + model_of(row.extras->weights, machine));
  return words;
}

std::vector<std::string> shared_flags_of(const AblationRow& row, const AblationMachine& machine,
                                         const std::vector<std::string>& shared) {
  const std::vector<std::string> own = flags_of(row, machine);
  const bool is_other_form = row.extras && row.extras->weights != AblationWeights::kAsGiven;
  std::vector<std::string> words;
  for (const std::string& word : shared) {
    const bool is_own = std::any_of(own.begin(), own.end(), [&](const std::string& mine) {
      return name_of(mine) == name_of(word);
    });
    if (!is_own && !(is_other_form && word == "--dequantize")) words.push_back(word);
  }
  return words;
}

std::string why_not(const AblationRow& row, const AblationMachine& machine) {
  if (machine.tp_size == 1 && (row.columns.experts || row.columns.lanes))
    return std::string(row.columns.lanes ? "DP-Attention" : "EP-MoE") +
           " needs --tp-size 2 or more";
  return row.extras ? why_no_extras(*row.extras, machine) : "";
}

bool is_left_out(const AblationRow& row, const AblationMachine& machine) {
  return row.extras && !why_no_extras(*row.extras, machine).empty();
}

bool is_exact(const AblationRow& row) {
  if (row.extras && row.extras->weights != AblationWeights::kAsGiven) return false;
  return std::none_of(row.flags.begin(), row.flags.end(),
                      [](std::string_view flag) { return flag.starts_with("--kv-cache-dtype"); });
}

}  // namespace fathom::apps
