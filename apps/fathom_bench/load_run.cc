#include "apps/fathom_bench/load_run.h"

#include <chrono>
#include <cmath>
#include <deque>
#include <future>
#include <memory>
#include <utility>

#include "base/clock.h"

namespace fathom::apps {
namespace {

// SGLang's client gives up after six hours too.
constexpr std::chrono::hours kRequestTimeout{6};

class LoadRun {
 public:
  LoadRun(client::Client& client, const LoadPlan& plan) : client_(client), plan_(plan) {
    result_.records.resize(plan.requests.size());
  }

  LoadResult run() {
    if (plan_.requests.empty()) return {};
    std::future<void> all_done = all_done_->get_future();
    watch_.restart();
    SeededDraws draws(plan_.seed);
    double arrival_seconds = 0;
    for (size_t i = 0; i < plan_.requests.size(); ++i) {
      const auto delay = std::chrono::microseconds(static_cast<int64_t>(arrival_seconds * 1e6));
      client_.run_after(delay, [this, i] { arrive(i); });
      if (std::isfinite(plan_.request_rate)) {
        arrival_seconds += draws.exponential(1 / plan_.request_rate);
      }
    }
    all_done.wait();
    return std::move(result_);
  }

 private:
  bool is_full() const {
    return plan_.max_concurrency > 0 && num_in_flight_ >= plan_.max_concurrency;
  }

  void arrive(size_t index) {
    waiting_.push_back(index);
    start_waiting();
  }

  void start_waiting() {
    while (!waiting_.empty() && !is_full()) {
      const size_t index = waiting_.front();
      waiting_.pop_front();
      start(index);
    }
  }

  void start(size_t index) {
    ++num_in_flight_;
    const double start = watch_.seconds();
    const auto reader = std::make_shared<StreamReader>(plan_.api);
    const auto error_body = std::make_shared<std::string>();
    const auto status = std::make_shared<int>(0);
    client_.send(
        {.method = "POST",
         .url = plan_.url,
         .headers = plan_.headers,
         .body = plan_.requests[index].body,
         .timeout = kRequestTimeout},
        {.on_head = [status](const client::ClientResponse& head) { *status = head.status; },
         .on_body =
             [this, start, status, reader, error_body](std::string_view bytes) {
               if (*status == 200) {
                 reader->feed(bytes, watch_.seconds() - start);
               } else {
                 error_body->append(bytes);
               }
             },
         .on_done =
             [this, start, index, reader, error_body](const client::ClientResponse& response) {
               RequestRecord record = reader->finish(plan_.requests[index].output_tokens);
               if (!response.error.empty()) {
                 record.error = response.error;
               } else if (response.status != 200) {
                 record.error =
                     "HTTP " + std::to_string(response.status) + ": " + error_message(*error_body);
               }
               record.start = start;
               record.prompt_tokens = plan_.requests[index].prompt_tokens;
               end(index, std::move(record));
             }});
  }

  void end(size_t index, RequestRecord record) {
    result_.records[index] = std::move(record);
    --num_in_flight_;
    if (plan_.on_end) plan_.on_end();
    if (++num_ended_ == plan_.requests.size()) {
      result_.duration_seconds = watch_.seconds();
      // The waiting thread may destroy this object while set_value() still runs.
      const std::shared_ptr<std::promise<void>> all_done = all_done_;
      all_done->set_value();
      return;
    }
    start_waiting();
  }

  client::Client& client_;
  const LoadPlan& plan_;
  Stopwatch watch_;
  LoadResult result_;
  std::deque<size_t> waiting_;
  int num_in_flight_ = 0;
  size_t num_ended_ = 0;
  std::shared_ptr<std::promise<void>> all_done_ = std::make_shared<std::promise<void>>();
};

}  // namespace

LoadResult run_load(client::Client& client, const LoadPlan& plan) {
  return LoadRun(client, plan).run();
}

}  // namespace fathom::apps
