// Decoding with drafts against plain decoding, under load and alone: all of them take turns in one process, a short
// stretch each, so that whatever else the machine does meets them alike.
//
//   taskset -c 1 build/release/bench/bench_speculation --model-path models/demo --data models/demo/eval.json
//     --clients 32
//
// One JSON line per kind of drafts: output tokens per second of the process's processor time, the median of its
// stretches, the median of what it needs for a token over what plain decoding needed in the same round, and the same
// of all rounds together. The median of many short rounds is what most steps cost; looking at other depths now and then
// is in the sum alone. --clients requests are always under way. Engines are warm when the first round begins.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>

#include "base/json.h"
#include "base/startup_error.h"
#include "config/model_config.h"
#include "cpu/fast/fast_backend.h"
#include "engine/step_loop.h"
#include "model/model.h"
#include "ops/uploader.h"
#include "runner/model_runner.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/loader.h"

namespace fathom::engine {
namespace {

struct BenchFlags {
  std::string model_path, data;
  std::string only;  // name of a kind to compare with plain decoding; empty = all
  int clients = 32, rounds = 9, tokens = 2000, output_tokens = 64;
  std::optional<float> agreement;
};

struct Variant {
  const char* name;
  int num_steps = 0, top_k = 1, num_draft_tokens = 0;
  bool adaptive = false;
  bool drafts = true;  // false: there is a drafter, and nobody asks for drafts
};
constexpr Variant kVariants[] = {{.name = "plain"},
                                 {"chain of 1, never", 1, 1, 2, false, false},
                                 {"chain of 1, adaptive", 1, 1, 2, true},
                                 {"chain of 3, adaptive", 3, 1, 4, true},
                                 {"tree of 8, adaptive", 3, 3, 8, true},
                                 {"chain of 1", 1, 1, 2, false}};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

std::unique_ptr<model::Model> load_model(const std::string& path) {
  const ops::Backend& backend = cpu::fast_backend();
  const config::ModelConfig config = value_or_throw(config::load_model_config(path));
  std::unique_ptr<model::Model> model = model::Model::create(config, {}, backend);
  const weights::Checkpoint checkpoint = value_or_throw(weights::Checkpoint::open(path));
  weights::LoadOptions options;
  options.ignored_prefixes = model->ignored_prefixes();
  ops::Uploader uploader(backend, options.num_threads);
  options.copy = [&uploader](void* to, const void* from, int64_t bytes) {
    uploader.copy(to, from, bytes);
  };
  throw_on_error(weights::load_parameters(checkpoint, model->parameters(), options));
  uploader.finish();
  model->finish_loading(*backend.make_stream({.num_threads = 1}));
  return model;
}

runner::RunnerConfig runner_config(const BenchFlags& bench, const Variant& variant) {
  runner::RunnerConfig config{.max_slots = bench.clients,
                              .max_total_tokens = int64_t{bench.clients} * 512,
                              .num_threads = 1};
  if (variant.num_steps == 0) return config;
  config.drafter = {.num_steps = variant.num_steps,
                    .top_k = variant.top_k,
                    .num_draft_tokens = variant.num_draft_tokens};
  config.simulated_agreement = bench.agreement;
  return config;
}

StepLoopConfig loop_config(const BenchFlags& bench, const Variant& variant,
                           const model::Model& model) {
  StepLoopConfig config;
  config.max_running_requests = bench.clients;
  config.eos_token_ids = model.config().eos_token_ids;
  config.speculation.enabled = variant.num_steps > 0;
  config.speculation.adaptive = variant.adaptive;
  return config;
}

// One engine with its clients, who ask the next question as soon as they have an answer.
class Engine {
 public:
  Engine(const BenchFlags& bench, const Variant& variant,
         const std::vector<std::vector<int32_t>>& prompts)
      : bench_(bench),
        prompts_(prompts),
        model_(load_model(bench.model_path)),
        runner_(runner::ModelRunner::create(*model_, runner_config(bench, variant))),
        loop_(*runner_, loop_config(bench, variant, *model_)) {
    if (!variant.drafts) loop_.set_num_drafts(0);
  }

  // Until every block of the cache has been used: the first write of a page costs more than the rows in it, and the
  // drafter's rows have pages of their own.
  void warm_up() {
    while (loop_.stats().num_evicted_blocks == 0) step();
  }

  void run() {
    const int64_t before = loop_.stats().num_output_tokens;
    const double start = processor_seconds();
    while (loop_.stats().num_output_tokens < before + bench_.tokens) step();
    const auto num_tokens = static_cast<double>(loop_.stats().num_output_tokens - before);
    seconds_of_token.push_back((processor_seconds() - start) / num_tokens);
  }
  StepLoopStats stats() const { return loop_.stats(); }

