// fathom tune gemm and fathom tune moe: which kernels, splits, stages and tiles are fastest on this GPU for the shapes
// of a model, written as files that the engine reads (docs/tuning.md).

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/bench_ops/read_bandwidth.h"
#include "apps/common/commit.h"
#include "apps/common/count_progress.h"
#include "apps/common/model_directory.h"
#include "apps/common/result_file.h"
#include "apps/engine/engine_setup.h"
#include "apps/flags/flags.h"
#include "apps/tune/commands.h"
#include "apps/tune/journal.h"
#include "apps/tune/shape_timer.h"
#include "apps/tune/shapes.h"
#include "apps/tune/tune_shape.h"
#include "base/clock.h"
#include "base/startup_error.h"
#include "cuda/backend.h"
#include "cuda/gemm/library.h"
#include "cuda/inventory.h"
#include "layers/weight_builder.h"
#include "tuned/file.h"

namespace fathom::apps {
namespace {

using tensor::DType, tuned::ExpertChoices, tuned::MatrixChoices;

struct TuneFlags {
  std::string model_path;
  std::vector<int> tp_sizes = {1};
  std::vector<int64_t> shape;  // gemm: N K; moe: E N hidden_size num_experts_per_tok
  std::string dtype = "fp8_e4m3";
  std::vector<int64_t> rows;
  double time_limit = 0, shape_limit = 60;
  int best = 3;
  std::string out = "tuned";
  bool resume = false, check = false;
  LogFlags log;

  DType type() const { return dtype == "bfloat16" ? DType::kBf16 : DType::kF8E4M3; }
};

// What is tuned, of either family.
struct MatrixJob {
  using Choices = MatrixChoices;
  using Choice = tuned::MatrixChoice;
  using Timer = MatrixTimer;
  static constexpr const char* kJournal = "progress-gemm.jsonl";

  std::string name;
  tuned::MatrixShape shape{};
  std::vector<int64_t> rows;

  std::vector<SearchTask<Choice>> tasks(const TuneDevice& device) const {
    return matrix_tasks(shape, rows, device);
  }
  Timer timer(const ops::Backend& backend, const TuneDevice& device, RandomPieces& pieces) const {
    return {backend, shape, rows, device.has_library, pieces};
  }
};

struct ExpertJob {
  using Choices = ExpertChoices;
  using Choice = tuned::ExpertChoice;
  using Timer = ExpertTimer;
  static constexpr const char* kJournal = "progress-moe.jsonl";

  std::string name;
  ExpertTask experts{};
  std::vector<int64_t> rows;
  tuned::ExpertShape shape{};

