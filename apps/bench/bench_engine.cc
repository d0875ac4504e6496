// fathom bench engine: the engine with its scheduler under clients that wait for each answer: the tokens of questions,
// the speed of one query, and the throughput of many. `fathom bench ablation` runs it once for each set of flags.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "answer/constraint_factory.h"
#include "apps/bench/client_load.h"
#include "apps/bench/commands.h"
#include "apps/bench/engine_bench_flags.h"
#include "apps/bench/static_batch.h"
#include "apps/common/chat_session.h"
#include "apps/common/commit.h"
#include "apps/common/count_progress.h"
#include "apps/common/gsm8k_questions.h"
#include "apps/common/result_file.h"
#include "apps/common/text_setup.h"
#include "apps/engine/engine_setup.h"
#include "base/json.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

constexpr int kCacheBlockTokens = 64;
// Of a CPU's cache, for the questions: prefixes stay in it.
constexpr int64_t kQuestionTokens = 16'384;

struct BenchEngineFlags {
  EngineFlags engine;
  EngineLoadFlags load;
  bool disable_radix_cache = false, any_text_grammar = false, no_warm_up = false;
  std::string json_filename;
};

// Requests of the run, greedy.
class Requests {
 public:
  Requests(const BenchEngineFlags& flags, const config::ModelConfig& config)
      : flags_(flags), vocab_size_(config.vocab_size) {
    TextSetup text = load_text(flags.engine.model.model_path, "auto");
    query_ = text.chat_format ? ChatSession(text, {}).prompt_for(flags.load.query).ids
                              : encode_prompt(text.tokenizer, flags.load.query);
    tokenizer_ = std::make_shared<const text::Tokenizer>(std::move(text.tokenizer));
    if (!flags.any_text_grammar) return;
    constraints_ = std::make_unique<answer::ConstraintFactory>(answer::ConstraintFactory::Config{
        .tokenizer = tokenizer_, .vocab_size = vocab_size_, .eos_token_ids = config.eos_token_ids});
  }

  const text::Tokenizer& tokenizer() const { return *tokenizer_; }

  std::vector<core::Request> query() const { return {of_length(query_, flags_.load.query_tokens)}; }

  // The query is the last of them: here its answer ends where it ends.
  std::vector<core::Request> questions(const std::vector<std::string>& prompts) const {
    std::vector<core::Request> requests;
    for (const std::string& prompt : prompts)
      requests.push_back(greedy(encode_prompt(*tokenizer_, prompt), flags_.load.max_new_tokens));
    requests.push_back(greedy(query_, flags_.load.max_new_tokens));
    return requests;
  }

  // Random prompts, which share nothing.
  std::vector<core::Request> batch(int count, uint64_t seed) const {
    std::vector<core::Request> requests;
    for (int request = 0; request < count; ++request)
      requests.push_back(of_length(random_prompt(seed, request, flags_.load.input_len, vocab_size_),
                                   flags_.load.output_len));
    return requests;
  }

 private:
  core::Request greedy(std::vector<int32_t> prompt, int max_new_tokens) const {
    core::Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = max_new_tokens;
    if (constraints_ != nullptr) request.constraint = any_text();
    return request;
  }

  // Its end tokens are banned before the last.
  core::Request of_length(std::vector<int32_t> prompt, int num_tokens) const {
    core::Request request = greedy(std::move(prompt), num_tokens);
    request.sampling.min_new_tokens = num_tokens;
    return request;
  }

  answer::ConstraintPtr any_text() const {
    api::GenerationItem item;
    item.grammar = std::make_shared<const api::GrammarSource>(
        api::GrammarSource{.kind = api::GrammarSource::Kind::kRegex,
                           .text = R"((.|\n)*)",
                           .field = "--any-text-grammar"});
    auto constraint = constraints_->make(api::GenerationRequest(), item);
    if (const auto* error = std::get_if<api::ApiError>(&constraint))
      throw StartupError("--any-text-grammar: " + error->message);
    return std::get<answer::ConstraintPtr>(std::move(constraint));
  }

