#include "api/context_overflow.h"

#include <algorithm>
#include <string_view>

namespace fathom::api {
namespace {

std::string tokens(int64_t count) {
  return std::to_string(count) + (count == 1 ? " token" : " tokens");
}

// LangChain looks for the code in the text, because OpenAI's client shows it the text alone.
constexpr std::string_view kCode = " (context_length_exceeded)";

// As clients of SGLang look for it.
constexpr std::string_view kSGLangs =
    "Requested token count exceeds the model's maximum context length: ";

std::string context_is(int64_t context) {
  return "This model's maximum context length is " + tokens(context) + ". However, ";
}

// "messages have", "prompt[3] has"
std::string has(const std::string& field) {
  return field + (field == "messages" ? " have " : " has ");
}

// Chat has two names for it, and its clients look for the second.
std::string shown_field(const std::string& max_field) {
  const bool is_of_chat = max_field == "max_tokens" || max_field == "max_completion_tokens";
  return is_of_chat ? "max_tokens or max_completion_tokens" : max_field;
}

}  // namespace

ApiError prompt_too_long(const PromptUse& prompt, http::ClientForm form) {
  const std::string at_least = prompt.is_lower_bound ? "at least " : "";
  if (form == http::ClientForm::kAnthropic) {
    // A prompt as long as the context has no place for an answer.
    const int64_t maximum = std::min(prompt.context, prompt.num_tokens - 1);
    return context_too_long(prompt.field, "prompt is too long: " + at_least +
                                              tokens(prompt.num_tokens) + " > " +
                                              std::to_string(maximum) + " maximum");
  }
  const std::string_view why = prompt.num_tokens > prompt.context
                                   ? ", which is longer than the model's context length"
                                   : ", which leaves no room for an answer";
  return context_too_long(prompt.field, context_is(prompt.context) + "your " + has(prompt.field) +
                                            at_least + tokens(prompt.num_tokens) +
                                            std::string(why) + ". Please reduce the length of " +
                                            prompt.field + "." + std::string(kCode));
}

ApiError output_too_long(const PromptUse& prompt, int64_t asked, const std::string& max_field,
                         http::ClientForm form) {
  if (form == http::ClientForm::kAnthropic) {
    return context_too_long(
        max_field,
        "input length and `max_tokens` exceed context limit: " + std::to_string(prompt.num_tokens) +
            " + " + std::to_string(asked) + " > " + std::to_string(prompt.context) +
            ", decrease input length or `max_tokens` and try again");
  }
  return context_too_long(
      max_field, context_is(prompt.context) + "you requested " + tokens(prompt.num_tokens + asked) +
                     " (" + std::to_string(prompt.num_tokens) + " in " + prompt.field + ", " +
                     std::to_string(asked) + " in the answer). " + std::string(kSGLangs) +
                     shown_field(max_field) + " is too large: it is " + std::to_string(asked) +
                     ", must be at most " + std::to_string(prompt.context - prompt.num_tokens) +
                     "." + std::string(kCode));
}

}  // namespace fathom::api
