#include "api/tables/endpoint_fields.h"

#include "api/tables/conversation_rules.h"
#include "api/tables/field_groups.h"
#include "api/tables/messages_fields.h"
#include "api/tables/responses_fields.h"

namespace fathom::api {
namespace {

constexpr std::string_view kOneOrMany =
    R"({"anyOf":[{"type":"string"},{"type":"array","maxItems":1024}]})";

constexpr FieldRule kChat[] = {
    required("messages",
             R"({"type":"array","items":{"type":"object"},"minItems":1,"maxItems":16384})",
             "the conversation", message_fields),
    honoured("max_completion_tokens", kTokenLimit,
             "another name of max_tokens; both only if equal"),
    honoured("max_new_tokens", kTokenLimit, "another name of max_tokens; several only if equal"),
    honoured("logprobs", kAnyBoolean, "log-probabilities of the chosen tokens"),
    honoured("top_logprobs", R"({"type":"integer","minimum":0,"maximum":20})",
             "so many alternatives; needs logprobs"),
    honoured("separate_reasoning", kAnyBoolean, "put reasoning in reasoning_content"),
    honoured("include_reasoning", kAnyBoolean, "false: reasoning is left out of the answer"),
    honoured("reasoning_format", R"({"enum":["auto","deepseek","none"]})",
             "none: reasoning stays in the content, as with separate_reasoning false"),
    honoured("stream_reasoning", kAnyBoolean, "false: reasoning comes in one piece"),
    honoured("stop_in_reasoning", kAnyBoolean, "true: stops end reasoning, too"),
    honoured("modalities", R"({"const":["text"]})", "the only one"),
    refused("prompt", "messages say it here"),
    refused("input", "messages say it here"),
    refused("text", "messages say it here"),
    refused("input_ids", "messages say it here"),
    refused("suffix", "completions fill gaps"),
    refused("parse_tool_calls", "calls are always read", "[true]"),
    honoured("add_generation_prompt", kAnyBoolean,
             "false only where the last message is continued, true only where it is not"),
    refused("add_special_tokens", "the template has the special tokens"),
    refused("best_of", "candidates that are not answers are not made", "[1]"),
    refused("echo", "a conversation is not shown again"),
    refused("audio", "there are no audio answers"),
    refused("web_search_options", "there are no web searches"),
    refused("plugins", "there are no plugins"),
};

constexpr FieldRule kCompletions[] = {
    required("prompt", kOneOrMany, "a text, texts, token ids or lists of token ids"),
    honoured("logprobs", R"({"type":"integer","minimum":0,"maximum":20})", "how many alternatives"),
    honoured("echo", kAnyBoolean, "the prompt before the answer"),
    honoured("best_of", R"({"type":"integer","minimum":1,"maximum":128})", "only as many as n"),
    honoured("suffix", kAnyText, "the text behind the gap that the answer fills; of some models"),
    refused("messages", "prompt says it here"),
    refused("input", "prompt says it here"),
    refused("text", "prompt says it here"),
    refused("input_ids", "prompt says it here"),
    refused("top_logprobs", "logprobs says it here", "[0]"),
    refused("max_completion_tokens", "max_tokens says it here"),
    refused("max_new_tokens", "max_tokens says it here"),
    refused("add_special_tokens", "prompt as token ids says it here", "[true]"),
    refused("thinking_token_budget", "chats have a budget of the reasoning", "[-1]"),
    refused("tools", "tools belong to a chat"),
    refused("modalities", "answers are text", R"([["text"]])"),
};

constexpr FieldRule kOpenAiBodies[] = {
    honoured("guided_json", R"({"type":["object","string"]})", "as json_schema"),
    honoured("guided_choice", kChoice, "the answer is one of these texts"),
    honoured("guided_regex", kGrammarText, "as regex"),
    honoured("guided_grammar", kGrammarText, "as ebnf"),
    honoured("grammar", kGrammarText, "as ebnf"),
    honoured("structured_outputs", kAnyObject, "one form of the answer, as vLLM says it",
             structured_outputs_fields),
    honoured("include_stop_str_in_output", kAnyBoolean, "as no_stop_trim"),
    honoured("request_id", R"({"type":"string","minLength":1,"maxLength":128})", "as rid"),
    refused("guided_json_object", "response_format says it here"),
    honoured("guided_whitespace_pattern", kSpacePattern, "what stands between the tokens of JSON"),
    honoured("guided_decoding_backend", R"({"type":"string","maxLength":256})",
             "the options behind its colon: disable-any-whitespace, disable-additional-properties"),
    honoured("return_token_ids", kAnyBoolean, "the token ids of prompt and answer"),
    honoured("return_tokens_as_token_ids", kAnyBoolean,
             "log-probabilities name tokens token_id:7 instead of by their text"),
    honoured("prompt_logprobs", R"({"type":"integer","minimum":0,"maximum":20})",
             "log-probabilities of the prompt with so many alternatives; not in streams"),
    refused("return_tokens", "return_token_ids says it here"),
};

constexpr FieldRule kGenerate[] = {
    honoured("model", R"({"type":"string","maxLength":65535})", "a served name, default or empty"),
    honoured("text", kOneOrMany, "a text or texts; this or input_ids"),
    honoured("input_ids", R"({"type":"array","minItems":1})",
             "token ids or lists of token ids; this or text"),
    honoured("sampling_params",
             R"({"anyOf":[{"type":"object"},{"type":"array","items":{"type":"object"}}]})",
             "for all prompts, or an array with one for each", sampling_params_fields),
    honoured("rid", R"({"type":["string","array"]})", "one for each prompt, all different"),
    honoured("return_logprob", R"({"type":["boolean","array"]})",
             "true or false, or an array with one for each prompt"),
    honoured("logprob_start_len", R"({"type":["integer","array"]})",
             "-1, or the position in the prompt to begin at; counts with return_logprob"),
    honoured("top_logprobs_num", R"({"type":["integer","array"]})",
             "0 to 20; counts with return_logprob"),
    honoured("return_text_in_logprobs", kAnyBoolean, "the tokens' text too"),
    honoured("return_prompt_token_ids", kAnyBoolean, "the prompt's token ids, once it has ended"),
    refused("messages", "text or input_ids says it here"),
    refused("prompt", "text or input_ids says it here"),
    refused("stream_options", "every event has the usage", R"([{"include_usage":true}])"),
    refused("return_flat_raw_top_logprobs", "log-probabilities are lists of [value, id, text]"),
    refused("return_flat_raw_top_logprobs_b64", "log-probabilities are lists of [value, id, text]"),
    refused("return_meta_info", "meta_info is always in the answer", "[true]"),
    refused("require_reasoning", "the prompt says it here"),
    refused("thinking_token_budget", "chats have a budget of the reasoning", "[-1]"),
    refused("max_thinking_tokens", "chats have a budget of the reasoning"),
    refused("modalities", "prompts and answers are text", R"([["text"]])"),
    refused("multi_item_delimiter_indices", "there is no scoring of several items"),
    refused("need_wait_for_mm_inputs", "there are no images"),
    without_effect("num_items_assigned", "there are no images"),
    without_effect("encoder_urls", "there are no images"),
};

constexpr FieldRule kSamplingParams[] = {
    honoured("max_new_tokens", kTokenLimit,
             "at most so many tokens, up to what the context has left"),
    honoured("min_new_tokens", kTokenCount, "no end before so many tokens"),
    honoured("sampling_seed", kSeed, "choice k of n uses the seed + k"),
    honoured("stream_interval", R"({"type":"integer","minimum":1,"maximum":2147483647})",
             "tokens for an event"),
    refused("thinking_token_budget", "chats have a budget of the reasoning", "[-1]"),
    refused("max_tokens", "max_new_tokens says it here"),
    refused("max_completion_tokens", "max_new_tokens says it here"),
    refused("min_tokens", "min_new_tokens says it here", "[0]"),
    refused("seed", "sampling_seed says it here"),
    refused("response_format", "json_schema says it here"),
    refused("return_meta_info", "meta_info is always in the answer", "[true]"),
    refused("return_prompt_token_ids", "the body says it here"),
};

constexpr FieldRule kTokenize[] = {
    honoured("model", R"({"type":"string","maxLength":65535})", "a served name, default or empty"),
    honoured("prompt", kOneOrMany, "a text or texts; this or messages"),
    honoured("messages",
             R"({"type":"array","items":{"type":"object"},"minItems":1,"maxItems":16384})",
             "a conversation; this or prompt", message_fields),
    honoured("add_special_tokens", kAnyBoolean, "of a prompt"),
    honoured("add_generation_prompt", kAnyBoolean, "end where the assistant begins to write"),
    refused("text", "prompt says it here"),
    refused("content", "prompt says it here"),
    refused("input", "prompt says it here"),
    honoured("return_token_strs", kAnyBoolean, "the tokens as the tokenizer's file spells them"),
    refused("with_pieces", "return_token_strs says it here"),
    refused("parse_special", "special tokens are read as the checkpoint's tokenizer does",
            "[true]"),
    refused("mm_processor_kwargs", "there are no images"),
    refused("media_io_kwargs", "there are no images"),
    without_effect("user", "who asks"),
};

constexpr FieldRule kDetokenize[] = {
    honoured("model", R"({"type":"string","maxLength":65535})", "a served name, default or empty"),
    required("tokens", R"({"type":"array"})", "token ids or lists of token ids"),
    honoured("skip_special_tokens", kAnyBoolean, "leave special tokens out of the text"),
    refused("input_ids", "tokens says it here"),
    without_effect("user", "who asks"),
};

constexpr FieldRule kScore[] = {
    honoured("model", R"({"type":"string","maxLength":65535})", "a served name, default or empty"),
    required("query", R"({"type":["string","array"]})", "a text or token ids"),
    required("items", R"({"type":["string","array"],"maxItems":1024})",
             "a text, texts or lists of token ids, each put behind the query; none have no scores"),
    required("label_token_ids", R"({"type":"array","minItems":1,"maxItems":1024})",
             "the tokens whose probabilities are asked for"),
    honoured("apply_softmax", kAnyBoolean, "shares of the labels among each other"),
    honoured("item_first", kAnyBoolean, "each item is put before the query"),
    refused("text_1", "query says it here"),
    refused("text_2", "items says it here"),
    refused("queries", "query says it here"),
    refused("documents", "items says it here"),
    without_effect("user", "who asks"),
};

constexpr FieldRule kCallText[] = {
    required("text", kAnyText, "what a model wrote"),
    honoured("tools", R"({"type":"array","items":{"type":"object"},"maxItems":16384})",
             "only calls of these are shown; none: of all", tool_fields),
    honoured("tool_call_parser", kAnyText, "SGLang's name of the model's chat format"),
};

constexpr FieldRule kReasoningText[] = {
    required("text", kAnyText, "what a model wrote"),
    required("reasoning_parser", R"({"enum":["deepseek-r1","deepseek-v3"]})",
             "whether the text goes on behind <think>, or reasoning is what <think> opens"),
    refused("return_blocks", "the reasoning is one text"),
};

constexpr FieldRule kPause[] = {
    honoured("mode", R"({"enum":["abort","in_place","retract"]})",
             "what becomes of the requests that are there"),
};

constexpr FieldRule kAbort[] = {
    honoured("rid", kAnyText, "which requests end: those whose rid begins so"),
    honoured("abort_all", kAnyBoolean, "all requests end"),
    without_effect("abort_message", "a note for the log of another server"),
};

// Where a profile is written is the operator's to say (--profile-dir), not a request's.
constexpr FieldRule kStartProfile[] = {
    honoured("activities", R"({"type":"array","items":{"enum":["CPU","GPU"]}})",
             "what a profile holds: always both"),
    refused("output_dir", "a profile is written to --profile-dir"),
    refused("profile_id", "a profile is named by its time"),
    refused("profile_prefix", "a profile is named by its time"),
    refused("start_step", "recording begins now"),
    refused("num_steps", "recording ends with /stop_profile"),
    refused("profile_by_stage", "all steps are recorded"),
    refused("profile_stages", "all steps are recorded"),
    refused("merge_profiles", "there is one file"),
    refused("record_shapes", "spans have no shapes"),
    refused("with_stack", "spans have no stacks"),
};

constexpr FieldRule kContinue[] = {
    without_effect("torch_empty_cache", "there is no cache of PyTorch"),
};

}  // namespace

const FieldTable& chat_fields() {
  static const FieldTable table(
      "chat", {kChat, kOpenAiBodies, openai_rules(), token_choice_rules(), output_form_rules(),
               placement_rules(), conversation_rules(), refused_sampling_rules(),
               refused_feature_rules(), without_effect_rules()});
  return table;
}

const FieldTable& completion_fields() {
  static const FieldTable table("completions",
                                {kCompletions, kOpenAiBodies, openai_rules(), token_choice_rules(),
                                 output_form_rules(), placement_rules(), refused_sampling_rules(),
                                 refused_feature_rules(), without_effect_rules()});
  return table;
}

const FieldTable& generate_fields() {
  static const FieldTable table(
      "/generate", {kGenerate, placement_rules(), refused_sampling_rules(), refused_feature_rules(),
                    without_effect_rules()});
  return table;
}

const FieldTable& sampling_params_fields() {
  static const FieldTable table("sampling_params",
                                {kSamplingParams, token_choice_rules(), output_form_rules(),
                                 refused_sampling_rules(), refused_feature_rules()});
  return table;
}

const FieldTable& tokenize_fields() {
  static const FieldTable table("/tokenize", {kTokenize, conversation_rules()});
  return table;
}

const FieldTable& detokenize_fields() {
  static const FieldTable table("/detokenize", {kDetokenize});
  return table;
}

const FieldTable& score_fields() {
  static const FieldTable table("/v1/score", {kScore});
  return table;
}

const FieldTable& call_text_fields() {
  static const FieldTable table("/parse_function_call", {kCallText});
  return table;
}

const FieldTable& reasoning_text_fields() {
  static const FieldTable table("/separate_reasoning", {kReasoningText});
  return table;
}

const FieldTable& pause_fields() {
  static const FieldTable table("/pause_generation", {kPause});
  return table;
}

const FieldTable& continue_fields() {
  static const FieldTable table("/continue_generation", {kContinue});
  return table;
}

const FieldTable& abort_fields() {
  static const FieldTable table("/abort_request", {kAbort});
  return table;
}

const FieldTable& start_profile_fields() {
  static const FieldTable table("/start_profile", {kStartProfile});
  return table;
}

std::span<const EndpointFields> endpoints_with_fields() {
  static constexpr EndpointFields kEndpoints[] = {
      {"/v1/chat/completions", chat_fields},
      {"/v1/completions", completion_fields},
      // Clients of these two are ahead of any table.
      {"/v1/responses", responses_fields, UnknownFields::kIgnore},
      {"/v1/messages", messages_fields, UnknownFields::kIgnore, http::ClientForm::kAnthropic},
      {"/generate", generate_fields},
      {"/tokenize", tokenize_fields},
      {"/detokenize", detokenize_fields},
      {"/pause_generation", pause_fields},
      {"/continue_generation", continue_fields},
      {"/abort_request", abort_fields},
      {"/start_profile", start_profile_fields},
      {"/parse_function_call", call_text_fields},
      {"/separate_reasoning", reasoning_text_fields},
      {"/v1/score", score_fields}};
  return kEndpoints;
}

}  // namespace fathom::api
