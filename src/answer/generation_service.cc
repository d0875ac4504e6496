#include "answer/generation_service.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <functional>
#include <new>
#include <utility>

#include "answer/answer_size.h"
#include "answer/forced_token.h"
#include "answer/pieces/draw_id.h"
#include "answer/thinking_budget.h"
#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "text/chat_markup.h"
#include "text/tool_call_form.h"

namespace fathom::answer {
namespace {

using text::markup::kThinkBegin, text::markup::kThinkEnd;

std::string_view id_prefix(api::Endpoint endpoint) {
  switch (endpoint) {
    case api::Endpoint::kChat:
      return "chatcmpl-";
    case api::Endpoint::kCompletions:
      return "cmpl-";
    case api::Endpoint::kMessages:
      return "msg_";
    case api::Endpoint::kResponses:
      return "resp_";
    case api::Endpoint::kScore:
      return "score-";
    case api::Endpoint::kGenerate:
      break;
  }
  return "";
}

// What the service alone knows of how the answer is shown.
void complete_form(api::GenerationRequest& request) {
  api::ShownForm& form = request.form;
  if (form.id.empty()) form.id = draw_id(id_prefix(form.endpoint));
  form.created = static_cast<int64_t>(std::time(nullptr));
  form.num_choices = 0;
  for (const api::GenerationItem& item : request.items) form.num_choices += item.n;
  form.choices_per_item = request.items.front().n;
}

// The special tokens whose text the output parser reads.
std::vector<int32_t> marker_ids(const api::GenerationRequest& request,
                                const text::Tokenizer& tokenizer) {
  const bool reads_calls = request.chat.parse_tools || request.chat.hide_tool_markers;
  std::vector<int32_t> ids;
  for (const std::string_view marker : text::output_markers(request.chat.format)) {
    const bool is_reasoning = marker == kThinkBegin || marker == kThinkEnd;
    if (is_reasoning ? !request.chat.separate_reasoning : !reads_calls) continue;
    if (const std::optional<int32_t> id = tokenizer.added_token_id(marker)) ids.push_back(*id);
  }
  return ids;
}

bool may_reason(const api::GenerationRequest& request) {
  return request.chat.starts_in_reasoning || text::model_opens_reasoning(request.chat.format);
}

// In DSML a call ends the reasoning that it stands in.
bool calls_end_reasoning(const api::GenerationRequest& request) {
  return request.chat.parse_tools && text::writes_dsml(request.chat.format);
}

// Stops say where the answer ends, so they wait for the end of the reasoning, if there can be any.
void set_waiting_stops(const api::GenerationRequest& request, const api::GenerationItem& item,
                       ChoiceSetup& setup) {
  setup.stops_wait = may_reason(request);
  setup.calls_end_reasoning = calls_end_reasoning(request);
  if (!setup.stops_wait) return;
  setup.stop_token_ids = item.sampling.stop_token_ids;
  setup.min_tokens = item.sampling.min_new_tokens;
}

// Does work for one answer. How much memory it needs is up to the client, so where there is not enough this answer
// alone ends with an error; the other answers of the step go on. Returns that error.
template <class Work>
std::optional<api::ApiError> error_of(const Work& work) {
  try {
    const memory::MayFail scope;
    work();
    return std::nullopt;
  } catch (const std::bad_alloc&) {
    return api::out_of_memory();
  } catch (const std::exception& error) {
    FATHOM_LOG(kError, "server", "an answer failed", {{"why", error.what()}});
    return api::internal_error();
  }
}

template <class Work>
void work_or_fail(Answer& answer, const Work& work) {
  if (const std::optional<api::ApiError> error = error_of(work)) answer.fail(*error);
}

}  // namespace

GenerationService::GenerationService(Config config)
    : config_(std::move(config)),
      constraints_({.tokenizer = config_.tokenizer,
                    .vocab_size = config_.vocab_size,
                    .eos_token_ids = config_.eos_token_ids,
                    .max_bytes_in_use = config_.max_grammar_bytes}),
      end_marker_(
          std::make_shared<const std::vector<int32_t>>(end_marker_tokens(*config_.tokenizer))) {}

GenerationService::~GenerationService() = default;

void GenerationService::set_transport(int num_io_threads, PostToThread post) {
  post_ = std::move(post);
  for (int i = 0; i < num_io_threads; ++i) threads_.push_back(std::make_unique<IoThread>());
}

void GenerationService::set_engine(engine::ServingEngine* engine) { engine_ = engine; }

void GenerationService::start(api::GenerationRequest request, const http::ExchangePtr& exchange,
                              Stopwatch since_arrival) {
  Claim claim = claim_rids(request, exchange->request().key_name);
  if (claim.lease == nullptr) {
    exchange->post([exchange, error = api::rid_taken(claim.taken)] {
      exchange->send(api::to_response(error));
    });
    return;
  }
  complete_form(request);
  auto started = std::make_shared<Started>(Started{.request = std::move(request),
                                                   .wanted = {},
                                                   .lease = std::move(claim.lease),
                                                   .exchange = exchange,
                                                   .since_arrival = since_arrival});
  if (const std::optional<api::ApiError> error =
          problem_of_size(started->request, config_.max_answer_bytes))
    return refuse(*started, *error);
  started->wanted = constraints_.forms_of(started->request);
  make_forms(started);
}

void GenerationService::make_forms(const std::shared_ptr<Started>& started) {
  const std::string& key_name = started->exchange->request().key_name;
  WantedForms& wanted = started->wanted;
  while (!wanted.are_made()) {
    if (!constraints_.find(wanted.next(), key_name)) {
      if (config_.run_compiling) return compile_in_turn(started);
      constraints_.compile(started->request, wanted.next(), key_name);
    }
    if (const std::optional<api::ApiError> error = constraints_.count_next(wanted))
      return refuse(*started, *error);
  }
  prepare_and_submit(*started);
}

// By way of the I/O thread, which knows whether anybody still waits for it.
void GenerationService::compile_in_turn(const std::shared_ptr<Started>& started) {
  started->exchange->post([this, started] {
    if (started->exchange->is_closed()) return;
    config_.run_compiling(started->exchange, [this, started] {
      const std::string& key_name = started->exchange->request().key_name;
      WantedForm& form = started->wanted.next();
      // Another request may have had it compiled meanwhile.
      if (!constraints_.find(form, key_name))
        constraints_.compile(started->request, form, key_name);
      make_forms(started);
    });
  });
}

void GenerationService::refuse(Started& started, const api::ApiError& error) {
  started.lease.reset();  // who reads the answer may use the rid
  started.exchange->post([exchange = started.exchange, error] {
    exchange->send(api::to_response(error, exchange->request()));
  });
}

void GenerationService::prepare_and_submit(Started& started) {
  const http::ExchangePtr& exchange = started.exchange;
  api::Parsed<Prepared> parsed = prepare(started);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed))
    return refuse(started, *error);
  auto prepared = std::make_shared<Prepared>(std::move(std::get<Prepared>(parsed)));
  prepared->answer->hold(std::move(started.lease));
  exchange->post([this, prepared] { submit(*prepared); });
}