  std::vector<SearchTask<Choice>> tasks(const TuneDevice& device) const {
    return expert_tasks(experts, rows, device);
  }
  Timer timer(const ops::Backend& backend, const TuneDevice&, RandomPieces& pieces) const {
    return {backend, experts, rows, pieces};
  }
};

std::vector<int64_t> default_rows(const MatrixJob*) {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
}
std::vector<int64_t> default_rows(const ExpertJob*) {
  return {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096};
}

template <class Job>
std::vector<int64_t> rows_of(const TuneFlags& flags) {
  std::vector<int64_t> rows =
      flags.rows.empty() ? default_rows(static_cast<const Job*>(nullptr)) : flags.rows;
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// A shape of several ranks or matrices is tuned once, for all of their numbers of rows.
void add_job(MatrixJob job, std::vector<MatrixJob>& jobs) {
  if (job.rows.empty()) return;
  for (MatrixJob& other : jobs) {
    if (other.shape != job.shape) continue;
    std::set<int64_t> rows(other.rows.begin(), other.rows.end());
    rows.insert(job.rows.begin(), job.rows.end());
    other.rows.assign(rows.begin(), rows.end());
    return;
  }
  jobs.push_back(std::move(job));
}
void add_job(ExpertJob job, std::vector<ExpertJob>& jobs) {
  for (const ExpertJob& other : jobs)
    if (other.shape == job.shape) return;
  jobs.push_back(std::move(job));
}

void add_model(const config::ModelConfig& config, const layers::WeightTypes& types, int tp_size,
               const std::vector<int64_t>& rows, std::vector<MatrixJob>& jobs) {
  for (const ModelMatrix& matrix : model_matrices(config, types, tp_size)) {
    MatrixJob job{.name = matrix.name, .shape = matrix.shape, .rows = {}};
    for (const int64_t count : rows)
      if (matrix.has_rows(count)) job.rows.push_back(count);
    add_job(std::move(job), jobs);
  }
}
void add_model(const config::ModelConfig& config, const layers::WeightTypes& types, int tp_size,
               const std::vector<int64_t>& rows, std::vector<ExpertJob>& jobs) {
  if (const std::optional<ExpertTask> experts = model_experts(config, types, tp_size))
    add_job({.name = "experts", .experts = *experts, .rows = rows, .shape = experts->shape}, jobs);
}

MatrixJob job_of_shape(const TuneFlags& flags, const std::vector<int64_t>& rows, const MatrixJob*) {
  if (flags.shape.size() != 2) throw StartupError("--shape of gemm is N,K");
  return {.name = "matrix",
          .shape = {.dtype = flags.type(), .n = flags.shape[0], .k = flags.shape[1]},
          .rows = rows};
}
ExpertJob job_of_shape(const TuneFlags& flags, const std::vector<int64_t>& rows, const ExpertJob*) {
  if (flags.shape.size() != 4)
    throw StartupError("--shape of moe is E,N,hidden_size,num_experts_per_tok");
  const ExpertTask experts{
      .shape = {.dtype = flags.type(), .experts = flags.shape[0], .inter = flags.shape[1]},
      .hidden_size = flags.shape[2],
      .num_experts_per_tok = flags.shape[3]};
  if (experts.num_experts_per_tok > experts.shape.experts)
    throw StartupError("--shape: a token cannot take " + std::to_string(flags.shape[3]) + " of " +
                       std::to_string(flags.shape[0]) + " experts");
  return {.name = "experts", .experts = experts, .rows = rows, .shape = experts.shape};
}

template <class Job>
std::vector<Job> jobs_of(const TuneFlags& flags) {
  const std::vector<int64_t> rows = rows_of<Job>(flags);
  std::vector<Job> jobs;
  if (!flags.shape.empty())
    jobs.push_back(job_of_shape(flags, rows, static_cast<const Job*>(nullptr)));
  if (!flags.model_path.empty()) {
    ModelFlags model;
    model.model_path = flags.model_path;
    const config::ModelConfig config = load_config(model);
    const layers::WeightTypes types = layers::quantised_types(config, /*dequantize=*/false);
    for (const int tp_size : flags.tp_sizes) add_model(config, types, tp_size, rows, jobs);
  }
  if (jobs.empty()) throw StartupError("nothing to tune: give --model-path or --shape");
  return jobs;
}

// A sum over what was measured: the mean ratio of the chosen, and the worst.
class Ratios {
 public:
  template <class Choice>
  void add(const std::vector<tuned::Entry<Choice>>& entries) {
    for (const auto& entry : entries) {
      if (entry.choice == Choice{}) continue;
      const double ratio = entry.us / entry.default_us;
      logs_ += std::log(ratio);
      worst_ = std::max(worst_, ratio);
      ++count_;
    }
  }
  size_t count() const { return count_; }
  double worst() const { return worst_; }
  double mean() const { return count_ > 0 ? std::exp(logs_ / static_cast<double>(count_)) : 1; }

 private:
  double logs_ = 0, worst_ = 0;
  size_t count_ = 0;
};

template <class Choice>
void print_entries(const std::vector<tuned::Entry<Choice>>& entries) {
  for (const auto& entry : entries) {
    if (entry.choice == Choice{}) continue;
    std::printf("  %6lld rows  %-44s %10.2f us, by the rule %10.2f (%.3f)\n",
                static_cast<long long>(entry.rows), tuned::choice_text(entry.choice).c_str(),
                entry.us, entry.default_us, entry.us / entry.default_us);
  }
}

struct TuneRun {
  const TuneFlags& flags;
  const ops::Backend& backend;
  TuneDevice device{};
  std::string device_name;
  RandomPieces pieces;
  Stopwatch watch{};

  bool is_over() const { return flags.time_limit > 0 && watch.seconds() >= flags.time_limit; }
};

template <class Job>
typename Job::Choices empty_choices(const TuneRun& run, const Job& job) {
  return {.device = run.device_name, .shape = job.shape, .entries = {}, .from = {}};
}

template <class Job>
MeasureChoice<typename Job::Choice> measuring(typename Job::Timer& timer) {
  return [&timer](const typename Job::Choice& choice, int64_t rows, int num_samples) {
    return timer.measure(choice, rows, num_samples);
  };
}

template <class Choices>
void write_choices(const std::string& folder, const Choices& choices) {
  const std::string path = folder + "/" + tuned::file_name(choices);
  std::error_code error;
  std::filesystem::remove(path, error);
  if (!choices.entries.empty()) write_result_file(path, tuned::file_text(choices));
}

// None where the time was over before it was done.
template <class Job>
std::optional<typename Job::Choices> tune_job(TuneRun& run, const Job& job) {
  const Stopwatch shape_watch;
  typename Job::Timer timer = job.timer(run.backend, run.device, run.pieces);
  SearchLimits limits;
  limits.best = static_cast<size_t>(run.flags.best);
  limits.is_late = [&] { return run.is_over() || shape_watch.seconds() >= run.flags.shape_limit; };
  const auto outcome = tune_shape(job.shape, job.tasks(run.device), limits, measuring<Job>(timer));
  if (run.is_over()) return std::nullopt;
  typename Job::Choices choices = empty_choices(run, job);
  choices.entries = outcome.entries;
  std::printf("%s  %s: %.1f s, %zu candidates timed, %zu dropped by the cost model%s\n",
              tuned::file_name(choices).c_str(), job.name.c_str(), shape_watch.seconds(),
              outcome.num_timed, outcome.num_pruned,
              outcome.was_late ? ", --shape-limit reached" : "");
  print_entries(choices.entries);
  return choices;
}

// Entries where nothing is chosen stand for one number of rows, so that a line of the journal has some.
template <class Choices>
Choices for_journal(Choices choices, const std::vector<int64_t>& rows) {
  if (choices.entries.empty()) choices.entries.push_back({.rows = rows.front()});
  return choices;
}

template <class Choices>
Choices without_rule_alone(Choices choices) {
  if (num_chosen(choices.entries) == 0) choices.entries.clear();
  return choices;
}

template <class Job>
int search_jobs(TuneRun& run, const std::vector<Job>& jobs) {
  Journal journal(run.flags.out + "/" + Job::kJournal, run.flags.resume);
  CountProgress progress("shapes", static_cast<int64_t>(jobs.size()));
  Ratios ratios;
  size_t num_done = 0;
  for (const Job& job : jobs) {
    const std::string name = tuned::file_name(empty_choices(run, job));
    progress.start(name);
    auto known = journal.find<typename Job::Choices>(name, job.rows);
    std::optional<typename Job::Choices> choices;
    if (known) {
      choices = without_rule_alone(std::move(*known));
    } else if (!run.is_over()) {
      progress.beside([&] { choices = tune_job(run, job); });
      if (choices) journal.add(for_journal(*choices, job.rows), job.rows);
    }
    if (!choices) break;
    write_choices(run.flags.out, *choices);
    ratios.add(choices->entries);
    ++num_done;
    progress.add();
  }
  progress.finish();
  std::printf(
      "%zu of %zu shapes in %.1f s; %zu numbers of rows are faster than by the rule, %.3f "
      "of its time in the geometric mean\n",
      num_done, jobs.size(), run.watch.seconds(), ratios.count(), ratios.mean());
  if (num_done < jobs.size()) std::printf("--time-limit reached: go on with --resume\n");
  return num_done == jobs.size() ? 0 : 1;
}

// Times the files that there are once more. 1: one of them is slower than the rule, by more than noise.
template <class Job>
int check_jobs(TuneRun& run, const std::vector<Job>& jobs) {
  constexpr double kSlower = 1.02;
  tuned::Table table;
  throw_on_error(tuned::add_directory(run.flags.out, run.device_name, table));
  Ratios ratios;
  for (const Job& job : jobs) {
    typename Job::Choices choices = empty_choices(run, job);
    const auto* const read = table.find(job.shape);
    if (read == nullptr) continue;
    typename Job::Timer timer = job.timer(run.backend, run.device, run.pieces);
    for (const auto& entry : read->entries)
      if (num_chosen<typename Job::Choice>({entry}) > 0 &&
          std::find(job.rows.begin(), job.rows.end(), entry.rows) != job.rows.end())
        choices.entries.push_back(
            time_again(entry.choice, entry.rows, SearchLimits{}.samples, measuring<Job>(timer)));
    std::printf("%s\n", tuned::file_name(choices).c_str());
    print_entries(choices.entries);
    std::fflush(stdout);
    ratios.add(choices.entries);
  }
  std::printf("%zu numbers of rows: %.3f of the rule's time in the geometric mean, %.3f at most\n",
              ratios.count(), ratios.mean(), ratios.worst());
  return ratios.worst() <= kSlower ? 0 : 1;
}

TuneDevice describe(const ops::Backend& backend, const cuda::Gpu& gpu) {
  return {.multiprocessors = gpu.multiprocessors,
          .gb_per_s = measure_read_bandwidth(backend, /*num_threads=*/1),
          .has_library = cuda::find_cublaslt().has_value()};
}

template <class Job>
int run_tune(const TuneFlags& flags) {
  apply_log_flags(flags.log);
  const std::vector<Job> jobs = jobs_of<Job>(flags);
  const cuda::Presence presence = cuda::find_gpu();
  if (!presence.usable) throw StartupError("tune times kernels of a GPU: " + presence.why_not);
  const ops::Backend& backend = cuda::backend();
  const cuda::Gpu gpu = cuda::list_gpus().front();
  std::error_code error;
  std::filesystem::create_directories(flags.out, error);
  if (error) throw StartupError("--out " + flags.out + ": " + error.message());
  TuneRun run{.flags = flags,
              .backend = backend,
              .device = describe(backend, gpu),
              .device_name = tuned::device_name_in_files(gpu.name),
              .pieces = RandomPieces(backend)};
  std::printf("%s, reads %.1f GB/s, commit %s, %zu shapes\n", gpu.name.c_str(), run.device.gb_per_s,
              built_from(), jobs.size());
  return flags.check ? check_jobs(run, jobs) : search_jobs(run, jobs);
}

void add_tune_flags(CLI::App& app, const char* shape, const char* rows, TuneFlags& flags) {
  const std::string shapes = "Shapes", search = "Search", output = "Output";
  app.add_option("-m,--model-path", flags.model_path,
                 "The shapes of this model; its config.json is enough")
      ->transform(checkpoint_directory("--model-path"))
      ->type_name("DIR")
      ->group(shapes);
  app.add_option("--tp-size", flags.tp_sizes,
                 "As ranks of so many have them, with commas in between")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->type_name("N,...")
      ->group(shapes);
  app.add_option("--shape", flags.shape, "One shape instead, or besides")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->type_name(shape)
      ->group(shapes);
  app.add_option("--dtype", flags.dtype, "Type of the weights of --shape")
      ->check(CLI::IsMember({"fp8_e4m3", "bfloat16"}))
      ->type_name("fp8_e4m3|bfloat16")
      ->group(shapes);
  app.add_option("--rows", flags.rows, "Rows of a call, with commas in between")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 17))
      ->type_name("N,...")
      ->default_str(rows)
      ->group(shapes);
  app.add_option("--time-limit", flags.time_limit, "End after so long; --resume goes on")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("SECONDS")
      ->default_str("none")
      ->group(search);
  app.add_option("--shape-limit", flags.shape_limit,
                 "Leave what is not timed of a shape after so long")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("SECONDS")
      ->group(search);
  app.add_option("--best", flags.best, "The best so many are timed again, beside the rule")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->group(search);
  app.add_option("--out", flags.out, "Where the files go, for --tuned-dir")
      ->type_name("DIR")
      ->group(output);
  app.add_flag("--resume", flags.resume, "Leave out the shapes that an earlier run has finished")
      ->group(output);
  app.add_flag("--check", flags.check,
               "Only time the files in --out again; fails if one is slower than the rule")
      ->group(output);
  log_flags().add_to(app, flags.log);
}

}  // namespace

Command add_tune_gemm(CLI::App& tune) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* app = tune.add_subcommand("gemm", "Tune the products with a model's matrices");
  add_tune_flags(*app, "N,K", "1 to 8192, doubling", *flags);
  set_examples(*app, {"fathom tune gemm --model-path models/configs/deepseek-v3 --tp-size 1,8",
                      "fathom tune gemm --shape 1536,1536 --rows 1,8,64 --out my-tuned"});
  return {.app = app, .run = [flags] { return run_tune<MatrixJob>(*flags); }};
}

Command add_tune_moe(CLI::App& tune) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* app = tune.add_subcommand("moe", "Tune a model's experts");
  add_tune_flags(*app, "E,N,HIDDEN,TOP_K", "16 from 1 to 4096", *flags);
  set_examples(*app, {"fathom tune moe --model-path models/configs/deepseek-v3 --tp-size 8",
                      "fathom tune moe --shape 256,256,7168,8 --resume"});
  return {.app = app, .run = [flags] { return run_tune<ExpertJob>(*flags); }};
}

}  // namespace fathom::apps