  std::vector<double> seconds_of_token, over_plain;

 private:
  void step() {
    while (loop_.num_live() < bench_.clients) throw_on_error(loop_.add(next()));
    StepUpdates updates;
    loop_.step(updates);
  }

  core::Request next() {
    core::Request request{.id = next_id_++};
    request.prompt = prompts_[static_cast<size_t>(request.id) % prompts_.size()];
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = bench_.output_tokens;
    // With acceptance made up the text is, too: nobody ends it.
    request.sampling.ignore_eos = bench_.agreement.has_value();
    return request;
  }

  const BenchFlags& bench_;
  const std::vector<std::vector<int32_t>>& prompts_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<runner::ModelRunner> runner_;
  StepLoop loop_;
  core::RequestId next_id_ = 0;
};

std::vector<std::vector<int32_t>> load_prompts(const BenchFlags& bench) {
  const text::Tokenizer tokenizer = value_or_throw(text::Tokenizer::load(bench.model_path));
  std::ifstream file(bench.data);
  std::stringstream text;
  text << file.rdbuf();
  std::vector<std::vector<int32_t>> prompts;
  for (const json::Value& problem : value_or_throw(json::parse(text.str())))
    prompts.push_back(
        tokenizer.encode("Question: " + problem.at("question").get<std::string>() + "\nAnswer:"));
  if (prompts.empty()) throw StartupError(bench.data + ": no problems");
  return prompts;
}

// All rounds have about the same number of tokens.
double total(const Engine& engine) {
  return std::accumulate(engine.seconds_of_token.begin(), engine.seconds_of_token.end(), 0.0);
}

void run(const BenchFlags& bench) {
  const std::vector<std::vector<int32_t>> prompts = load_prompts(bench);
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<const char*> names;
  for (const Variant& variant : kVariants) {
    const bool is_wanted =
        bench.only.empty() || variant.num_steps == 0 || bench.only == variant.name;
    if (!is_wanted) continue;
    // Acceptance can be made up for chains only.
    if (variant.top_k > 1 && bench.agreement) continue;
    engines.push_back(std::make_unique<Engine>(bench, variant, prompts));
    names.push_back(variant.name);
  }
  for (const auto& engine : engines) engine->warm_up();
  for (int round = 0; round < bench.rounds; ++round) {
    // To and fro, so that nobody always comes behind the same one.
    for (size_t i = 0; i < engines.size(); ++i)
      engines[round % 2 == 0 ? i : engines.size() - 1 - i]->run();
    const double plain = engines.front()->seconds_of_token.back();
    for (const auto& engine : engines)
      engine->over_plain.push_back(engine->seconds_of_token.back() / plain);
  }
  for (size_t i = 0; i < engines.size(); ++i) {
    const StepLoopStats stats = engines[i]->stats();
    const json::Value line = {{"bench", "speculation"},
                              {"drafts", names[i]},
                              {"clients", bench.clients},
                              {"rounds", bench.rounds},
                              {"tokens_per_cpu_second", 1 / median(engines[i]->seconds_of_token)},
                              {"over_plain", median(engines[i]->over_plain)},
                              {"over_plain_all", total(*engines[i]) / total(*engines.front())},
                              {"steps", stats.num_committed_steps},
                              {"verifying_slices", stats.num_verify_slices},
                              {"output_tokens", stats.num_output_tokens},
                              {"drafts_verified", stats.num_drafts_verified},
                              {"drafts_accepted", stats.num_drafts_accepted}};
    std::printf("%s\n", json::dump(line).c_str());
  }
}

}  // namespace
}  // namespace fathom::engine

int main(int argc, char** argv) {
  fathom::engine::BenchFlags bench;
  CLI::App app("Decoding with drafts against plain decoding");
  app.add_option("--model-path", bench.model_path)->required();
  app.add_option("--data", bench.data, "JSON array of {\"question\"}")->required();
  app.add_option("--clients", bench.clients)->check(CLI::Range(1, 1024));
  app.add_option("--rounds", bench.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--tokens", bench.tokens, "Of a stretch")->check(CLI::PositiveNumber);
  app.add_option("--output-tokens", bench.output_tokens)->check(CLI::PositiveNumber);
  app.add_option("--only", bench.only, "Name of the one kind of drafts to measure");
  app.add_option("--agreement", bench.agreement,
                 "Accept drafts of chains with this probability, whatever the model says");
  CLI11_PARSE(app, argc, argv);
  try {
    fathom::engine::run(bench);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
