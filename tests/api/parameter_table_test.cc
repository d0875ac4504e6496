// Every case of tests/api/parameter_cases.h against the parsers: the documented answer, nothing of the
// inside in an error, no case that takes long.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_request.h"
#include "api/messages_request.h"
#include "api/output_text_request.h"
#include "api/responses/responses_request.h"
#include "api/score_request.h"
#include "api/tokenize_request.h"
#include "base/json.h"
#include "tests/api/demo_served_model.h"
#include "tests/api/parameter_cases.h"
#include "tests/cpu_time.h"
#include "tests/sanitized.h"

namespace fathom::api::tests {
namespace {

constexpr CaseModel kCaseModel{.vocab_size = 2048, .max_context_tokens = 1024};
// Of the processor, not of the clock: other tests on the machine do not count. Sanitizers slow the parsers
// down five to tenfold.
constexpr double kMaxSeconds = 1.0;
constexpr double kSlowdown = kIsSanitized ? 20 : 1;

struct Outcome {
  std::optional<ApiError> error;
  std::optional<GenerationRequest> request;  // of the generating endpoints
};

template <class T>
Outcome outcome_of(Parsed<T> parsed) {
  Outcome outcome;
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    outcome.error = std::move(*error);
  } else if constexpr (std::is_same_v<T, GenerationRequest>) {
    outcome.request = std::get<T>(std::move(parsed));
  }
  return outcome;
}

Outcome parse(const ParameterCase& c, const ServedModel& model) {
  if (c.path == kChatPath) return outcome_of(parse_chat_request(c.body, model));
  if (c.path == kCompletionsPath) return outcome_of(parse_completion_request(c.body, model));
  if (c.path == kGeneratePath) return outcome_of(parse_generate_request(c.body, model));
  if (c.path == kMessagesPath) return outcome_of(parse_messages_request(c.body, model));
  if (c.path == kResponsesPath) {
    const StoredPast nothing{
        .find_response = [](const std::string&) { return std::shared_ptr<const StoredResponse>(); },
        .find_item = [](const std::string&) { return std::optional<std::string>(); }};
    return outcome_of(parse_responses_request(c.body, model, nothing));
  }
  if (c.path == kTokenizePath) return outcome_of(parse_tokenize_request(c.body, model));
  if (c.path == kScorePath) return outcome_of(parse_score_request(c.body, model));
  if (c.path == kCallTextPath) return outcome_of(parse_call_text_request(c.body, model));
  if (c.path == kReasoningTextPath) return outcome_of(parse_reasoning_text_request(c.body, model));
  return outcome_of(parse_detokenize_request(c.body, model));
}

// The shorter of two tries where the first is too long: a neighbour may have had the memory just then.
std::pair<Outcome, double> timed_parse(const ParameterCase& c, const ServedModel& model) {
  const CpuStopwatch first;
  Outcome outcome = parse(c, model);
  const double seconds = first.seconds();
  if (seconds < kMaxSeconds * kSlowdown) return {std::move(outcome), seconds};
  const CpuStopwatch second;
  parse(c, model);
  return {std::move(outcome), std::min(seconds, second.seconds())};
}

std::string named(const ParameterCase& c) {
  return c.path + " " + c.field + " = " + c.value.substr(0, 100) + "\n" + c.body.substr(0, 300);
}

void check_error(const ParameterCase& c, const ApiError& error) {
  EXPECT_EQ(error.status, c.status) << named(c) << "\n" << error.message;
  EXPECT_EQ(error.param, c.param) << named(c) << "\n" << error.message;
  EXPECT_FALSE(error.message.empty()) << named(c);
  EXPECT_LT(error.message.size(), 800U) << named(c);
  EXPECT_FALSE(leaks_internals(to_json(error))) << to_json(error);
  const Result<json::Value> body = json::parse(to_json(error));
  ASSERT_TRUE(body.has_value()) << to_json(error);
  EXPECT_EQ((*body)["error"]["message"].is_string(), true);
}

// What reaches the engine is valid whatever the body said.
void check_request(const ParameterCase& c, const GenerationRequest& request) {
  for (const GenerationItem& item : request.items) {
    const Status status = core::validate(item.sampling, kCaseModel.vocab_size);
    EXPECT_TRUE(status.has_value()) << named(c);
    EXPECT_FALSE(item.prompt.empty()) << named(c);
    EXPECT_LE(static_cast<int>(item.prompt.size()) + item.sampling.max_new_tokens,
              kCaseModel.max_context_tokens)
        << named(c);
    for (const int32_t id : item.prompt) {
      ASSERT_TRUE(id >= 0 && id < kCaseModel.vocab_size) << named(c);
    }
  }
  const bool asks_for_nothing = c.path == kScorePath && c.field == "items" && c.value == "[]";
  EXPECT_EQ(request.items.empty(), asks_for_nothing) << named(c);
}

TEST(ParameterTable, has_at_least_3000_different_cases) {
  std::map<std::string, int> bodies;
  for (const ParameterCase& c : parameter_cases(kCaseModel)) ++bodies[c.path + c.body];
  EXPECT_GE(bodies.size(), 3000U);
  RecordProperty("cases", static_cast<int>(bodies.size()));
}

TEST(ParameterTable, every_case_gets_its_documented_answer_within_a_second) {
  const ServedModel model = demo_served_model(kCaseModel.max_context_tokens);
  double longest_seconds = 0;
  for (const ParameterCase& c : parameter_cases(kCaseModel)) {
    const auto [outcome, seconds] = timed_parse(c, model);
    longest_seconds = std::max(longest_seconds, seconds);
    EXPECT_LT(seconds, kMaxSeconds * kSlowdown) << named(c);
    if (outcome.error) {
      check_error(c, *outcome.error);
    } else {
      EXPECT_EQ(c.status, 200) << named(c);
      if (outcome.request) check_request(c, *outcome.request);
    }
    if (HasFatalFailure()) return;
  }
  RecordProperty("longest_ms", static_cast<int>(longest_seconds * 1000));
}

// Where a number or a flag of a body ends up.
using Getter = std::function<double(const GenerationRequest&)>;

std::map<std::string, Getter> getters() {
  const auto of_item = [](double (*get)(const GenerationItem&)) {
    return [get](const GenerationRequest& request) { return get(request.items.at(0)); };
  };
  using Item = const GenerationItem&;
  std::map<std::string, Getter> all = {
      {"temperature", of_item([](Item i) { return double{i.sampling.temperature}; })},
      {"top_p", of_item([](Item i) { return double{i.sampling.top_p}; })},
      {"min_p", of_item([](Item i) { return double{i.sampling.min_p}; })},
      {"top_k", of_item([](Item i) { return double(i.sampling.top_k); })},
      {"repetition_penalty", of_item([](Item i) { return double{i.sampling.repetition_penalty}; })},
      {"frequency_penalty", of_item([](Item i) { return double{i.sampling.frequency_penalty}; })},
      {"presence_penalty", of_item([](Item i) { return double{i.sampling.presence_penalty}; })},
      {"n", of_item([](Item i) { return double(i.n); })},
      {"ignore_eos", of_item([](Item i) { return double(i.sampling.ignore_eos); })},
      {"skip_special_tokens", of_item([](Item i) { return double(i.skip_special_tokens); })},
      {"no_stop_trim", of_item([](Item i) { return double(i.no_stop_trim); })},
      {"max_tokens", of_item([](Item i) { return double(i.sampling.max_new_tokens); })},
      {"max_completion_tokens", of_item([](Item i) { return double(i.sampling.max_new_tokens); })},
      {"max_new_tokens", of_item([](Item i) { return double(i.sampling.max_new_tokens); })},
      {"min_tokens", of_item([](Item i) { return double(i.sampling.min_new_tokens); })},
      {"min_new_tokens", of_item([](Item i) { return double(i.sampling.min_new_tokens); })},
      {"stream_interval", of_item([](Item i) { return double(i.native.stream_interval); })},
      {"return_logprob", of_item([](Item i) { return double(i.sampling.return_logprobs); })},
  };
  const std::map<std::string, Getter> of_request = {
      {"stream", [](const GenerationRequest& r) { return double(r.form.stream); }},
      {"return_token_ids",
       [](const GenerationRequest& r) { return double(r.form.return_token_ids); }},
      {"return_prompt_token_ids",
       [](const GenerationRequest& r) { return double(r.form.return_prompt_token_ids); }},
      {"return_tokens_as_token_ids",
       [](const GenerationRequest& r) { return double(r.form.tokens_as_ids); }},
      {"prompt_logprobs",
       [](const GenerationRequest& r) { return double(r.form.prompt_logprobs.value_or(-1)); }},
      {"priority", [](const GenerationRequest& r) { return double(r.priority); }},
      {"echo", [](const GenerationRequest& r) { return double(r.form.echo); }},
      {"separate_reasoning",
       [](const GenerationRequest& r) { return double(r.chat.separate_reasoning); }},
      {"stop_in_reasoning",
       [](const GenerationRequest& r) { return double(r.chat.stop_in_reasoning); }},
      {"thinking_token_budget",
       [](const GenerationRequest& r) { return double(r.chat.thinking_budget.value_or(-1)); }},
      {"stream_reasoning",
       [](const GenerationRequest& r) { return double(r.form.stream_reasoning); }},
      {"top_logprobs", [](const GenerationRequest& r) { return double(r.form.top_logprobs); }},
      {"include_usage", [](const GenerationRequest& r) { return double(r.form.include_usage); }},
  };
  all.insert(of_request.begin(), of_request.end());
  return all;
}

std::optional<double> number_of(const std::string& text) {
  if (text == "true") return 1;
  if (text == "false") return 0;
  const Result<json::Value> value = json::parse(text);
  return value && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

TEST(ParameterTable, accepted_numbers_and_flags_arrive_as_they_were_sent) {
  const ServedModel model = demo_served_model(kCaseModel.max_context_tokens);
  const std::map<std::string, Getter> known = getters();
  int num_checked = 0;
  for (const ParameterCase& c : field_cases(kCaseModel)) {
    const size_t dot = c.field.rfind('.');
    const auto getter = known.find(dot == std::string::npos ? c.field : c.field.substr(dot + 1));
    const std::optional<double> sent = number_of(c.value);
    if (c.status != 200 || getter == known.end() || !sent) continue;
    const Outcome outcome = parse(c, model);
    if (!outcome.request) continue;
    // No limit, and an upper bound above what the context has left.
    if (getter->first.starts_with("max_") &&
        (*sent < 0 || *sent > kCaseModel.max_context_tokens - 64))
      continue;
    if (getter->first == "top_p" && *sent == 0) continue;  // the least share above it
    const double got = getter->second(*outcome.request);
    if (*sent != 0 && std::abs(*sent) < 1e-30) continue;  // field_reader_test: stays above a bound
    EXPECT_FLOAT_EQ(static_cast<float>(got), static_cast<float>(*sent)) << named(c);
    ++num_checked;
  }
  EXPECT_GE(num_checked, 200);
}

TEST(ParameterTable, leaks_are_recognised) {
  EXPECT_TRUE(leaks_internals("failed at 0x7ffd12345678"));
  EXPECT_TRUE(leaks_internals("cannot open /usr/share/x"));
  EXPECT_TRUE(leaks_internals("chat_request.cc:12"));
  EXPECT_FALSE(leaks_internals("n is 0x10, must be an integer in [1, 128]"));
}

}  // namespace
}  // namespace fathom::api::tests
