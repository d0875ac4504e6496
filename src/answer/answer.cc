#include "answer/answer.h"

#include <algorithm>
#include <utility>

#include "answer/usage.h"

namespace fathom::answer {
namespace {

// Written in some ten milliseconds.
constexpr int64_t kLargeValues = 20'000;
constexpr int64_t kMuchBytes = 16 << 20;
// Written to a stream in some milliseconds: then others have their turn.
constexpr size_t kLargeEventBytes = 256 << 10;
// Of a stream of larger events.
constexpr double kEventBytesPerSecond = 100e6;
// Of a client that reads slowly: they would be written all at once when it goes on.
constexpr size_t kMostUnwrittenValues = 40'000;

size_t num_new_values(const Choice& choice) {
  return choice.news.tokens.size() * static_cast<size_t>(choice.setup().values_per_token());
}

// Events of the native API repeat all that was before them, the last ones of Responses do.
bool repeats_itself(api::Endpoint endpoint) {
  return endpoint == api::Endpoint::kGenerate || endpoint == api::Endpoint::kResponses;
}

std::string_view finish_name(const Choice& choice) {
  switch (choice.finish()) {
    case Finish::kLength:
      return "length";
    case Finish::kAbort:
      return "abort";
    default:
      return "stop";
  }
}

}  // namespace

Answer::Answer(Setup setup, http::ExchangePtr exchange)
    : form_(setup.renderer->shared_form()),
      renderer_(std::move(setup.renderer)),
      since_arrival_(setup.since_arrival),
      max_backlog_bytes_(setup.max_backlog_bytes),
      exchange_(std::move(exchange)),
      size_lease_(std::move(setup.size_lease)),
      memory_lease_(std::move(setup.memory_lease)),
      written_end_(setup.choices.size()),
      num_unfinished_(setup.choices.size()) {
  choices_.reserve(setup.choices.size());
  for (ChoiceSetup& choice : setup.choices) choices_.emplace_back(std::move(choice));
}

void Answer::begin() {
  if (!form_->stream || done_) return;
  exchange_->begin_stream([renderer = renderer_] {
    std::string events;
    renderer->write_silence(events);
    return events;
  });
  stream_begun_ = true;
  events_.clear();
  renderer_->write_begin(choices_, events_);
  if (!events_.empty()) exchange_->write(events_);
  events_.clear();
}

bool Answer::take(size_t choice_idx, std::span<const core::SampledToken> tokens,
                  const engine::RequestUpdate& update) {
  if (done_) return false;
  Choice& choice = choices_[choice_idx];
  const size_t num_taken = choice.has_stopped() ? 0 : tokens.size();
  note_tokens(num_taken);
  choice.set_cached_tokens(update.num_cached_tokens);
  if (update.prompt_logprobs != nullptr) share_prompt_logprobs(choice_idx, update.prompt_logprobs);
  if (const std::optional<api::ApiError> error = keep(choice, num_taken)) {
    fail(*error);
    return false;
  }
  const bool ends_with_stop_token = update.end != nullptr && update.end->matched_stop_token >= 0;
  const bool stop = choice.push(tokens, ends_with_stop_token);
  if (update.end == nullptr) return stop;
  if (queue_seconds_ < 0) queue_seconds_ = update.end->times.admitted_seconds;
  if (update.end->reason == core::FinishReason::kFailed && !choice.has_stopped()) {
    const bool never_ran = update.end->times.admitted_seconds < 0;
    fail(never_ran ? api::overloaded() : api::from_runner(update.end->error));
    return false;
  }
  choice.end(*update.end);
  --num_unfinished_;
  return false;
}

std::optional<api::ApiError> Answer::keep(const Choice& choice, size_t num_tokens) {
  if (form_->stream && !repeats_itself(form_->endpoint)) return std::nullopt;
  const ChoiceSetup& setup = choice.setup();
  const int64_t of_token =
      kBytesPerKeptToken +
      (setup.return_logprobs ? kBytesPerKeptValue * setup.values_per_token() : 0);
  const int64_t num_bytes = static_cast<int64_t>(num_tokens) * of_token;
  kept_bytes_ += num_bytes;
  const int64_t most = form_->stream ? kMaxStreamedKeptBytes : kMaxKeptBytes;
  if (kept_bytes_ > most) return answer_too_large(most);
  if (!memory_lease_->grow(num_bytes)) return api::overloaded();
  return std::nullopt;
}

void Answer::share_prompt_logprobs(size_t choice_idx, const PromptLogprobs& logprobs) {
  const auto num_sharing = static_cast<size_t>(form_->choices_per_item);
  const size_t first = choice_idx - choice_idx % num_sharing;
  for (size_t i = first; i < first + num_sharing; ++i) choices_[i].set_prompt_logprobs(logprobs);
}

void Answer::note_tokens(size_t num_tokens) {
  if (num_tokens == 0) return;
  const double now = since_arrival_.seconds();
  if (first_token_seconds_ < 0) {
    first_token_seconds_ = now;
  } else {
    const auto count = static_cast<uint32_t>(num_tokens);
    gaps_.add((now - last_token_seconds_) / count, count);
  }
  last_token_seconds_ = now;
}

void Answer::flush() {
  is_touched_ = false;
  if (done_) return;
  if (!form_->stream) {
    if (num_unfinished_ > 0 || is_due_) return;
    is_due_ = is_large();
    if (!is_due_) send_whole(render());
    return;
  }
  is_preparing_ = false;
  const bool is_end = num_unfinished_ == 0;
  const bool is_held = !is_end && waits();
  if (is_held && !has_much_unwritten()) return;
  is_preparing_ = !write_choices();
  // The end goes out as one, whatever the client has read.
  if (is_held || (is_end && is_preparing_)) return;
  if (is_end) renderer_->write_end(choices_, events_);
  if (is_end) lease_.reset();
  if (events_.size() > kLargeEventBytes)
    next_write_seconds_ =
        since_arrival_.seconds() + static_cast<double>(events_.size()) / kEventBytesPerSecond;
  if (!events_.empty()) exchange_->write(events_);
  events_.clear();
  if (!is_end) return;
  exchange_->finish_stream(/*complete=*/true);
  total_seconds_ = since_arrival_.seconds();
  done_ = true;
}

bool Answer::waits() const {
  return since_arrival_.seconds() < next_write_seconds_ ||
         exchange_->backlog_bytes() > max_backlog_bytes_;
}

bool Answer::has_much_unwritten() const {
  if (form_->endpoint == api::Endpoint::kGenerate) return false;  // prepared in pieces
  size_t num_values = 0;
  for (const Choice& choice : choices_) num_values += num_new_values(choice);
  return num_values > kMostUnwrittenValues;
}

bool Answer::write_choices() {
  const size_t num_bytes_before = events_.size();
  size_t num_values = 0;
  for (size_t k = 0; k < choices_.size(); ++k) {
    const size_t i = (next_choice_ + k) % choices_.size();
    Choice& choice = choices_[i];
    if (written_end_[i] || choice.waits_for_prompt_logprobs()) continue;
    num_values += num_new_values(choice);
    const bool is_spent = k > 0 && (num_values > kPreparedValues ||
                                    events_.size() - num_bytes_before > kLargeEventBytes);
    if (is_spent || !renderer_->prepare(choice)) {
      next_choice_ = i;
      return false;
    }
    renderer_->write_news(choice, events_);
    written_end_[i] = choice.finished();
  }
  next_choice_ = 0;
  return true;
}

bool Answer::took_much() const { return is_due_ || memory_lease_->size() > kMuchBytes; }

std::string Answer::render() {
  std::string body = renderer_->body(choices_);
  // What it took is freed here, too.
  renderer_.reset();
  for (Choice& choice : choices_) choice.set_prompt_logprobs(nullptr);
  return body;
}

bool Answer::is_large() const {
  int64_t num_values = size_lease_->size();
  for (const Choice& choice : choices_)
    num_values += int64_t{choice.setup().values_per_token()} * choice.counts().completion_tokens;
  return num_values > kLargeValues;
}

void Answer::send_whole(std::string body) {
  if (done_) return;
  http::Response response;
  response.body = std::move(body);
  response.lease = memory_lease_;
  lease_.reset();
  exchange_->send(std::move(response));
  total_seconds_ = since_arrival_.seconds();
  done_ = true;
}

void Answer::fail(const api::ApiError& error) {
  if (done_) return;
  lease_.reset();
  status_ = error.status;
  total_seconds_ = since_arrival_.seconds();
  done_ = true;
  if (!stream_begun_) {
    exchange_->send(api::to_response(error, exchange_->request()));
    return;
  }
  events_.clear();
  renderer_->write_error(error, events_);
  exchange_->write(events_);
  exchange_->finish_stream(/*complete=*/false);
}

void Answer::client_gone() {
  if (done_) return;
  client_gone_ = true;
  total_seconds_ = since_arrival_.seconds();
  done_ = true;
}

AnswerRecord Answer::record() const {
  AnswerRecord record{.request_id = exchange_->request().request_id,
                      .key_name = exchange_->request().key_name,
                      .model = form_->model,
                      .endpoint = exchange_->request().path};
  record.counts = total_usage(choices_, form_->choices_per_item);
  for (const Choice& choice : choices_) record.counts.retractions += choice.counts().retractions;
  record.num_choices = static_cast<int>(choices_.size());
  record.queue_seconds = queue_seconds_;
  record.first_token_seconds = first_token_seconds_;
  record.total_seconds = total_seconds_;
  record.gap_p50_seconds = gaps_.p50_seconds();
  record.status = status_;
  record.client_gone = client_gone_;
  record.stream = form_->stream;
  record.traceparent = exchange_->request().header("traceparent");
  record.tracestate = exchange_->request().header("tracestate");
  record.finish = client_gone_       ? "client_gone"
                  : status_ >= 400   ? "error"
                  : choices_.empty() ? "stop"
                                     : finish_name(choices_.front());
  return record;
}

}  // namespace fathom::answer
