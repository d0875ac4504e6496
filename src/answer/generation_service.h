#pragma once
// GenerationService: parsed requests in, answers on their connections out. It stands between the engine and
// the transport: compiles grammars, submits every item and choice, and turns the engine's updates into
// events on the I/O thread of each connection.
//
//   GenerationService service({.tokenizer = tokenizer, .vocab_size = 129280, ...});
//   service.set_transport(http.num_threads(), [&](int i, auto task) { http.post(i, std::move(task)); });
//   engine::ServingEngine engine(runner, config, service);          // it is the engine's sink
//   service.set_engine(&engine);
//   service.start(std::move(request), exchange, since_arrival);     // on a worker
//
// What belongs to one answer lives on its connection's I/O thread, without locks: start() hands over to that
// thread, which submits and registers in one go, so no update can come before its answer is known there.
// A client that goes cancels its requests in the same turn. A request is taken whole or not at all.
// Public functions are thread-safe. Destroyed after the transport and the engine have stopped.

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "answer/answer.h"
#include "answer/answer_size.h"
#include "answer/constraint_factory.h"
#include "api/generation_request.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "engine/serving_engine.h"
#include "http/exchange.h"
#include "text/tokenizer.h"

namespace fathom::answer {

class GenerationService : public engine::UpdateSink {
 public:
  struct Config {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    int vocab_size = 0;  // of the logits
    std::vector<int32_t> eos_token_ids;
    int64_t max_grammar_bytes = int64_t{1} << 30;  // kept or in use; a key has half of it at most
    int64_t max_answer_bytes = int64_t{1}
                               << 30;  // what choices hold of prompts, and answers that are kept
    // Runs a job that compiles a grammar beside all others, in turns with the jobs of other keys, or answers the
    // exchange. Null: it runs in the caller's thread.
    std::function<void(const http::ExchangePtr&, std::function<void()> job)> run_compiling = {};
    // Runs a job that writes a large answer beside the I/O threads; false, without having run it: there is no place.
    // Null: it runs on the I/O thread.
    std::function<bool(std::function<void()> job, const std::string& key_name)> run_rendering = {};
    // Called on an I/O thread when an answer is over that took much memory.
    std::function<void()> after_much = {};
    // Called on an I/O thread when an answer is over.
    std::function<void(const AnswerRecord&)> on_answer = {};
  };
  using PostToThread = std::function<void(int thread_idx, std::function<void()> task)>;

  explicit GenerationService(Config config);
  ~GenerationService() override;

  void set_transport(int num_io_threads, PostToThread post);
  void set_engine(engine::ServingEngine* engine);

  // Answers the exchange, sooner or later. On a worker thread.
  void start(api::GenerationRequest request, const http::ExchangePtr& exchange,
             Stopwatch since_arrival);

  void on_updates(std::shared_ptr<const engine::StepUpdates> updates) override;

  // Native API: the requests of this rid (or those that begin with it, as in SGLang) end with "abort".
  void abort(const std::string& rid);
  void abort_all();
  // Every open answer ends with this error.
  void fail_open(const api::ApiError& error);

  // Answers that were accepted and are not complete.
  int num_open() const { return num_open_.load(std::memory_order_relaxed); }
  // Requests that the engine still works on although their client has gone; 0 again within two steps.
  int num_ghosts() const { return num_ghosts_.load(std::memory_order_relaxed); }

 private:
  struct Stream {
    std::shared_ptr<Answer> answer;
    size_t choice_idx = 0;
  };
  // What one I/O thread knows; nobody else touches it.
  struct IoThread {
    std::unordered_map<core::RequestId, Stream> streams;
    // Requests that were cancelled here and whose end the engine has not reported yet.
    std::unordered_set<core::RequestId> ghosts;
  };
  // What the worker made of a request, on its way to the I/O thread.
  struct Prepared {
    std::shared_ptr<Answer> answer;
    std::vector<core::Request> requests;
    std::vector<std::string> rids;  // per request, native API
  };

  // Reserves the rids that the client gave: no other request can have them while the lease lives. When a live request
  // has one of them already, the lease is null and `taken` names that rid.
  class RidLease;
  struct Claim {
    std::shared_ptr<RidLease> lease;
    std::string taken;
  };
  Claim claim_rids(const api::GenerationRequest& request, const std::string& key_name);

  // A request that was taken, on its way to the engine.
  struct Started {
    api::GenerationRequest request;
    WantedForms wanted;
    std::shared_ptr<RidLease> lease;
    http::ExchangePtr exchange;
    Stopwatch since_arrival;
  };
  // Finds the forms that are kept and compiles the others, each in a job of its own: between two of them other requests
  // have their turns. Then prepare_and_submit().
  void make_forms(const std::shared_ptr<Started>& started);
  void compile_in_turn(const std::shared_ptr<Started>& started);
  static void refuse(Started& started, const api::ApiError& error);
  void prepare_and_submit(Started& started);
  api::Parsed<Prepared> prepare(const Started& started);
  ChoiceSetup choice_setup(const api::GenerationRequest& request, const api::GenerationItem& item,
                           int choice_idx) const;
  // For a choice that stop strings may end.
  std::shared_ptr<StructureCheck> structure_check(const core::TokenConstraint& start) const;
  // The constraint with the budget of the reasoning, where the request has one and may reason.
  ConstraintPtr with_budget(const api::GenerationRequest& request, const api::GenerationItem& item,
                            ConstraintPtr constraint) const;
  core::Request core_request(const api::GenerationRequest& request, const api::GenerationItem& item,
                             const std::string& key_name) const;
  // These run on the exchange's I/O thread.
  void submit(Prepared& prepared);
  void apply(int thread_idx, const engine::StepUpdates& updates, std::span<const int32_t> indices);
  void flush(int thread_idx, const std::shared_ptr<Answer>& answer);
  void render(int thread_idx, const std::shared_ptr<Answer>& answer);
  void close(int thread_idx, const std::shared_ptr<Answer>& answer);

  void forget_rid(core::RequestId id);
  const Config config_;
  ConstraintFactory constraints_;
  const std::shared_ptr<const std::vector<int32_t>> end_marker_;  // of reasoning
  std::atomic<int64_t> num_fan_outs_{0};  // answers of several requests, so far
  const SizeInWork prompt_values_ = std::make_shared<std::atomic<int64_t>>(0);
  const SizeInWork answer_bytes_ = std::make_shared<std::atomic<int64_t>>(0);
  PostToThread post_;
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::atomic<engine::ServingEngine*> engine_{nullptr};
  std::atomic<int> num_open_{0}, num_ghosts_{0};
  Mutex rids_mutex_;
  std::unordered_map<core::RequestId, std::string> rids_
      FATHOM_GUARDED_BY(rids_mutex_);  // of running native requests
  // Given by clients, of live requests, each behind the name of its key: keys do not see each other's.
  std::unordered_set<std::string> claimed_rids_ FATHOM_GUARDED_BY(rids_mutex_);
};

}  // namespace fathom::answer
