#include "serve/key_tokens.h"

namespace fathom::serve {
namespace {

constexpr size_t kMaxKeyNames = 512;
constexpr const char* kOtherKeys = "other";

}  // namespace

void KeyTokens::add(const answer::AnswerRecord& record) {
  if (record.key_name.empty()) return;
  const MutexLock lock(mutex_);
  const bool is_full = counters_.size() >= kMaxKeyNames && !counters_.contains(record.key_name);
  const Counters& used = counters(is_full ? kOtherKeys : record.key_name);
  used.requests->add();
  used.prompt->add(record.counts.prompt_tokens);
  used.cached->add(record.counts.cached_tokens);
  used.completion->add(record.counts.completion_tokens);
}

KeyTokens::Counters& KeyTokens::counters(const std::string& key_name) {
  const auto found = counters_.find(key_name);
  if (found != counters_.end()) return found->second;
  return counters_[key_name] = {
             .requests = &counter("fathom:key_requests_total",
                                  "Generation requests that ended, by API key.", key_name),
             .prompt = &counter("fathom:key_prompt_tokens_total", "Tokens of prompts, by API key.",
                                key_name),
             .cached = &counter("fathom:key_cached_tokens_total",
                                "Of these, tokens that the prefix cache had.", key_name),
             .completion = &counter("fathom:key_completion_tokens_total",
                                    "Tokens of answers, by API key.", key_name)};
}

metrics::Counter& KeyTokens::counter(const char* name, const char* help,
                                     const std::string& key_name) {
  return registry_.counter({.name = name, .help = help, .labels = {{"key_name", key_name}}});
}

}  // namespace fathom::serve
