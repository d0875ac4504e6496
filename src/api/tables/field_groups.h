#pragma once
// Rules that several endpoints share, as groups that a FieldTable is made of.
//
//   static const FieldTable table("chat", {token_choice_rules(), refused_sampling_rules(), kChatRules});
//
// Constants; thread-safe.

#include <span>
#include <string_view>

#include "api/tables/field_table.h"

namespace fathom::api {

// Schemas that come often.
inline constexpr std::string_view kAnyBoolean = R"({"type":"boolean"})";
inline constexpr std::string_view kAnyText = R"({"type":"string"})";
inline constexpr std::string_view kAnyObject = R"({"type":"object"})";
inline constexpr std::string_view kTokenCount =
    R"({"type":"integer","minimum":0,"maximum":2147483647})";
// 2^31 - 1 at most; -1 is no limit.
inline constexpr std::string_view kTokenLimit =
    R"({"type":"integer","minimum":-1,"maximum":2147483647})";
inline constexpr std::string_view kSeed =
    R"({"type":"integer","minimum":-9223372036854775808,"maximum":18446744073709551615})";
inline constexpr std::string_view kSpacePattern = R"({"type":"string","maxLength":1024})";
inline constexpr std::string_view kGrammarText = R"({"type":"string","minLength":1})";
inline constexpr std::string_view kChoice =
    R"({"type":"array","items":{"type":"string"},"minItems":1,"maxItems":1024})";

// temperature to logit_bias and where the output ends: stop, stop_token_ids, ignore_eos.
std::span<const FieldRule> token_choice_rules();
// n, what the output is shown with; json_schema, regex, ebnf.
std::span<const FieldRule> output_form_rules();
// Ways to choose tokens, and to say so, that are not here.
std::span<const FieldRule> refused_sampling_rules();
// stream, priority, rid, cache_salt, extra_key, routed_dp_rank.
std::span<const FieldRule> placement_rules();
// Features of a body that are not here: adapters, pictures, sessions, separate prefill servers.
std::span<const FieldRule> refused_feature_rules();
// What no answer depends on: user, metadata, store, ...
std::span<const FieldRule> without_effect_rules();
// What the OpenAI endpoints have in common: model, max_tokens, stream_options, response_format, seed.
std::span<const FieldRule> openai_rules();

// Tables of objects within.
const FieldTable& stream_options_fields();
const FieldTable& usage_wish_fields();
const FieldTable& ollama_options_fields();
const FieldTable& response_format_fields();
const FieldTable& named_schema_fields();
const FieldTable& structured_outputs_fields();

}  // namespace fathom::api
