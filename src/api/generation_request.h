#pragma once
// GenerationRequest: what the body of a generating endpoint asks for, after every check that needs no engine. The
// parsers here make it, answer::GenerationService runs it. Plain data.
//
//   Parsed<GenerationRequest> parsed = parse_chat_request(body, model);
//   if (const ApiError* error = std::get_if<ApiError>(&parsed)) return to_response(*error);
//   GenerationRequest& request = std::get<GenerationRequest>(parsed);
//   if (request.form.id.empty()) request.form.id = draw_id();

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/shown_form.h"
#include "base/json_fwd.h"
#include "core/sampling_params.h"
#include "text/chat_format.h"

namespace fathom::api {

// What a grammar is written in; compiled by the grammar module. It may be long, so the items of a body share it.
struct GrammarSource {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kRegex, kEbnf, kStructuralTag };
  Kind kind = Kind::kNone;  // kEbnf: or Lark, as the text shows
  std::string text;         // the schema or the structural tag as JSON text, the pattern, the rules
  std::string field{};  // of the request, for errors: "response_format", "sampling_params.regex"
  bool is_strict =
      false;  // kJsonSchema: as is_closed, and objects of which it names only the type are empty
  bool is_closed =
      false;  // kJsonSchema: where it lists members or items and is silent about others, there are none
  // kJsonSchema, kJsonObject: what stands between tokens, as a pattern; "" is nothing. None: the usual white space.
  std::optional<std::string> white_space{};
};

using GrammarSourcePtr = std::shared_ptr<const GrammarSource>;  // never null

inline const GrammarSourcePtr& no_grammar() {
  static const auto none = std::make_shared<const GrammarSource>();
  return none;
}

// Tool calls that the output must hold (tool_choice required or a named function) or may hold (in place of a
// response format, or beside free text where calls are constrained). Only these tools are called.
struct ToolConstraint {
  enum class Kind { kNone, kOptional, kRequired };
  Kind kind = Kind::kNone;
  // Those allowed: {name, parameters, ...}, custom ones as {"type": "custom", "custom": {name, format, ...}}.
  json::Box tools{};
  bool parallel = true;         // more than one call
  bool follows_schemas = true;  // false: arguments are any JSON object
};

// Of items of the native API alone.
struct NativeItem {
  std::string request_id{};    // rid of this item; empty = draw one
  int logprob_start_len = -1;  // prompt log-probabilities from this position on; -1 = none
  int stream_interval = 1;     // tokens per event
};

// One prompt and how its answers are made. n answers come from the same item.
struct GenerationItem {
  std::vector<int32_t> prompt;  // at least one; with max_new_tokens it fits the context
  // Complete and validated. return_logprobs, num_top_logprobs and return_prompt_logprobs are set here for
  // every endpoint. The choices of n > 1 share the seed: the service derives one for each.
  core::SamplingParams sampling;
  int n = 1;
  bool is_cut_by_context = false;  // more tokens were asked for than the context has left
  std::vector<std::string> stop;   // stop strings
  bool no_stop_trim = false;       // keep the stop string in the text
  bool skip_special_tokens = true;
  GrammarSourcePtr grammar = no_grammar();
  NativeItem native;
  // Scores: answer k is this token, whatever the model thinks of it; n of them. Empty: answers are the model's.
  std::vector<int32_t> forced_tokens{};
};

// Of conversations alone: chat, messages and responses.
struct ChatPart {
  text::ChatFormat format = text::ChatFormat::kV3;
  bool starts_in_reasoning = false;
  bool separate_reasoning = true;
  bool include_reasoning = true;         // false: it is counted and not shown
  std::optional<int> thinking_budget{};  // the reasoning ends by so many tokens of the output
  bool stop_in_reasoning = false;        // false: stop strings and tokens wait for its end
  bool parse_tools = false;              // the output is searched for calls
  // No call may be made, but the conversation has some: their markers are kept out of the text.
  bool hide_tool_markers = false;
  ToolConstraint tool_constraint;
};

struct GenerationRequest {
  ShownForm form;
  std::vector<GenerationItem> items;
  int priority = 0;
  // What the client asked for (cache_salt, extra_key), the API key not in it.
  std::string cache_salt;
  ChatPart chat;
};

}  // namespace fathom::api