api::Parsed<GenerationService::Prepared> GenerationService::prepare(const Started& started) {
  const api::GenerationRequest& request = started.request;
  const std::string& key_name = started.exchange->request().key_name;
  Prepared prepared;
  auto size_lease = std::make_shared<SizeLease>(num_prompt_values(request), kMaxPromptValuesInWork,
                                                prompt_values_);
  auto memory_lease =
      std::make_shared<SizeLease>(num_held_bytes(request), config_.max_answer_bytes, answer_bytes_);
  if (!size_lease->is_granted() || !memory_lease->is_granted()) return api::overloaded();
  Answer::Setup setup{.choices = {},
                      .renderer = make_renderer(request.form, *config_.tokenizer),
                      .since_arrival = started.since_arrival,
                      .size_lease = size_lease,
                      .memory_lease = memory_lease};
  for (size_t i = 0; i < request.items.size(); ++i) {
    const api::GenerationItem& item = request.items[i];
    api::Parsed<ConstraintPtr> made = constraints_.make(started.wanted.of(i));
    if (const api::ApiError* error = std::get_if<api::ApiError>(&made)) return *error;
    const ConstraintPtr constraint =
        with_budget(request, item, std::move(std::get<ConstraintPtr>(made)));
    const auto stop =
        item.stop.empty() ? nullptr : std::make_shared<const text::StopStrings>(item.stop);
    for (int k = 0; k < item.n; ++k) {
      ChoiceSetup choice = choice_setup(request, item, k);
      choice.index = static_cast<int>(setup.choices.size());
      choice.stop = stop;
      core::Request submitted = core_request(request, item, key_name);
      if (k > 0) submitted.sampling.return_prompt_logprobs = false;  // the first one's are for all
      if (choice.stops_wait) submitted.sampling.stop_token_ids.clear();
      // Choice k uses seed + k: the n answers to one prompt differ, and the same request gives the same n again.
      if (submitted.sampling.seed) *submitted.sampling.seed += static_cast<uint64_t>(k);
      if (constraint != nullptr) submitted.constraint = constraint->clone();
      if (constraint != nullptr && stop != nullptr) choice.structure = structure_check(*constraint);
      if (!item.forced_tokens.empty()) {
        const int32_t token = item.forced_tokens[static_cast<size_t>(k)];
        submitted.constraint = std::make_unique<ForcedToken>(token);
      }
      prepared.rids.push_back(request.form.endpoint == api::Endpoint::kGenerate ? choice.id
                                                                                : request.form.id);
      prepared.requests.push_back(std::move(submitted));
      setup.choices.push_back(std::move(choice));
    }
  }
  prepared.answer = std::make_shared<Answer>(std::move(setup), started.exchange);
  return prepared;
}

