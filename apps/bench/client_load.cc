#include "apps/bench/client_load.h"

#include <algorithm>
#include <string>
#include <utility>

#include "apps/common/figures.h"
#include "base/startup_error.h"
#include "engine/output_collector.h"

namespace fathom::apps {
namespace {

// The requests of one run, and what has come of them.
class Run {
 public:
  Run(engine::StepLoop& loop, std::vector<core::Request> requests, core::RequestId first_id,
      const std::function<void()>& on_end)
      : loop_(loop),
        requests_(std::move(requests)),
        first_id_(first_id),
        on_end_(on_end),
        sent_seconds_(requests_.size(), 0) {
    result_.answers.resize(requests_.size());
    collector_.on_tokens = [this](core::RequestId id, std::span<const core::SampledToken> tokens) {
      take_tokens(id, tokens);
    };
    collector_.on_finish = [this](core::RequestOutput output) { finish(std::move(output)); };
  }

  ClientLoadResult run(int num_clients) {
    for (int client = 0; client < num_clients; ++client) send_next();
    // A step that ended the last ones may have sent others.
    while (num_finished_ < num_sent_) collector_.step(loop_);
    if (!error_.empty()) throw StartupError(error_);
    result_.seconds = watch_.seconds();
    return std::move(result_);
  }

 private:
  size_t index_of(core::RequestId id) const { return static_cast<size_t>(id - first_id_); }

  void send_next() {
    if (num_sent_ == requests_.size() || !error_.empty()) return;
    const size_t index = num_sent_;
    core::Request& request = requests_[index];
    request.id = first_id_ + static_cast<core::RequestId>(index);
    result_.answers[index].num_prompt_tokens = static_cast<int>(request.prompt.size());
    sent_seconds_[index] = watch_.seconds();
    if (const Status added = loop_.add(std::move(request)); !added) {
      error_ = "request " + std::to_string(index) + ": " + added.error().message;
      return;
    }
    ++num_sent_;
  }

  void take_tokens(core::RequestId id, std::span<const core::SampledToken> tokens) {
    const size_t index = index_of(id);
    ClientAnswer& answer = result_.answers[index];
    if (answer.num_first_tokens > 0 || tokens.empty()) return;
    answer.num_first_tokens = static_cast<int>(tokens.size());
    answer.first_token_seconds = watch_.seconds() - sent_seconds_[index];
  }

  void finish(core::RequestOutput output) {
    const size_t index = index_of(output.id);
    ClientAnswer& answer = result_.answers[index];
    answer.seconds = watch_.seconds() - sent_seconds_[index];
    answer.speculation = std::move(output.speculation);
    for (const core::SampledToken& token : output.tokens) answer.tokens.push_back(token.token);
    if (!output.error.empty() && error_.empty())
      error_ = "request " + std::to_string(index) + ": " + output.error;
    ++num_finished_;
    if (on_end_) on_end_();
    send_next();
  }

  engine::StepLoop& loop_;
  std::vector<core::Request> requests_;
  const core::RequestId first_id_;
  const std::function<void()>& on_end_;
  std::vector<double> sent_seconds_;  // [request], since the run began
  engine::OutputCollector collector_;
  Stopwatch watch_;
  ClientLoadResult result_;
  size_t num_sent_ = 0, num_finished_ = 0;
  std::string error_;
};

}  // namespace

double ClientAnswer::tokens_per_second() const {
  return per_second(static_cast<double>(tokens.size()), seconds);
}

double ClientAnswer::decode_tokens_per_second() const {
  return per_second(static_cast<double>(tokens.size()) - num_first_tokens,
                    seconds - first_token_seconds);
}

double ClientLoadResult::tokens_per_second() const {
  double tokens = 0;
  for (const ClientAnswer& answer : answers)
    tokens += answer.num_prompt_tokens + static_cast<double>(answer.tokens.size());
  return per_second(tokens, seconds);
}

double ClientLoadResult::tokens_per_second_of_request() const {
  if (answers.empty()) return 0;
  double sum = 0;
  for (const ClientAnswer& answer : answers) sum += answer.tokens_per_second();
  return sum / static_cast<double>(answers.size());
}

double ClientLoadResult::accept_length() const {
  core::SpeculationCounts sum;
  for (const ClientAnswer& answer : answers) sum.add(answer.speculation);
  return sum.accept_length();
}

ClientLoadResult ClientLoad::run(std::vector<core::Request> requests, int num_clients,
                                 const std::function<void()>& on_end) {
  const auto count = static_cast<core::RequestId>(requests.size());
  Run run(loop_, std::move(requests), first_id_, on_end);
  first_id_ += count;
  return run.run(num_clients);
}

}  // namespace fathom::apps