  const BenchEngineFlags& flags_;
  int vocab_size_;
  std::vector<int32_t> query_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<answer::ConstraintFactory> constraints_;  // null: answers are free
};

json::Value load_settings(const BenchEngineFlags& flags, const ReadyModel& ready) {
  const EngineFlags& engine = flags.engine;
  json::Value settings = {{"device", std::string(ready.backend->device)},
                          {"dtype", engine.model.dtype},
                          {"dequantize", engine.model.dequantize},
                          {"kv_cache_dtype", engine.model.kv_cache_dtype},
                          {"deterministic", engine.model.deterministic},
                          {"chunked_prefill_size", chunked_prefill_size(engine, *ready.backend)},
                          {"max_running_requests", engine.memory.max_running_requests},
                          {"cuda_graph_bs", graph_batch_sizes(engine, *ready.backend)},
                          {"attention_backend", engine.device.attention_backend},
                          {"disable_fusion", engine.device.disable_fusion},
                          {"enable_fusion", engine.device.enable_fusion},
                          {"jit", engine.device.jit},
                          {"disable_overlap_schedule", engine.disable_overlap_schedule},
                          {"disable_radix_cache", flags.disable_radix_cache},
                          {"any_text_grammar", flags.any_text_grammar}};
  settings.update(rank_settings(engine.ranks));
  settings.update(speculation_settings(engine.speculation));
  return settings;
}

ClientLoadResult run_shown(ClientLoad& load, std::vector<core::Request> requests, int num_clients,
                           const char* what) {
  CountProgress progress(what, std::ssize(requests));
  return load.run(std::move(requests), num_clients, [&progress] { progress.add(); });
}

json::Value measure_query(ClientLoad& load, const Requests& requests) {
  const ClientLoadResult result = run_shown(load, requests.query(), 1, "queries");
  const ClientAnswer& answer = result.answers.front();
  std::printf("One query: %.2f token/s, first token after %.4f s\n",
              answer.decode_tokens_per_second(), answer.first_token_seconds);
  std::fflush(stdout);
  return {{"tokens_per_second", answer.decode_tokens_per_second()},
          {"first_token_seconds", answer.first_token_seconds},
          {"num_tokens", answer.tokens.size()},
          {"accept_length", result.accept_length()}};
}

json::Value measure_questions(ClientLoad& load, const Requests& requests,
                              const Gsm8kQuestions& questions, int num_clients) {
  const ClientLoadResult result =
      run_shown(load, requests.questions(questions.prompts), num_clients, "questions");
  std::vector<std::string> texts;
  json::Value tokens = json::Value::array();
  for (const ClientAnswer& answer : result.answers) {
    const std::string text = requests.tokenizer().decode(answer.tokens, true);
    texts.emplace_back(before_next_question(text));
    tokens.push_back(answer.tokens);
  }
  texts.pop_back();
  const Gsm8kScore score = gsm8k_score(questions.problems, texts);
  std::printf("%d questions: accuracy %.3f\n", score.num_questions, score.accuracy());
  std::fflush(stdout);
  return {{"accuracy", score.accuracy()},
          {"num_questions", score.num_questions},
          {"accept_length", result.accept_length()},
          {"tokens", std::move(tokens)}};
}

json::Value measure_batch(ClientLoad& load, const Requests& requests, const EngineLoadFlags& flags,
                          int num_clients) {
  const int count = num_clients * flags.requests_per_client;
  const auto seed = static_cast<uint64_t>(num_clients);
  const ClientLoadResult result =
      run_shown(load, requests.batch(count, seed), num_clients, "requests");
  std::printf("%d clients, %d requests: %.2f token/s, %.2f token/s a request\n", num_clients, count,
              result.tokens_per_second(), result.tokens_per_second_of_request());
  std::fflush(stdout);
  return {{"clients", num_clients},
          {"requests", count},
          {"seconds", result.seconds},
          {"tokens_per_second", result.tokens_per_second()},
          {"tokens_per_second_of_request", result.tokens_per_second_of_request()},
          {"accept_length", result.accept_length()}};
}