std::shared_ptr<StructureCheck> GenerationService::structure_check(
    const core::TokenConstraint& start) const {
  return std::make_shared<StructureCheck>(
      start.clone(), StructureCheck::Config{.tokenizer = config_.tokenizer.get(),
                                            .vocab_size = config_.vocab_size,
                                            .eos_token_ids = config_.eos_token_ids});
}

ChoiceSetup GenerationService::choice_setup(const api::GenerationRequest& request,
                                            const api::GenerationItem& item, int choice_idx) const {
  ChoiceSetup setup{.tokenizer = config_.tokenizer.get(),
                    .id = "",
                    .prompt_tokens = static_cast<int>(item.prompt.size()),
                    .logprob_start_len = item.native.logprob_start_len,
                    .return_logprobs = item.sampling.return_logprobs,
                    .return_prompt_logprobs = item.sampling.return_prompt_logprobs,
                    .num_top_logprobs = item.sampling.num_top_logprobs,
                    .is_cut_by_context = item.is_cut_by_context,
                    .no_stop_trim = item.no_stop_trim,
                    .skip_special_tokens = item.skip_special_tokens,
                    .stream_interval = item.native.stream_interval};
  if (setup.return_prompt_logprobs || request.form.repeats_prompt()) setup.prompt = item.prompt;
  if (request.form.endpoint == api::Endpoint::kGenerate) {
    setup.id = item.native.request_id.empty() ? draw_id("") : item.native.request_id;
    if (choice_idx > 0 && !item.native.request_id.empty())
      setup.id += "-" + std::to_string(choice_idx);
  }
  if (!api::is_chat(request.form.endpoint)) return setup;
  const api::ChatPart& chat = request.chat;
  const bool reads_markers = chat.parse_tools || chat.hide_tool_markers;
  if (!chat.separate_reasoning && !reads_markers) return setup;
  setup.parser.emplace(chat.format,
                       text::OutputParser::Options{.reasoning = chat.separate_reasoning,
                                                   .starts_in_reasoning = chat.starts_in_reasoning,
                                                   .tools = reads_markers,
                                                   .calls = chat.parse_tools});
  setup.marker_ids =
      std::make_shared<const std::vector<int32_t>>(marker_ids(request, *config_.tokenizer));
  setup.think_end_id = config_.tokenizer->added_token_id(kThinkEnd).value_or(-1);
  setup.starts_in_reasoning = chat.separate_reasoning && chat.starts_in_reasoning;
  setup.shows_reasoning = chat.include_reasoning;
  setup.places_tokens = request.form.endpoint == api::Endpoint::kResponses && request.form.logprobs;
  if (chat.separate_reasoning && !chat.stop_in_reasoning) set_waiting_stops(request, item, setup);
  return setup;
}

ConstraintPtr GenerationService::with_budget(const api::GenerationRequest& request,
                                             const api::GenerationItem& item,
                                             ConstraintPtr constraint) const {
  const std::optional<int> budget = request.chat.thinking_budget;
  // One that max_tokens does not reach bounds nothing.
  if (!budget || *budget > item.sampling.max_new_tokens || !may_reason(request)) return constraint;
  return std::make_unique<ThinkingBudget>(
      ThinkingBudget::Limit{.tokenizer = config_.tokenizer.get(),
                            .end_marker = end_marker_,
                            .num_tokens = *budget,
                            .starts_in_reasoning = request.chat.starts_in_reasoning,
                            .calls_end_reasoning = calls_end_reasoning(request)},
      std::move(constraint));
}

core::Request GenerationService::core_request(const api::GenerationRequest& request,
                                              const api::GenerationItem& item,
                                              const std::string& key_name) const {
  core::Request submitted;
  submitted.prompt = item.prompt;
  submitted.sampling = item.sampling;
  submitted.priority = request.priority;
  // The key's name is in the salt even while there is only one key: keys may be read again (SIGHUP), and holders of
  // new ones must not share prefixes that were cached before.
  submitted.cache_salt = key_name + '\n' + request.cache_salt;
  submitted.owner = std::hash<std::string>()(key_name);
  return submitted;
}

