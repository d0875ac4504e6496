// fathom bench ablation: which optimisations run together, and what each is worth: every row of SGLang's published
// tables and some of our own, each in a process of its own (`fathom bench engine`), judged beside the first row.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/ablation/report.h"
#include "apps/bench/ablation/rows.h"
#include "apps/bench/child_process.h"
#include "apps/bench/commands.h"
#include "apps/bench/engine_bench_flags.h"
#include "apps/common/arguments.h"
#include "apps/common/commit.h"
#include "apps/common/count_progress.h"
#include "apps/common/model_directory.h"
#include "apps/common/result_file.h"
#include "apps/common/text_setup.h"
#include "apps/engine/backend_choice.h"
#include "apps/engine/engine_setup.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

constexpr const char* kLoadGroup = "Load";

struct BenchAblationFlags {
  EngineFlags engine;
  EngineLoadFlags load;
  int tp_size = 2;
  double time_limit_seconds = 600;
  std::vector<std::string> rows;  // names; empty = all
  std::string int8_model_path, int4_model_path;
  std::string json_filename, markdown_filename, svg_filename;
};

// A directory that goes with this object.
class ResultDirectory {
 public:
  ResultDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "fathom-ablation-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw StartupError(name + ": cannot be made");
    path_ = name;
  }
  ~ResultDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ResultDirectory(const ResultDirectory&) = delete;
  ResultDirectory& operator=(const ResultDirectory&) = delete;
  std::string file(int number) const {
    return (path_ / (std::to_string(number) + ".json")).string();
  }

 private:
  std::filesystem::path path_;
};

// The flags that rows share as they were given, wherever: a child gets the same.
std::vector<std::string> given_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    const bool is_shared =
        group == kLoadGroup || group == "Model" || group == "Memory" || group == "Device";
    if (!is_shared || option->count() == 0) continue;
    const std::string name = "--" + option->get_lnames().front();
    if (option->get_items_expected_max() == 0) {
      words.push_back(name);
      continue;
    }
    for (const std::string& value : option->results()) words.push_back(name + "=" + value);
  }
  return words;
}

// A row says all flags of its own: what the environment says would hold in all rows.
void forget_variables(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) unsetenv(variable_of("--" + name).c_str());
}

std::vector<AblationOutcome> wanted_rows(const std::vector<std::string>& names,
                                         const AblationMachine& machine) {
  std::vector<AblationOutcome> outcomes;
  for (const std::string& name : names) {
    const auto& rows = ablation_rows();
    if (std::none_of(rows.begin(), rows.end(),
                     [&](const AblationRow& row) { return row.name == name; }))
      throw StartupError("--rows " + name + ": there are 1 to 16, B1 to B15, K1 to K7, F1 to F7, " +
                         "X1 to X28");
  }
  for (const AblationRow& row : ablation_rows()) {
    const bool is_first = outcomes.empty();  // with which all are compared
    const bool is_wanted = names.empty()
                               ? !is_left_out(row, machine)
                               : std::find(names.begin(), names.end(), row.name) != names.end();
    if (is_first || is_wanted)
      outcomes.push_back({.row = &row, .why_failed = "not measured yet", .measured = nullptr});
  }
  return outcomes;
}

// Float32 throughout: then no row may change a token.
bool is_float32(const EngineFlags& flags, const ops::Backend& backend) {
  const config::ModelConfig config = load_config(flags.model);
  const bool is_quantised = config.quantization_config.has_value() && !flags.model.dequantize;
  const bool is_f32 = flags.model.dtype == "float32" ||
                      (flags.model.dtype == "auto" && config.torch_dtype == "float32");
  return !is_quantised && is_f32 && backend.act == tensor::DType::kF32;
}

