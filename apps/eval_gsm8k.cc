// fathom eval gsm8k: few-shot word problems, greedy, answered in parallel; output lines as SGLang's gsm8k
// benchmark prints them.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/common/count_progress.h"
#include "apps/common/gsm8k_questions.h"
#include "apps/common/result_file.h"
#include "apps/common/text_setup.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/node_setup.h"
#include "apps/flags/flags.h"
#include "apps/interrupt.h"
#include "apps/text_generation.h"
#include "base/json.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

struct EvalGsm8kFlags {
  EngineFlags engine;
  Gsm8kFlags questions;
  std::string json_filename;
  int num_questions = 200, parallel = 64, max_new_tokens = 512;
  double min_accuracy = 0;
};

std::vector<core::Request> make_requests(const std::vector<std::string>& prompts,
                                         const text::Tokenizer& tokenizer, int max_new_tokens) {
  std::vector<core::Request> requests;
  for (const std::string& prompt : prompts) {
    core::Request request;
    request.prompt = encode_prompt(tokenizer, prompt);
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = max_new_tokens;
    requests.push_back(std::move(request));
  }
  return requests;
}

json::Value settings_of(const EngineFlags& engine) {
  return {{"device", engine.device.device},
          {"dtype", engine.model.dtype},
          {"kv_cache_dtype", engine.model.kv_cache_dtype},
          {"deterministic", engine.model.deterministic},
          {"disable_cuda_graph", engine.device.disable_cuda_graph},
          {"disable_overlap_schedule", engine.disable_overlap_schedule},
          {"speculative_num_steps", drafter_shape(engine.speculation).num_steps}};
}

void write_json(const EvalGsm8kFlags& flags, const Gsm8kScore& score,
                const GenerationStats& stats) {
  const json::Value result = {
      {"task", "gsm8k"},
      {"backend", "fathom"},
      {"model_path", flags.engine.model.model_path},
      {"dequantize", flags.engine.model.dequantize},
      {"accuracy", score.accuracy()},
      {"invalid", score.invalid()},
      {"latency", stats.seconds},
      {"output_throughput", stats.tokens_per_second()},
      {"output_tokens", stats.num_output_tokens},
      {"num_requests", score.num_questions},
      {"accept_length", stats.speculation.num_verify_steps > 0
                            ? json::Value(stats.speculation.accept_length())
                            : json::Value(nullptr)},
      {"settings", settings_of(flags.engine)},
      {"accept_simulated", flags.engine.speculation.simulate_accept_length.has_value()},
      {"other", {{"num_questions", score.num_questions}, {"parallel", flags.parallel}}}};
  append_result(flags.json_filename, result);
}

int run(EvalGsm8kFlags& flags) {
  flags.engine.memory.max_running_requests = flags.parallel;
  if (is_follower(flags.engine)) return follow(flags.engine);
  const TextSetup text = load_text(flags.engine.model.model_path, "auto");
  const Gsm8kQuestions questions = load_gsm8k_questions(flags.questions, flags.num_questions);
  std::vector<core::Request> requests =
      make_requests(questions.prompts, text.tokenizer, flags.max_new_tokens);

  ReadyModel ready = make_ready_model(flags.engine);
  TextGeneration generation(ready.runner(), text.tokenizer, step_loop_config(flags.engine, ready));
  std::vector<std::string> texts(questions.problems.size());
  generation.on_text = [&texts](size_t index, std::string_view piece) {
    texts[index] += piece;
    return before_next_question(texts[index]).size() == texts[index].size();
  };
  CountProgress progress("questions", static_cast<int64_t>(requests.size()));
  generation.on_done = [&progress](size_t, const Completion&) { progress.add(); };
  catch_interrupts();
  const std::vector<Completion> completions = generation.run(std::move(requests));
  progress.finish();
  if (interrupted()) throw StartupError("interrupted");
  for (const Completion& completion : completions) {
    if (!completion.output.error.empty()) throw StartupError(completion.output.error);
  }

  std::vector<std::string> answers;
  for (const Completion& completion : completions) answers.push_back(completion.text);
  const Gsm8kScore result = gsm8k_score(questions.problems, answers);
  print_gsm8k_result(result, generation.stats().seconds, generation.stats().tokens_per_second());
  const core::SpeculationCounts& drafts = generation.stats().speculation;
  if (drafts.num_verify_steps > 0) {
    const bool simulated = flags.engine.speculation.simulate_accept_length.has_value();
    std::printf("Accept length: %.3f%s\n", drafts.accept_length(),
                simulated ? ", acceptance is simulated" : "");
  }
  if (!flags.json_filename.empty()) write_json(flags, result, generation.stats());
  if (result.accuracy() >= flags.min_accuracy) return 0;
  std::fprintf(stderr, "fathom: accuracy %.4f is below --min-accuracy %g\n", result.accuracy(),
               flags.min_accuracy);
  return 1;
}

}  // namespace

Command add_eval_gsm8k(CLI::App& eval) {
  auto flags = std::make_shared<EvalGsm8kFlags>();
  CLI::App* app = eval.add_subcommand("gsm8k", "Accuracy on grade-school word problems (GSM8K)");
  const std::string group = "Evaluation";
  add_gsm8k_flags(*app, flags->questions, group);
  app->add_option("--num-questions", flags->num_questions, "Ask only the first N problems")
      ->check(CLI::PositiveNumber)
      ->type_name("N")
      ->group(group);
  app->add_option("--parallel", flags->parallel, "Requests that run at the same time")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N")
      ->group(group);
  app->add_option("--max-new-tokens", flags->max_new_tokens, "Longest answer")
      ->check(CLI::PositiveNumber)
      ->type_name("N")
      ->group(group);
  app->add_option("--min-accuracy", flags->min_accuracy,
                  "Exit with 1 when fewer of the answers are right than this share")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE")
      ->group(group);
  app->add_option("--json", flags->json_filename, "Append the result to this file as a JSON line")
      ->type_name("FILE")
      ->group(group);
  add_engine_flags(*app, flags->engine);
  node_flags().add_to(*app, flags->engine.nodes);
  add_overlap_flag(*app, group, flags->engine);
  app->remove_option(app->get_option("--max-running-requests"));
  set_examples(*app, {"fathom eval gsm8k --model-path demo",
                      "fathom eval gsm8k --model-path models/demo --dequantize \\",
                      "    --data models/demo/eval.json --shots models/demo/shots.json"});
  return {.app = app, .run = [flags] { return run(*flags); }};
}

}  // namespace fathom::apps