void GenerationService::submit(Prepared& prepared) {
  const std::shared_ptr<Answer>& answer = prepared.answer;
  const int thread_idx = answer->exchange()->thread_idx();
  IoThread& thread = *threads_[static_cast<size_t>(thread_idx)];
  engine::ServingEngine* const engine = engine_.load();
  FATHOM_CHECK(engine != nullptr, "a request before set_engine()");
  // The client has gone meanwhile: nothing has begun, and the transport has written the access line.
  if (answer->exchange()->is_closed()) return;
  ++num_open_;
  if (config_.on_answer) answer->exchange()->claim_log_line();
  std::vector<core::RequestId> ids;
  const int64_t fan_out = prepared.requests.size() > 1 ? ++num_fan_outs_ : 0;
  for (core::Request& request : prepared.requests) {
    request.fan_out = fan_out;
    const Result<core::RequestId> id =
        engine->submit(std::move(request), static_cast<uint32_t>(thread_idx));
    if (!id) {
      answer->set_request_ids(std::move(ids));
      answer->fail(api::from_engine(id.error()));
      return close(thread_idx, answer);
    }
    ids.push_back(*id);
    thread.streams.emplace(*id, Stream{.answer = answer, .choice_idx = ids.size() - 1});
  }
  {
    const MutexLock lock(rids_mutex_);
    for (size_t i = 0; i < ids.size(); ++i) rids_.emplace(ids[i], prepared.rids[i]);
  }
  answer->set_request_ids(std::move(ids));
  answer->exchange()->on_close([this, thread_idx, weak = std::weak_ptr<Answer>(answer)] {
    const std::shared_ptr<Answer> gone = weak.lock();
    if (gone == nullptr || gone->done()) return;
    gone->client_gone();
    close(thread_idx, gone);
  });
  answer->exchange()->on_behind([this, weak = std::weak_ptr<Answer>(answer)](bool is_behind) {
    const std::shared_ptr<Answer> unread = weak.lock();
    if (unread == nullptr) return;
    for (const core::RequestId id : unread->request_ids())
      engine_.load()->set_gives_way(id, is_behind);
  });
  work_or_fail(*answer, [&] { answer->begin(); });
  if (answer->done()) close(thread_idx, answer);
}

// Called on the engine's thread: one task for each I/O thread that something happened for.
void GenerationService::on_updates(std::shared_ptr<const engine::StepUpdates> updates) {
  std::vector<std::vector<int32_t>> by_thread(threads_.size());
  for (size_t i = 0; i < updates->requests.size(); ++i) {
    by_thread.at(updates->requests[i].client_tag).push_back(static_cast<int32_t>(i));
  }
  for (size_t t = 0; t < by_thread.size(); ++t) {
    if (by_thread[t].empty()) continue;
    const int thread_idx = static_cast<int>(t);
    post_(thread_idx, [this, thread_idx, updates, indices = std::move(by_thread[t])] {
      apply(thread_idx, *updates, indices);
    });
  }
}

void GenerationService::apply(int thread_idx, const engine::StepUpdates& updates,
                              std::span<const int32_t> indices) {
  IoThread& thread = *threads_[static_cast<size_t>(thread_idx)];
  std::vector<std::shared_ptr<Answer>> touched;
  for (const int32_t index : indices) {
    const engine::RequestUpdate& update = updates.requests[static_cast<size_t>(index)];
    const auto found = thread.streams.find(update.id);
    if (found == thread.streams.end()) {
      if (update.end != nullptr && thread.ghosts.erase(update.id) > 0) --num_ghosts_;
      continue;
    }
    const Stream stream = found->second;
    if (update.end != nullptr) {
      thread.streams.erase(found);
      forget_rid(update.id);
    }
    const auto tokens = std::span(updates.tokens)
                            .subspan(static_cast<size_t>(update.tokens_begin),
                                     static_cast<size_t>(update.tokens_end - update.tokens_begin));
    bool stops = false;
    work_or_fail(*stream.answer,
                 [&] { stops = stream.answer->take(stream.choice_idx, tokens, update); });
    if (stops) engine_.load()->stop(update.id);
    if (stream.answer->touch()) touched.push_back(stream.answer);
  }
  for (const std::shared_ptr<Answer>& answer : touched) flush(thread_idx, answer);
}