// One run of the command.
class Ablation {
 public:
  Ablation(const BenchAblationFlags& flags, std::vector<std::string> shared)
      : flags_(flags), shared_(std::move(shared)) {
    const ops::Backend& backend = choose_backend(flags.engine);
    machine_ = {
        .tp_size = flags.tp_size,
        .on_cpu = !backend.device_memory,
        .max_clients = *std::max_element(flags.load.clients.begin(), flags.load.clients.end()),
        .int8_model = flags.int8_model_path,
        .int4_model = flags.int4_model_path};
    outcomes_ = wanted_rows(flags.rows, machine_);
    std::string words;
    for (const std::string& word : shared_) words += (words.empty() ? "" : " ") + word;
    setup_ = {.model = model_name_of(flags.engine.model.model_path),
              .device = std::string(backend.device),
              .commit = built_from(),
              .flags = words,
              .input_len = flags.load.input_len,
              .output_len = flags.load.output_len,
              .query_tokens = flags.load.query_tokens,
              .num_questions = flags.load.num_questions,
              .is_exact = is_float32(flags.engine, backend)};
  }

  int run() {
    save();  // what cannot be written is said before anything is measured
    int num_works = 0;
    for (size_t i = 0; i < outcomes_.size(); ++i)
      if (!measured_before(i)) ++num_works;
    CountProgress progress("sets of flags", num_works);
    for (size_t i = 0; i < outcomes_.size(); ++i) {
      const std::optional<size_t> before = measured_before(i);
      if (before) {
        const AblationRow* const row = outcomes_[i].row;
        outcomes_[i] = outcomes_[*before];
        outcomes_[i].row = row;
      } else {
        progress.start("row " + std::string(outcomes_[i].row->name));
        measure(outcomes_[i], static_cast<int>(i));
        progress.beside([&] { print(i); });
        progress.add();
      }
      save();
    }
    progress.finish();
    return finish();
  }

 private:
  std::optional<size_t> measured_before(size_t index) const {
    for (size_t i = 0; i < index; ++i)
      if (outcomes_[i].row->same_work(*outcomes_[index].row)) return i;
    return std::nullopt;
  }

  void measure(AblationOutcome& outcome, int number) {
    outcome.why_failed = why_not(*outcome.row, machine_);
    if (!outcome.runs()) return;
    const std::string file = results_.file(number);
    std::vector<std::string> words = {"bench", "engine", "--log-level=error", "--json=" + file};
    const AblationRow& row = *outcome.row;
    for (const std::vector<std::string>& more :
         {shared_flags_of(row, machine_, shared_), flags_of(row, machine_)})
      words.insert(words.end(), more.begin(), more.end());
    outcome.why_failed = run_this_program(words, flags_.time_limit_seconds).why_failed;
    if (!outcome.runs()) return;
    Result<json::Value> measured = json::parse(read_text_file(file));
    if (!measured) throw StartupError(file + ": " + measured.error().message);
    outcome.measured = std::move(*measured);
  }

  std::vector<AblationOutcome> judged() const {
    std::vector<AblationOutcome> outcomes = outcomes_;
    judge(outcomes, setup_.is_exact);
    return outcomes;
  }

  void print(size_t index) const {
    const AblationOutcome outcome = judged()[index];
    const std::string name(outcome.row->name);
    if (!outcome.runs()) {
      std::printf("row %-3s  x  %s\n", name.c_str(), outcome.why_failed.c_str());
    } else {
      std::printf("row %-3s  %.1f token/s for one query, answers as row 1's: %d of %d\n",
                  name.c_str(), outcome.measured.at("query").at("tokens_per_second").get<double>(),
                  outcome.num_equal, outcome.num_answers);
    }
    std::fflush(stdout);
  }

  void save() const {
    const std::vector<AblationOutcome> outcomes = judged();
    const auto write = [](const std::string& path, const std::string& text) {
      if (!path.empty()) write_result_file(path, text);
    };
    write(flags_.json_filename, json::dump(ablation_json(setup_, outcomes)) + "\n");
    write(flags_.markdown_filename, ablation_markdown(setup_, outcomes));
    write(flags_.svg_filename, ablation_svg(setup_, outcomes));
  }

