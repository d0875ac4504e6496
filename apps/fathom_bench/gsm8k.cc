// fathom-bench gsm8k: word problems over HTTP, with the calls and the output of SGLang's
// benchmark/gsm8k/bench_sglang.py.

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/count_progress.h"
#include "apps/common/gsm8k_questions.h"
#include "apps/common/result_file.h"
#include "apps/fathom_bench/commands.h"
#include "apps/fathom_bench/http_target.h"
#include "apps/fathom_bench/wire.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

constexpr std::chrono::hours kAnswerTimeout{6};

struct BenchGsm8kFlags {
  HttpTargetFlags target;
  Gsm8kFlags questions;
  std::string result_file;
  int num_questions = 200, parallel = 64, max_new_tokens = 512;
  double ready_check_timeout = 60;
};

struct Gsm8kAnswers {
  std::vector<std::string> texts;
  int64_t output_tokens = 0;
  double seconds = 0;
  std::string error;  // of the first request that failed
};

std::string generate_body(const std::string& prompt, int max_new_tokens) {
  return json::dump({{"text", prompt},
                     {"sampling_params",
                      {{"temperature", 0},
                       {"max_new_tokens", max_new_tokens},
                       {"stop", {"Question", "Assistant:", "<|separator|>"}}}}});
}

// Keeps `parallel` requests in flight. Everything runs on the client's thread.
class Gsm8kRun {
 public:
  Gsm8kRun(client::Client& client, const HttpTarget& target, std::vector<std::string> bodies)
      : client_(client),
        target_(target),
        bodies_(std::move(bodies)),
        progress_("questions", static_cast<int64_t>(bodies_.size())) {
    answers_.texts.resize(bodies_.size());
  }

  Gsm8kAnswers run(int parallel) {
    std::future<void> all_done = all_done_->get_future();
    const Stopwatch watch;
    client_.run_after(std::chrono::microseconds(0), [this, parallel] {
      for (int i = 0; i < parallel; ++i) start_next();
    });
    all_done.wait();
    answers_.seconds = watch.seconds();
    progress_.finish();
    return std::move(answers_);
  }

 private:
  void start_next() {
    if (next_ >= bodies_.size()) return;
    const size_t index = next_++;
    client_.send({.method = "POST",
                  .url = target_.url("/generate"),
                  .headers = target_.headers(),
                  .body = std::move(bodies_[index]),
                  .timeout = kAnswerTimeout},
                 {.on_done = [this, index](const client::ClientResponse& response) {
                   take(index, response);
                   progress_.add();
                   if (++num_ended_ < bodies_.size()) return start_next();
                   // The waiting thread may destroy this object while set_value() still runs.
                   const std::shared_ptr<std::promise<void>> all_done = all_done_;
                   all_done->set_value();
                 }});
  }

  void take(size_t index, const client::ClientResponse& response) {
    const Result<json::Value> body = json::parse(response.body);
    if (response.ok() && body && body->is_object() && body->contains("meta_info")) {
      answers_.texts[index] = body->value("text", std::string());
      answers_.output_tokens += (*body)["meta_info"].value("completion_tokens", 0);
    } else if (answers_.error.empty()) {
      answers_.error = !response.error.empty() ? response.error
                                               : "HTTP " + std::to_string(response.status) + ": " +
                                                     error_message(response.body);
    }
  }

  client::Client& client_;
  const HttpTarget& target_;
  std::vector<std::string> bodies_;
  CountProgress progress_;
  Gsm8kAnswers answers_;
  size_t next_ = 0, num_ended_ = 0;
  std::shared_ptr<std::promise<void>> all_done_ = std::make_shared<std::promise<void>>();
};

void write_result(const BenchGsm8kFlags& flags, const std::string& model, const Gsm8kScore& score,
                  const Gsm8kAnswers& answers) {
  const json::Value line = {
      {"task", "gsm8k"},
      {"backend", "fathom"},
      {"model_path", model},
      {"latency", answers.seconds},
      {"accuracy", score.accuracy()},
      {"invalid", score.invalid()},
      {"output_throughput", static_cast<double>(answers.output_tokens) / answers.seconds},
      {"num_requests", score.num_questions},
      {"other", {{"num_questions", score.num_questions}, {"parallel", flags.parallel}}}};
  append_result(flags.result_file, line);
}

int run(const BenchGsm8kFlags& flags) {
  const Gsm8kQuestions questions = load_gsm8k_questions(flags.questions, flags.num_questions);
  std::vector<std::string> bodies;
  for (const std::string& prompt : questions.prompts) {
    bodies.push_back(generate_body(prompt, flags.max_new_tokens));
  }

  client::Client client;
  HttpTarget target(client, flags.target);
  target.wait_until_ready(flags.ready_check_timeout);
  target.describe();
  const std::string model = target.get("/get_model_info").value("model_path", std::string());
  const Gsm8kAnswers answers = Gsm8kRun(client, target, std::move(bodies)).run(flags.parallel);
  // An unanswered question would count as a wrong answer of the model.
  if (!answers.error.empty()) throw StartupError("a request failed: " + answers.error);

  const Gsm8kScore score = gsm8k_score(questions.problems, answers.texts);
  print_gsm8k_result(score, answers.seconds,
                     static_cast<double>(answers.output_tokens) / answers.seconds);
  if (!flags.result_file.empty()) write_result(flags, model, score, answers);
  return 0;
}

}  // namespace

Command add_bench_gsm8k(CLI::App& parent) {
  auto flags = std::make_shared<BenchGsm8kFlags>();
  CLI::App* app =
      parent.add_subcommand("gsm8k", "Accuracy and speed of a running server on word problems");
  add_http_target_flags(*app, flags->target);
  const std::string group = "Evaluation";
  add_gsm8k_flags(*app, flags->questions, group);
  const auto count = [&](const char* name, int& value, const char* help) {
    app->add_option(name, value, help)->check(CLI::Range(1, 1 << 24))->type_name("N")->group(group);
  };
  count("--num-questions", flags->num_questions, "Ask only the first N problems");
  count("--parallel", flags->parallel, "Requests in flight at the same time");
  count("--max-new-tokens", flags->max_new_tokens, "Longest answer");
  app->add_option("--ready-check-timeout", flags->ready_check_timeout,
                  "How long to wait for the server")
      ->check(CLI::Range(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group(group);
  app->add_option("--result-file", flags->result_file, "Append the result as a JSON line")
      ->type_name("FILE")
      ->group(group);
  set_examples(*app, {"fathom-bench gsm8k --num-questions 500",
                      "fathom-bench gsm8k --data test.jsonl --shots train.jsonl --num-shots 5"});
  return {.app = app, .run = [flags] { return run(*flags); }};
}

}  // namespace fathom::apps