void GenerationService::flush(int thread_idx, const std::shared_ptr<Answer>& answer) {
  work_or_fail(*answer, [&] { answer->flush(); });
  if (answer->is_due()) render(thread_idx, answer);
  if (answer->done()) return close(thread_idx, answer);
  if (!answer->wants_turn()) return;
  answer->exchange()->post([this, thread_idx, answer] {
    answer->turn_comes();
    flush(thread_idx, answer);
  });
}

void GenerationService::render(int thread_idx, const std::shared_ptr<Answer>& answer) {
  const auto job = [this, thread_idx, answer] {
    auto body = std::make_shared<std::string>();
    const std::optional<api::ApiError> error = error_of([&] { *body = answer->render(); });
    answer->exchange()->post([this, thread_idx, answer, body, error] {
      if (error) answer->fail(*error);
      work_or_fail(*answer, [&] { answer->send_whole(std::move(*body)); });
      close(thread_idx, answer);
    });
  };
  if (!config_.run_rendering ||
      !config_.run_rendering(job, answer->exchange()->request().key_name)) {
    job();
  }
}

// Once, when an answer is over: cancels its requests that still run and writes the access line.
void GenerationService::close(int thread_idx, const std::shared_ptr<Answer>& answer) {
  if (!answer->retire()) return;
  answer->hold(nullptr);
  IoThread& thread = *threads_[static_cast<size_t>(thread_idx)];
  for (const core::RequestId id : answer->request_ids()) {
    if (thread.streams.erase(id) == 0) continue;
    forget_rid(id);
    thread.ghosts.insert(id);
    ++num_ghosts_;
    engine_.load()->cancel(id);
  }
  answer->set_request_ids({});
  --num_open_;
  if (answer->took_much() && config_.after_much) config_.after_much();
  if (config_.on_answer) config_.on_answer(answer->record());
}

// The rids that a request has reserved; its destructor gives them back.
class GenerationService::RidLease {
 public:
  explicit RidLease(GenerationService& service) : service_(service) {}
  ~RidLease() {
    const MutexLock lock(service_.rids_mutex_);
    for (const std::string& name : names) service_.claimed_rids_.erase(name);
  }
  RidLease(const RidLease&) = delete;
  RidLease& operator=(const RidLease&) = delete;

  std::vector<std::string> names;

 private:
  GenerationService& service_;
};

GenerationService::Claim GenerationService::claim_rids(const api::GenerationRequest& request,
                                                       const std::string& key_name) {
  std::vector<std::string> names;
  if (!request.form.id.empty()) names.push_back(request.form.id);
  for (const api::GenerationItem& item : request.items) {
    // The rid of a single prompt is the request's own, which is in the list already.
    if (!item.native.request_id.empty() && item.native.request_id != request.form.id)
      names.push_back(item.native.request_id);
  }
  // Made before the lock is taken: its destructor takes the same lock, and runs on the way out of this function when
  // memory runs out or a rid is taken.
  auto lease = std::make_shared<RidLease>(*this);
  lease->names.reserve(names.size());
  const MutexLock lock(rids_mutex_);
  for (std::string& name : names) {
    std::string claimed = key_name + '\n' + name;
    if (!claimed_rids_.insert(claimed).second) return {.lease = nullptr, .taken = std::move(name)};
    lease->names.push_back(std::move(claimed));
  }
  return {.lease = std::move(lease), .taken = ""};
}

void GenerationService::forget_rid(core::RequestId id) {
  const MutexLock lock(rids_mutex_);
  rids_.erase(id);
}

void GenerationService::abort(const std::string& rid) {
  std::vector<core::RequestId> ids;
  {
    const MutexLock lock(rids_mutex_);
    for (const auto& [id, name] : rids_) {
      if (name.starts_with(rid)) ids.push_back(id);
    }
  }
  engine::ServingEngine* const engine = engine_.load();
  if (engine == nullptr) return;
  for (const core::RequestId id : ids) engine->cancel(id);
}

void GenerationService::abort_all() {
  if (engine::ServingEngine* const engine = engine_.load()) engine->cancel_all();
}

void GenerationService::fail_open(const api::ApiError& error) {
  for (size_t t = 0; t < threads_.size(); ++t) {
    const int thread_idx = static_cast<int>(t);
    post_(thread_idx, [this, thread_idx, error] {
      IoThread& thread = *threads_[static_cast<size_t>(thread_idx)];
      while (!thread.streams.empty()) {
        const std::shared_ptr<Answer> answer = thread.streams.begin()->second.answer;
        answer->fail(error);
        close(thread_idx, answer);
      }
    });
  }
}

}  // namespace fathom::answer