  // The exit status.
  int finish() const {
    const std::vector<AblationOutcome> outcomes = judged();
    if (flags_.markdown_filename.empty())
      std::printf("\n%s", ablation_markdown(setup_, outcomes).c_str());
    const bool all_run = std::all_of(outcomes.begin(), outcomes.end(),
                                     [](const AblationOutcome& outcome) { return outcome.runs(); });
    return all_run ? 0 : 1;
  }

  const BenchAblationFlags& flags_;
  const std::vector<std::string> shared_;
  std::vector<AblationOutcome> outcomes_;
  AblationMachine machine_;
  AblationSetup setup_;
  ResultDirectory results_;
};

void add_file_flags(CLI::App& app, BenchAblationFlags& flags, const std::string& group) {
  const auto file = [&](const char* name, std::string& path, const char* help) {
    app.add_option(name, path, help)->type_name("FILE")->group(group);
  };
  file("--json", flags.json_filename, "Write all figures to this file");
  file("--markdown", flags.markdown_filename,
       "Write the tables to this file and not to the output");
  file("--svg", flags.svg_filename, "Draw the figures into this file");
}

}  // namespace

Command add_bench_ablation(CLI::App& bench) {
  auto flags = std::make_shared<BenchAblationFlags>();
  CLI::App* app = bench.add_subcommand(
      "ablation", "Run every combination of optimisations, and say what each is worth");
  const std::string group = "Ablation";
  app->add_option("--rows", flags->rows,
                  "Only these, and row 1, with which all are compared: 1 to 16 and B1 to B15 of "
                  "SGLang's tables, K1 to K7 of what they exclude, F1 to F7 of our own, X1 to X28 "
                  "of what is compiled, tuned and quantised")
      ->type_name("NAME...")
      ->default_str("all that this machine and the two flags below allow")
      ->group(group);
  app->add_option("--int8-model-path", flags->int8_model_path,
                  "The model in INT8, as tools/quantize_checkpoint.py makes it: for rows X7 to X12 "
                  "and X19 to X23")
      ->type_name("DIR")
      ->group(group);
  app->add_option("--int4-model-path", flags->int4_model_path,
                  "The model with 4 bits, W4AFP8 or AWQ: for rows X13 to X18 and X24 to X28")
      ->type_name("DIR")
      ->group(group);
  app->add_option("--tp-size", flags->tp_size,
                  "Ranks of all rows; rows with EP-MoE or DP-Attention need two")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->group(group);
  app->add_option("--time-limit", flags->time_limit_seconds, "A row that takes longer is ended")
      ->check(CLI::Range(1.0, 86400.0))
      ->type_name("SECONDS")
      ->group(group);
  add_file_flags(*app, *flags, group);
  add_engine_load_flags(*app, flags->load, kLoadGroup);
  model_flags().add_to(*app, flags->engine.model);
  deterministic_flag().add_to(*app, flags->engine.model);
  memory_flags().add_to(*app, flags->engine.memory);
  device_flags().add_to(*app, flags->engine.device);
  for (const char* of_rows :
       {"--max-running-requests", "--chunked-prefill-size", "--kv-cache-dtype",
        "--disable-cuda-graph", "--cuda-graph-max-bs", "--cuda-graph-bs", "--attention-backend",
        "--disable-fusion", "--enable-fusion", "--fusion-max-bs"})
    app->remove_option(app->get_option(of_rows));
  set_examples(*app,
               {"fathom bench ablation --model-path models/demo --dequantize --dtype float32 \\",
                "    --clients 4 16 --input-len 190 --output-len 115 --markdown ablation.md",
                "fathom bench ablation --model-path DIR --clients 16 256 1024 --svg a.svg"});
  return {.app = app, .run = [flags, app, &bench] {
            forget_variables(*bench.get_subcommand("engine"));
            return Ablation(*flags, given_words(*app)).run();
          }};
}

}  // namespace fathom::apps
