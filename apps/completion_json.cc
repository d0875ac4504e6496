#include "apps/completion_json.h"

#include "base/json.h"

namespace fathom::apps {
namespace {

// [log-probability, id, text]
json::Value entry(int32_t token_id, float logprob, const text::Tokenizer& tokenizer) {
  return json::Value::array({logprob, token_id, std::string(tokenizer.token_bytes(token_id))});
}

json::Value entries(const std::vector<core::SampledToken>& tokens,
                    const text::Tokenizer& tokenizer) {
  json::Value list = json::Value::array();
  for (const core::SampledToken& token : tokens) {
    list.push_back(entry(token.token, token.logprob, tokenizer));
  }
  return list;
}

json::Value top_entries(const std::vector<core::SampledToken>& tokens,
                        const text::Tokenizer& tokenizer) {
  json::Value list = json::Value::array();
  for (const core::SampledToken& token : tokens) {
    json::Value tops = json::Value::array();
    for (const auto& [id, logprob] : token.top_logprobs) {
      tops.push_back(entry(id, logprob, tokenizer));
    }
    list.push_back(std::move(tops));
  }
  return list;
}

json::Value finish_reason(const core::RequestOutput& output) {
  switch (output.finish_reason) {
    case core::FinishReason::kStop:
      return {{"type", "stop"}, {"matched", output.matched_stop_token}};
    case core::FinishReason::kLength:
      return {{"type", "length"}, {"length", output.tokens.size()}};
    case core::FinishReason::kCancelled:
      return {{"type", "abort"}, {"message", "cancelled"}};
    case core::FinishReason::kFailed:
      return {{"type", "abort"}, {"message", output.error}};
    case core::FinishReason::kNone:
      break;
  }
  return nullptr;
}

}  // namespace

json::Value completion_json(const Completion& completion, const text::Tokenizer& tokenizer) {
  const core::RequestOutput& output = completion.output;
  json::Value ids = json::Value::array();
  for (const core::SampledToken& token : output.tokens) ids.push_back(token.token);
  json::Value meta = {{"finish_reason", finish_reason(output)},
                      {"prompt_tokens", completion.num_prompt_tokens},
                      {"completion_tokens", output.tokens.size()},
                      {"seed", output.seed},
                      {"time_to_first_token", completion.first_token_seconds},
                      {"e2e_latency", completion.seconds},
                      {"output_token_logprobs", entries(output.tokens, tokenizer)},
                      {"output_top_logprobs", top_entries(output.tokens, tokenizer)}};
  if (!output.prompt_logprobs.empty()) {
    meta["input_token_logprobs"] = entries(output.prompt_logprobs, tokenizer);
    meta["input_top_logprobs"] = top_entries(output.prompt_logprobs, tokenizer);
  }
  if (const core::SpeculationCounts& drafts = output.speculation; drafts.num_verify_steps > 0) {
    meta["spec_verify_ct"] = drafts.num_verify_steps;
    meta["spec_accept_length"] = drafts.accept_length();
    meta["spec_accept_token_num"] = drafts.num_drafts_accepted;
    meta["spec_draft_token_num"] = drafts.num_drafts_verified;
    meta["spec_accept_histogram"] = drafts.accept_histogram;
  }
  return {
      {"text", completion.text}, {"output_ids", std::move(ids)}, {"meta_info", std::move(meta)}};
}

}  // namespace fathom::apps
