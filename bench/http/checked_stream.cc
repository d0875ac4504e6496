#include "bench/http/checked_stream.h"

#include <charconv>

#include "base/json.h"
#include "runner/sim/sim_runner.h"

namespace fathom::bench {
namespace {

// What follows `key` up to `end`; a quote inside a JSON string is escaped, so a key is never part of a text.
std::string_view between(std::string_view data, std::string_view key, char end) {
  const size_t at = data.find(key);
  if (at == std::string_view::npos) return {};
  const size_t begin = at + key.size();
  return data.substr(begin, data.find(end, begin) - begin);
}

int to_int(std::string_view digits) {
  int value = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

}  // namespace

CheckedStream::CheckedStream(const StreamPlan& plan)
    : plan_(plan), parser_([this](std::string_view data) { take_event(data); }) {
  // The stream's number in the first tokens, then noise. The ids of special tokens are avoided.
  constexpr int kFirstId = 16;
  const auto num_ids = static_cast<uint32_t>(plan.vocab_size - kFirstId);
  uint32_t number = static_cast<uint32_t>(plan.index);
  for (int i = 0; i < plan.num_prompt_tokens; ++i) {
    tokens_.push_back(kFirstId + static_cast<int32_t>(number % num_ids));
    number = i < 2 ? number / num_ids : number * 2654435761U + 12345U;
  }
  arrivals_.reserve(static_cast<size_t>(plan.num_tokens));
}

std::string CheckedStream::body() const {
  const json::Value body = {
      {"input_ids",
       std::vector<int32_t>(tokens_.begin(), tokens_.begin() + plan_.num_prompt_tokens)},
      {"stream", true},
      {"sampling_params",
       {{"temperature", 0}, {"max_new_tokens", plan_.num_tokens}, {"ignore_eos", true}}}};
  return json::dump(body);
}

void CheckedStream::feed(std::string_view bytes) { parser_.feed(bytes); }

void CheckedStream::note(const std::string& problem) {
  if (problem_.empty())
    problem_ = "stream " + std::to_string(plan_.index) + " after " +
               std::to_string(arrivals_.size()) + " tokens: " + problem;
}

void CheckedStream::extend_expected() {
  const int32_t token = runner::SimRunner::expected_next(tokens_, {.vocab_size = plan_.vocab_size});
  tokens_.push_back(token);
  if (!expected_ids_.empty()) expected_ids_ += ',';
  expected_ids_ += std::to_string(token);
}

void CheckedStream::take_event(std::string_view data) {
  if (is_done_) return note("an event after [DONE]");
  if (data == "[DONE]") {
    is_done_ = true;
    return;
  }
  const auto now = system_clock().now();
  const int num_tokens = to_int(between(data, R"("completion_tokens":)", ','));
  const int num_known = static_cast<int>(arrivals_.size());
  if (num_tokens <= num_known || num_tokens > plan_.num_tokens)
    return note("an event with " + std::to_string(num_tokens) + " tokens");
  num_joined_tokens_ += num_tokens - num_known - 1;
  for (int i = num_known; i < num_tokens; ++i) {
    arrivals_.push_back(now);
    extend_expected();
  }
  if (between(data, R"("output_ids":[)", ']') != expected_ids_)
    note("other tokens than the model's");
}

void CheckedStream::finish(int status, const std::string& error) {
  if (!error.empty() || status != 200)
    return note("status " + std::to_string(status) + " " + error);
  if (parser_.failed()) return note("a line that is too long");
  if (!is_done_) return note("the end without [DONE]");
  if (static_cast<int>(arrivals_.size()) != plan_.num_tokens) note("too few tokens");
}

}  // namespace fathom::bench
