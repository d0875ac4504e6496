#pragma once
// Bodies for every endpoint that takes JSON, each with the answer that it must get: every field with every
// kind of value, at and beyond its bounds, and bodies that are broken in other ways. The same cases go to
// the parsers and, over HTTP, to a server.
//
//   for (const ParameterCase& c : parameter_cases({.vocab_size = 2048, .max_context_tokens = 1024})) {
//     send(c.path, c.body);   // c.status; for an error also error.param == c.param
//   }
//
// The order and the bodies are the same in every run. Expectations are written from docs/reference, not from the
// parsers: a rule here is a range or a list of values.

#include <string>
#include <string_view>
#include <vector>

namespace fathom::api::tests {

struct CaseModel {
  int vocab_size = 0;
  int max_context_tokens = 0;  // at least 256
};

struct ParameterCase {
  std::string path;   // "/v1/chat/completions"
  std::string field;  // that is varied: "sampling_params.n"; empty = the body as a whole
  std::string value;  // what it is set to, as JSON text, or what is special about the body
  std::string body;
  int status = 200;
  std::string param = {};  // of the error; empty = null
};

std::vector<ParameterCase> parameter_cases(const CaseModel& model);

// Its parts: fields times values (parameter_cases.cc), and bodies written one by one (body_cases.cc).
std::vector<ParameterCase> field_cases(const CaseModel& model);
std::vector<ParameterCase> body_cases(const CaseModel& model);

inline constexpr std::string_view kChatPath = "/v1/chat/completions";
inline constexpr std::string_view kCompletionsPath = "/v1/completions";
inline constexpr std::string_view kGeneratePath = "/generate";
inline constexpr std::string_view kMessagesPath = "/v1/messages";
inline constexpr std::string_view kCountTokensPath = "/v1/messages/count_tokens";
inline constexpr std::string_view kResponsesPath = "/v1/responses";
inline constexpr std::string_view kTokenizePath = "/tokenize";
inline constexpr std::string_view kDetokenizePath = "/detokenize";
inline constexpr std::string_view kScorePath = "/v1/score";
inline constexpr std::string_view kCallTextPath = "/parse_function_call";
inline constexpr std::string_view kReasoningTextPath = "/separate_reasoning";

// Whether a body that is not ours to write holds what only the inside of the server knows: an address, or
// the path of a file.
bool leaks_internals(std::string_view body);

}  // namespace fathom::api::tests