// A cache and slots for the most clients, unless told otherwise.
void make_room(BenchEngineFlags& flags, bool device_memory) {
  MemoryFlags& memory = flags.engine.memory;
  const int most = *std::max_element(flags.load.clients.begin(), flags.load.clients.end());
  memory.max_running_requests = most;
  if (memory.max_total_tokens || device_memory) return;
  const int length = flags.load.input_len + flags.load.output_len;
  const int64_t blocks = (length + kCacheBlockTokens - 1) / kCacheBlockTokens + 1;
  memory.max_total_tokens = most * blocks * kCacheBlockTokens + kQuestionTokens;
}

int run(BenchEngineFlags& flags) {
  make_room(flags, choose_backend(flags.engine).device_memory);
  const Gsm8kQuestions questions =
      load_gsm8k_questions(flags.load.questions, flags.load.num_questions);
  ReadyModel ready = make_ready_model(flags.engine);
  const Requests requests(flags, ready.config);
  engine::StepLoopConfig config = step_loop_config(flags.engine, ready);
  config.radix_cache = !flags.disable_radix_cache;
  engine::StepLoop loop(ready.runner(), std::move(config));
  ClientLoad load(loop);

  std::vector<int> clients = flags.load.clients;
  std::sort(clients.begin(), clients.end());
  if (flags.no_warm_up) std::reverse(clients.begin(), clients.end());
  json::Value line = {{"commit", built_from()},
                      {"model_path", flags.engine.model.model_path},
                      {"input_len", flags.load.input_len},
                      {"output_len", flags.load.output_len},
                      {"settings", load_settings(flags, ready)},
                      {"batches", json::Value::array()}};
  const auto measure_batches = [&] {
    for (const int num_clients : clients)
      line["batches"].push_back(measure_batch(load, requests, flags.load, num_clients));
  };
  if (flags.no_warm_up) measure_batches();
  line["questions"] = measure_questions(load, requests, questions, clients.back());
  line["query"] = measure_query(load, requests);
  if (!flags.no_warm_up) measure_batches();
  if (!flags.json_filename.empty()) append_result(flags.json_filename, line);
  return 0;
}

}  // namespace

Command add_bench_engine(CLI::App& bench) {
  auto flags = std::make_shared<BenchEngineFlags>();
  CLI::App* app = bench.add_subcommand(
      "engine",
      "Time the engine with its scheduler: one query, then clients that wait for answers");
  const std::string group = "Load";
  add_engine_load_flags(*app, flags->load, group);
  app->add_flag("--disable-radix-cache", flags->disable_radix_cache,
                "Compute every prompt from its beginning")
      ->group(group);
  app->add_flag("--any-text-grammar", flags->any_text_grammar,
                "Hold all answers to a grammar that any text fits: what masks cost")
      ->group(group);
  app->add_flag("--no-warm-up", flags->no_warm_up, "Begin with the most clients")->group(group);
  app->add_option("--json", flags->json_filename,
                  "Append the result, with all tokens, to this file as a JSON line")
      ->type_name("FILE")
      ->group(group);
  add_engine_flags(*app, flags->engine);
  add_overlap_flag(*app, group, flags->engine);
  app->remove_option(app->get_option("--max-running-requests"));
  set_examples(*app, {"fathom bench engine --model-path demo",
                      "fathom bench engine --model-path models/demo --clients 4 16 \\",
                      "    --input-len 190 --output-len 115 --disable-fusion"});
  return {.app = app, .run = [flags] { return run(*flags); }};
}

}  // namespace fathom::apps
