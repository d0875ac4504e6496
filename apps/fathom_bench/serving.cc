// fathom-bench serving: load over HTTP against a running server, measured and reported as SGLang's
// bench_serving does it, so that figures of both can be put side by side.

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/count_progress.h"
#include "apps/common/model_directory.h"
#include "apps/common/result_file.h"
#include "apps/fathom_bench/commands.h"
#include "apps/fathom_bench/dataset.h"
#include "apps/fathom_bench/http_target.h"
#include "apps/fathom_bench/load_run.h"
#include "apps/fathom_bench/plot.h"
#include "apps/fathom_bench/report.h"
#include "apps/fathom_bench/statistics.h"
#include "base/startup_error.h"
#include "text/tokenizer.h"

namespace fathom::apps {
namespace {

constexpr int kFirstRequestTokens = 32;

struct BenchServingFlags {
  HttpTargetFlags target;
  std::string backend = "fathom", model_path, request_rate = "inf", dataset_name = "random";
  RandomDataset random;
  SharedPrefixDataset shared_prefix;
  int max_concurrency = 0, warmup_requests = 1;
  uint64_t seed = 1;
  double temperature = 0, ready_check_timeout = 60;
  bool flush_cache = false, disable_ignore_eos = false, output_details = false;
  std::string output_file, plot_file, tag;
};

BenchApi api_of(const std::string& backend) {
  if (backend == "sglang-oai") return BenchApi::kCompletions;
  if (backend == "sglang-oai-chat") return BenchApi::kChat;
  return BenchApi::kNative;
}

double parse_rate(const std::string& text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(rate > 0) || std::isinf(rate)) {
    throw StartupError("--request-rate is \"" + text + "\", must be a number above 0, or inf");
  }
  return rate;
}

std::string tokenizer_path(const BenchServingFlags& flags, HttpTarget& target) {
  if (!flags.model_path.empty()) return flags.model_path;
  const json::Value info = target.get("/model_info");
  for (const char* key : {"tokenizer_path", "model_path"}) {
    std::string path = info.value(key, std::string());
    if (!path.empty() && std::filesystem::exists(path)) return path;
  }
  throw StartupError(
      "the server's model, " + info.value("model_path", std::string()) +
      ", is not on this machine: give a directory with its tokenizer, --model-path DIR");
}

std::string served_model(HttpTarget& target) {
  const json::Value models = target.get("/v1/models");
  if (!models.contains("data") || models["data"].empty()) {
    throw StartupError(target.url("/v1/models") + ": lists no model");
  }
  return models["data"][0].value("id", std::string("default"));
}

std::vector<BenchPrompt> make_prompts(const BenchServingFlags& flags,
                                      const text::Tokenizer& tokenizer) {
  const PromptWords words(tokenizer);
  SeededDraws draws(flags.seed);
  if (flags.dataset_name == "random") return random_prompts(flags.random, words, draws);
  return shared_prefix_prompts(flags.shared_prefix, words, draws);
}

LoadRequest load_request(const WireOptions& wire, const BenchPrompt& prompt) {
  const bool sends_ids = wire.api == BenchApi::kNative;
  return {.body = json::dump(request_body(wire, prompt)),
          .prompt_tokens = sends_ids ? static_cast<int>(prompt.ids.size()) : prompt.text_tokens,
          .output_tokens = prompt.output_len};
}

void warm_up(const BenchServingFlags& flags, const WireOptions& wire, LoadPlan plan,
             const BenchPrompt& first, client::Client& client) {
  if (flags.warmup_requests == 0) return;
  std::printf("Starting warmup with %d requests...\n", flags.warmup_requests);
  std::fflush(stdout);
  const LiveLine line = long_work("warming up");
  BenchPrompt prompt = first;
  prompt.output_len = std::min(prompt.output_len, kFirstRequestTokens);
  plan.requests.assign(static_cast<size_t>(flags.warmup_requests), load_request(wire, prompt));
  plan.request_rate = std::numeric_limits<double>::infinity();
  for (const RequestRecord& record : run_load(client, plan).records) {
    if (!record.ok()) throw StartupError("a warm-up request failed: " + record.error);
  }
}

json::Value dataset_settings(const BenchServingFlags& flags) {
  if (flags.dataset_name == "random") {
    return {{"random_input_len", flags.random.input_len},
            {"random_output_len", flags.random.output_len},
            {"random_range_ratio", flags.random.range_ratio}};
  }
  const SharedPrefixDataset& dataset = flags.shared_prefix;
  return {{"gsp_num_groups", dataset.num_groups},
          {"gsp_prompts_per_group", dataset.prompts_per_group},
          {"gsp_system_prompt_len", dataset.system_prompt_len},
          {"gsp_question_len", dataset.question_len},
          {"gsp_output_len", dataset.output_len}};
}

void write_results(const BenchServingFlags& flags, const ServingSetup& setup,
                   const ServingMetrics& metrics, const LoadResult& result) {
  if (!flags.output_file.empty()) {
    json::Value line = report_json(setup, metrics);
    if (flags.output_details) line.update(report_details(result.records));
    append_result(flags.output_file, line);
  }
  if (!flags.plot_file.empty()) {
    const std::string title = setup.tag.empty() ? "fathom-bench serving" : setup.tag;
    write_result_file(flags.plot_file, serving_plot(title, setup, metrics, result.records));
  }
}

ServingSetup setup_of(const BenchServingFlags& flags, const text::Tokenizer& tokenizer,
                      const LoadResult& result) {
  ServingSetup setup{.backend = flags.backend,
                     .dataset_name = flags.dataset_name,
                     .tag = flags.tag,
                     .request_rate = parse_rate(flags.request_rate),
                     .max_concurrency = flags.max_concurrency,
                     .dataset = dataset_settings(flags)};
  for (const RequestRecord& record : result.records) {
    if (!record.ok()) continue;
    setup.output_tokens_retokenized +=
        static_cast<int64_t>(tokenizer.encode(record.text, {.parse_special = false}).size());
  }
  return setup;
}

int run(const BenchServingFlags& flags) {
  client::Client client;
  HttpTarget target(client, flags.target);
  LoadPlan plan{.api = api_of(flags.backend),
                .url = target.url(api_path(api_of(flags.backend))),
                .headers = target.headers(),
                .request_rate = parse_rate(flags.request_rate),
                .max_concurrency = flags.max_concurrency,
                .seed = flags.seed};
  target.wait_until_ready(flags.ready_check_timeout);
  target.describe();
  const text::Tokenizer tokenizer =
      value_or_throw(text::Tokenizer::load(tokenizer_path(flags, target)));
  const WireOptions wire{.api = plan.api,
                         .model = served_model(target),
                         .ignore_eos = !flags.disable_ignore_eos,
                         .temperature = flags.temperature};
  const std::vector<BenchPrompt> prompts = make_prompts(flags, tokenizer);
  for (const BenchPrompt& prompt : prompts) plan.requests.push_back(load_request(wire, prompt));

  warm_up(flags, wire, plan, prompts.front(), client);
  if (flags.flush_cache) target.flush_cache();
  const json::Value info_before = target.get("/server_info");
  CountProgress progress("requests", std::ssize(plan.requests));
  plan.on_end = [&progress] { progress.add(); };
  const LoadResult result = run_load(client, plan);
  progress.finish();

  const ServingMetrics metrics = serving_metrics(result.records, result.duration_seconds);
  ServingSetup setup = setup_of(flags, tokenizer, result);
  setup.server_info = target.get("/server_info");
  setup.drafts = acceptance(info_before, setup.server_info);
  std::fputs(report_text(setup, metrics).c_str(), stdout);
  std::fflush(stdout);
  write_results(flags, setup, metrics, result);
  // A figure of fewer requests than were asked for is none.
  return metrics.completed == static_cast<int>(result.records.size()) ? 0 : 1;
}

void add_count(CLI::App& app, const char* name, int& value, const char* help) {
  app.add_option(name, value, help)
      ->check(CLI::Range(1, 1 << 24))
      ->type_name("N")
      ->group("Workload");
}

void add_dataset_flags(CLI::App& app, BenchServingFlags& flags) {
  const std::string group = "Workload";
  app.add_option("--dataset-name", flags.dataset_name,
                 "Random prompts, or groups of questions behind a shared prefix")
      ->check(CLI::IsMember({"random", "generated-shared-prefix"}))
      ->type_name("random|generated-shared-prefix")
      ->group(group);
  add_count(app, "--num-prompts", flags.random.num_prompts, "random: requests to send");
  add_count(app, "--random-input-len", flags.random.input_len, "random: longest prompt, in tokens");
  add_count(app, "--random-output-len", flags.random.output_len,
            "random: longest output, in tokens");
  app.add_option("--random-range-ratio", flags.random.range_ratio,
                 "random: lengths are uniform from this share of the longest to the longest")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE")
      ->group(group);
  SharedPrefixDataset& shared = flags.shared_prefix;
  add_count(app, "--gsp-num-groups", shared.num_groups, "shared prefix: different prefixes");
  add_count(app, "--gsp-prompts-per-group", shared.prompts_per_group,
            "shared prefix: requests with each");
  add_count(app, "--gsp-system-prompt-len", shared.system_prompt_len,
            "shared prefix: its length, in tokens");
  add_count(app, "--gsp-question-len", shared.question_len,
            "shared prefix: what follows it, in tokens");
  add_count(app, "--gsp-output-len", shared.output_len, "shared prefix: output, in tokens");
  app.add_option("--seed", flags.seed, "Of prompts, lengths and arrivals")
      ->type_name("N")
      ->group(group);
  app.add_option("-m,--model-path", flags.model_path, "Directory of the served model's tokenizer")
      ->transform(checkpoint_directory("--model-path"))
      ->type_name("DIR")
      ->default_str("what the server names, if it is here")
      ->group(group);
}

void add_traffic_flags(CLI::App& app, BenchServingFlags& flags) {
  const std::string group = "Traffic";
  app.add_option("--backend", flags.backend,
                 "API to use: fathom and sglang are the native one with token ids, the others "
                 "completions and chat with text")
      ->check(CLI::IsMember({"fathom", "sglang", "sglang-oai", "sglang-oai-chat"}))
      ->type_name("fathom|sglang|sglang-oai|sglang-oai-chat")
      ->group(group);
  app.add_option("--request-rate", flags.request_rate,
                 "Requests per second, arriving at random; inf sends all at once")
      ->type_name("RATE")
      ->group(group);
  app.add_option("--max-concurrency", flags.max_concurrency,
                 "Requests in flight at the same time; others wait and are timed from their start")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->default_str("no bound")
      ->group(group);
  app.add_flag("--disable-ignore-eos", flags.disable_ignore_eos,
               "Let answers end at the end token; else all get their full length")
      ->group(group);
  app.add_option("--temperature", flags.temperature, "0 is greedy")
      ->check(CLI::Range(0.0, 100.0))
      ->type_name("T")
      ->group(group);
  app.add_option("--warmup-requests", flags.warmup_requests, "Sent before the clock starts")
      ->check(CLI::Range(0, 1 << 16))
      ->type_name("N")
      ->group(group);
  app.add_flag("--flush-cache", flags.flush_cache, "Empty the server's prefix cache after warm-up")
      ->group(group);
  app.add_option("--ready-check-timeout", flags.ready_check_timeout,
                 "How long to wait for the server")
      ->check(CLI::Range(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group(group);
}

void add_output_flags(CLI::App& app, BenchServingFlags& flags) {
  const std::string group = "Results";
  app.add_option("--output-file", flags.output_file, "Append the result as a JSON line")
      ->type_name("FILE")
      ->group(group);
  app.add_flag("--output-details", flags.output_details,
               "Each request's lengths, times and error in that line too")
      ->group(group);
  app.add_option("--plot", flags.plot_file,
                 "SVG with the distributions of TTFT, inter-token and end-to-end latency and the "
                 "output rate over time")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tag", flags.tag, "Goes into the JSON line and the plot's title")
      ->type_name("TEXT")
      ->group(group);
}

}  // namespace

Command add_bench_serving(CLI::App& parent) {
  auto flags = std::make_shared<BenchServingFlags>();
  CLI::App* app = parent.add_subcommand("serving", "Load a running server over HTTP");
  add_http_target_flags(*app, flags->target);
  add_traffic_flags(*app, *flags);
  add_dataset_flags(*app, *flags);
  add_output_flags(*app, *flags);
  set_examples(
      *app, {"fathom-bench serving --num-prompts 256 --max-concurrency 32 \\",
             "    --random-input-len 32 --random-output-len 128 --random-range-ratio 1",
             "fathom-bench serving --dataset-name generated-shared-prefix --gsp-num-groups 16 \\",
             "    --flush-cache --max-concurrency 8 --plot shared-prefix.svg"});
  return {.app = app, .run = [flags] { return run(*flags); }};
}

}  // namespace fathom::apps
