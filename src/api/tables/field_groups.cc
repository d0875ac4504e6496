#include "api/tables/field_groups.h"

namespace fathom::api {
namespace {

constexpr FieldRule kTokenChoice[] = {
    honoured("temperature", R"({"type":"number","minimum":0,"maximum":100})", "0 is greedy"),
    honoured("top_p", R"({"type":"number","minimum":0,"maximum":1})",
             "the likeliest tokens that have this share together; 0: the likeliest alone"),
    honoured("top_k", R"({"type":"integer","minimum":-1,"maximum":2147483647})",
             "so many of the likeliest tokens; -1 and 0 are all"),
    honoured("min_p", R"({"type":"number","minimum":0,"maximum":1})",
             "tokens at least this share as likely as the likeliest"),
    honoured("repetition_penalty", R"({"type":"number","exclusiveMinimum":0,"maximum":2})",
             "against tokens of prompt and answer; 1 is none"),
    honoured("frequency_penalty", R"({"type":"number","minimum":-2,"maximum":2})",
             "against tokens of the answer, by how often they came"),
    honoured("presence_penalty", R"({"type":"number","minimum":-2,"maximum":2})",
             "against tokens of the answer"),
    honoured(
        "logit_bias",
        R"({"type":"object","additionalProperties":{"type":"number","minimum":-100,"maximum":100}})",
        "token ids and what is added to their logits"),
    honoured(
        "stop",
        R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"},"maxItems":16}]})",
        "texts that end the answer"),
    honoured("stop_token_ids",
             R"({"type":"array","items":{"type":"integer","minimum":0},"maxItems":128})",
             "tokens that end the answer"),
    honoured("ignore_eos", kAnyBoolean, "do not stop at the end token"),
};

constexpr FieldRule kOutputForm[] = {
    honoured("n", R"({"type":"integer","minimum":1,"maximum":128})", "answers to a prompt"),
    honoured("no_stop_trim", kAnyBoolean, "keep the stop string in the text"),
    honoured("skip_special_tokens", kAnyBoolean, "leave special tokens out of the text"),
    honoured("spaces_between_special_tokens", kAnyBoolean,
             "these tokenizers put nothing between tokens either way"),
    honoured("json_schema", R"({"type":["object","string"]})",
             "the answer fits this schema, an object or its text"),
    honoured("regex", kGrammarText, "the answer matches this pattern"),
    honoured("ebnf", kGrammarText, "the answer follows these rules"),
    honoured("structural_tag", R"({"type":["object","string"]})",
             "the answer is free text with such tags, an object or its text"),
};

constexpr FieldRule kRefusedSampling[] = {
    refused("use_beam_search", "there is no beam search"),
    refused("beam_width", "there is no beam search", "[1]"),
    refused("length_penalty", "there is no beam search", "[1]"),
    refused("early_stopping", "there is no beam search"),
    refused("typical_p", "there is no typical sampling", "[1]"),
    refused("typical", "there is no typical sampling", "[1]"),
    refused("top_n_sigma", "there is no top-n-sigma sampling", "[-1]"),
    refused("tfs_z", "there is no tail-free sampling", "[1]"),
    refused("top_a", "there is no top-a sampling", "[0]"),
    refused("mirostat", "there is no mirostat sampling", "[0]"),
    refused("dynatemp_range", "there is no dynamic temperature", "[0]"),
    refused("xtc_probability", "there is no XTC sampling", "[0]"),
    refused("dry_multiplier", "there is no DRY penalty", "[0]"),
    refused("adaptive_target", "there is no adaptive sampling", "[-1]"),
    refused("samplers", "the order of the samplers is fixed"),
    refused("repeat_penalty", "repetition_penalty says it here", "[1]"),
    refused("no_repeat_ngram_size", "there is no ban of repeated n-grams", "[0]"),
    refused("repetition_detection", "there is no detection of repetitions"),
    refused("bad_words", "there are no bad words; logit_bias bans tokens"),
    refused("bad_words_ids", "there are no bad words; logit_bias bans tokens"),
    refused("allowed_token_ids",
            "there is no list of allowed tokens; a grammar or logit_bias says it here"),
    refused("logits_processors", "there are no custom logit processors"),
    refused("custom_logit_processor", "there are no custom logit processors"),
    refused("custom_params", "there are no custom logit processors"),
    refused("watermarking", "there are no watermarks"),
    refused("stop_regex", "there are no patterns to stop at; stop takes texts"),
    refused("grammar_lazy", "there are no grammars that begin within an answer"),
    refused("grammar_triggers", "there are no grammars that begin within an answer"),
    refused("t_max_predict_ms", "there is no limit of an answer's time", "[0, -1]"),
    refused("n_indent", "there is no rule about indents", "[0]"),
    without_effect("dynatemp_exponent", "counts with dynatemp_range, which is refused"),
    without_effect("xtc_threshold", "counts with xtc_probability, which is refused"),
    without_effect("mirostat_tau", "counts with mirostat, which is refused"),
    without_effect("mirostat_eta", "counts with mirostat, which is refused"),
    without_effect("repeat_last_n", "counts with repeat_penalty, which is refused"),
    without_effect("penalize_nl", "counts with repeat_penalty, which is refused"),
    without_effect("dry_base", "counts with dry_multiplier, which is refused"),
    without_effect("dry_allowed_length", "counts with dry_multiplier, which is refused"),
    without_effect("dry_penalty_last_n", "counts with dry_multiplier, which is refused"),
    without_effect("dry_sequence_breakers", "counts with dry_multiplier, which is refused"),
    without_effect("adaptive_decay", "counts with adaptive_target, which is refused"),
    without_effect("min_keep", "counts with samplers that are refused"),
    without_effect("preserved_tokens", "counts with grammar_triggers, which is refused"),
    without_effect("truncation_side", "counts with truncate_prompt_tokens, which is refused"),
    without_effect("backend_sampling", "where tokens are chosen"),
};

constexpr FieldRule kPlacement[] = {
    honoured("stream", kAnyBoolean, "server-sent events"),
    honoured("priority", R"({"type":"integer","minimum":-2147483648,"maximum":2147483647})",
             "higher goes first"),
    honoured("routed_dp_rank", R"({"const":0})", "the only rank"),
    honoured("cache_salt", R"({"type":"string","maxLength":256})",
             "prompts share cached prefixes only where it is equal"),
    honoured("extra_key", R"({"type":"string","maxLength":256})",
             "prompts share cached prefixes only where it is equal"),
};

constexpr FieldRule kRefusedFeatures[] = {
    refused("input_embeds", "there are no prompts of embeddings"),
    refused("prompt_embeds", "there are no prompts of embeddings"),
    refused("positional_embed_overrides", "there are no prompts of embeddings"),
    refused("image_data", "there are no images"),
    refused("images", "there are no images"),
    refused("images_config", "there are no images"),
    refused("multimodal_data", "there are no images"),
    refused("video_data", "there are no videos"),
    refused("video_config", "there are no videos"),
    refused("use_audio_in_video", "there are no videos"),
    refused("audio_data", "there are no audio prompts"),
    refused("mm_processor_kwargs", "there are no images"),
    refused("media_io_kwargs", "there are no images"),
    refused("lora", "there are no LoRA adapters"),
    refused("lora_path", "there are no LoRA adapters"),
    refused("lora_id", "there are no LoRA adapters"),
    refused("bootstrap_host", "there are no separate prefill servers"),
    refused("bootstrap_port", "there are no separate prefill servers"),
    refused("bootstrap_room", "there are no separate prefill servers"),
    refused("bootstrap_pair_key", "there are no separate prefill servers"),
    refused("decode_tp_size", "there are no separate prefill servers"),
    refused("disagg_prefill_dp_rank", "there are no separate prefill servers"),
    refused("kv_transfer_params", "there are no separate prefill servers"),
    refused("ec_transfer_params", "there are no separate prefill servers"),
    refused("data_parallel_rank", "there is one rank", "[0]"),
    refused("session_params", "there are no sessions"),
    refused("vllm_xargs", "there are no extensions of vLLM"),
    refused("ngram_corpus_id", "there are no corpora of n-grams"),
    refused("return_hidden_states", "answers have no hidden states"),
    refused("return_routed_experts", "answers have no choices of experts"),
    refused("return_indexer_topk", "answers have no choices of the indexer"),
    refused("return_cached_tokens_details", "answers have no details of cached tokens"),
    refused("return_entropy", "answers have no entropies"),
    refused("return_sampling_mask", "answers have no sampling masks"),
    refused("return_bytes", "answers have no bytes of images"),
    refused("return_token_offsets", "answers have no offsets of tokens"),
    refused("return_progress", "there are no events before the first token"),
    refused("timings_per_token", "events have no timings"),
    refused("post_sampling_probs", "log-probabilities are of the raw logits"),
    refused("logprob_token_ids", "there are no log-probabilities of chosen token ids"),
    refused("token_ids_logprob", "there are no log-probabilities of chosen token ids"),
    refused("n_probs", "logprobs says it here", "[0]"),
    refused("response_fields", "answers are whole"),
    refused("truncate_prompt_tokens", "no prompt is cut to fit"),
    refused("n_predict", "max_tokens says it here, max_new_tokens in sampling_params"),
    refused("n_keep", "no prompt is cut to fit", "[0, -1]"),
    refused("n_discard", "no prompt is cut to fit", "[0]"),
    refused("n_cmpl", "n says it here", "[1]"),
    refused("background", "there are no requests in the background"),
};

constexpr FieldRule kWithoutEffect[] = {
    without_effect("user", "who asks"),
    without_effect("metadata", "notes of the client"),
    without_effect("store", "nothing is stored"),
    without_effect("service_tier", "there is one"),
    without_effect("safety_identifier", "who asks"),
    without_effect("prompt_cache_key", "prefixes are found without it"),
    without_effect("prompt_cache_retention", "prefixes stay as long as there is room"),
    without_effect("prompt_cache_options", "prefixes stay as long as there is room"),
    without_effect("cache_prompt", "an answer is the same with and without the cache"),
    without_effect("n_cache_reuse", "an answer is the same with and without the cache"),
    without_effect("id_slot", "the scheduler chooses"),
    without_effect("slot_id", "the scheduler chooses"),
    without_effect("routed_experts_start_len",
                   "counts with return_routed_experts, which is refused"),
    without_effect("routed_experts_prompt_start",
                   "counts with return_routed_experts, which is refused"),
    without_effect("min_dynamic_patch", "there are no images"),
    without_effect("max_dynamic_patch", "there are no images"),
    without_effect("image_max_dynamic_patch", "there are no images"),
    without_effect("video_max_dynamic_patch", "there are no videos"),
    without_effect("mm_hashes", "there are no images"),
    without_effect("mm_content_hashes", "there are no images"),
    without_effect("return_mm_kwargs", "there are no images"),
    without_effect("log_metrics", "what the server counts"),
    without_effect("no_logs", "texts are not logged unless the operator says so"),
    without_effect("verbose", "what the server logs"),
    without_effect("custom_labels", "what the server counts"),
    without_effect("conversation_id", "a name for logs"),
    without_effect("session_id", "a name for logs"),
    without_effect("chat_id", "a name for logs"),
    without_effect("provider", "for routers"),
    without_effect("keep_alive", "the model stays loaded"),
    without_effect("timeout", "how long the client waits"),
    without_effect("routing_key", "for routers"),
    without_effect("kv_router_hint", "for routers"),
    without_effect("external_trace_header", "for traces"),
    without_effect("received_time", "for traces"),
    without_effect("http_worker_ipc", "for servers of several processes"),
    without_effect("speculative.n_max", "drafts change no answer"),
    without_effect("speculative.n_min", "drafts change no answer"),
    without_effect("speculative.p_min", "drafts change no answer"),
};

constexpr FieldRule kOpenAi[] = {
    honoured("model", R"({"type":"string","maxLength":65535})", "a served name, default or empty"),
    honoured("max_tokens", kTokenLimit, "at most so many tokens, up to what the context has left"),
    honoured("min_tokens", kTokenCount, "no end before so many tokens"),
    honoured("seed", kSeed, "choice k of n uses the seed + k"),
    honoured("sampling_seed", kSeed, "as seed"),
    honoured("rid", R"({"type":"string","minLength":1,"maxLength":128})", "the request's id"),
    honoured("stream_options", kAnyObject, "what streams hold", stream_options_fields),
    honoured("response_format", kAnyObject, "the form of the answer", response_format_fields),
    refused("prediction", "there are no predicted outputs"),
    honoured("usage", kAnyObject, "OpenRouter's name of include_usage", usage_wish_fields),
    honoured("options", kAnyObject, "Ollama's; what they would choose is said beside them",
             ollama_options_fields),
    without_effect("verbosity", "how long answers are; the prompt says it"),
    refused("min_new_tokens", "min_tokens says it here", "[0]"),
    refused("sampling_params", "the fields of the body say it here"),
    refused("return_logprob", "logprobs says it here"),
    refused("return_prompt_token_ids", "return_token_ids says it here"),
    refused("return_meta_info", "there is no meta_info in answers of this endpoint"),
};

constexpr FieldRule kStreamOptions[] = {
    honoured("include_usage", kAnyBoolean, "a last event with the usage"),
    honoured("continuous_usage_stats", kAnyBoolean, "the usage so far in every event"),
    without_effect("include_obfuscation", "events are not padded"),
};

constexpr FieldRule kUsageWish[] = {
    honoured("include", kAnyBoolean, "a last event with the usage"),
};

constexpr FieldRule kOllamaOptions[] = {
    refused("temperature", "the body says it here"),
    refused("top_p", "the body says it here"),
    refused("top_k", "the body says it here"),
    refused("min_p", "the body says it here"),
    refused("typical_p", "there is no typical sampling", "[1]"),
    refused("seed", "the body says it here"),
    refused("stop", "the body says it here"),
    refused("num_predict", "max_tokens of the body says it here"),
    refused("repeat_penalty", "repetition_penalty of the body says it here", "[1]"),
    refused("presence_penalty", "the body says it here", "[0]"),
    refused("frequency_penalty", "the body says it here", "[0]"),
    refused("mirostat", "there is no mirostat sampling", "[0]"),
    refused("tfs_z", "there is no tail-free sampling", "[1]"),
    without_effect("repeat_last_n", "counts with repeat_penalty, which is refused"),
    without_effect("mirostat_tau", "counts with mirostat, which is refused"),
    without_effect("mirostat_eta", "counts with mirostat, which is refused"),
    without_effect("penalize_newline", "counts with repeat_penalty, which is refused"),
    without_effect("num_ctx", "the context is the server's"),
    without_effect("num_keep", "no prompt is cut to fit"),
    without_effect("num_batch", "how the server computes"),
    without_effect("num_gpu", "how the server computes"),
    without_effect("main_gpu", "how the server computes"),
    without_effect("num_thread", "how the server computes"),
    without_effect("low_vram", "how the server computes"),
    without_effect("numa", "how the server computes"),
    without_effect("use_mmap", "how the server computes"),
    without_effect("use_mlock", "how the server computes"),
};

constexpr FieldRule kResponseFormat[] = {
    required("type", R"({"enum":["text","json_object","json_schema","structural_tag"]})",
             "the kind of form"),
    honoured("json_schema", kAnyObject, "the schema and its name, of the type json_schema",
             named_schema_fields),
    honoured("schema", kAnyObject, "the schema, of the type json_object"),
    honoured("format", kAnyObject, "the tree of formats, of the type structural_tag"),
    honoured("structures", R"({"type":"array"})", "the tags, of the type structural_tag"),
    honoured("triggers", R"({"type":"array","items":{"type":"string"}})",
             "what tags begin with, of the type structural_tag"),
};

constexpr FieldRule kNamedSchema[] = {
    honoured("schema", R"({"type":["object","string","boolean"]})",
             "the answer fits it; none: any JSON object"),
    honoured("name", R"({"type":"string","maxLength":256})", "of the schema"),
    honoured("strict", kAnyBoolean,
             "the answer always fits; true: an object without named members is empty"),
    without_effect("description", "of the schema, for people"),
};

constexpr FieldRule kStructuredOutputs[] = {
    honoured("json", R"({"type":["object","string"]})", "as json_schema"),
    honoured("regex", kGrammarText, "as regex"),
    honoured("choice", kChoice, "the answer is one of these texts"),
    honoured("grammar", kGrammarText, "as ebnf"),
    honoured("json_object", kAnyBoolean, "any JSON object"),
    honoured("structural_tag", R"({"type":["object","string"]})", "as structural_tag"),
    honoured("whitespace_pattern", kSpacePattern, "what stands between the tokens of JSON"),
    honoured("disable_any_whitespace", kAnyBoolean, "true: nothing stands between them"),
    honoured("disable_additional_properties", kAnyBoolean,
             "true: where a schema lists members, no others are written"),
    without_effect("disable_fallback", "there is one engine for grammars"),
    without_effect("backend", "there is one engine for grammars"),
    without_effect("_backend", "there is one engine for grammars"),
};

}  // namespace

std::span<const FieldRule> token_choice_rules() { return kTokenChoice; }
std::span<const FieldRule> output_form_rules() { return kOutputForm; }
std::span<const FieldRule> refused_sampling_rules() { return kRefusedSampling; }
std::span<const FieldRule> placement_rules() { return kPlacement; }
std::span<const FieldRule> refused_feature_rules() { return kRefusedFeatures; }
std::span<const FieldRule> without_effect_rules() { return kWithoutEffect; }
std::span<const FieldRule> openai_rules() { return kOpenAi; }

const FieldTable& stream_options_fields() {
  static const FieldTable table("stream_options", {kStreamOptions});
  return table;
}

const FieldTable& usage_wish_fields() {
  static const FieldTable table("usage", {kUsageWish});
  return table;
}

const FieldTable& ollama_options_fields() {
  static const FieldTable table("options", {kOllamaOptions});
  return table;
}

const FieldTable& response_format_fields() {
  static const FieldTable table("response_format", {kResponseFormat});
  return table;
}

const FieldTable& named_schema_fields() {
  static const FieldTable table("response_format.json_schema", {kNamedSchema});
  return table;
}

const FieldTable& structured_outputs_fields() {
  static const FieldTable table("structured_outputs", {kStructuredOutputs});
  return table;
}

}  // namespace fathom::api
