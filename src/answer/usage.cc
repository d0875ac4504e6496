#include "answer/usage.h"

#include <algorithm>

#include "answer/pieces/json_text.h"

namespace fathom::answer {

ChoiceCounts total_usage(std::span<const Choice> choices, int choices_per_item) {
  ChoiceCounts total;
  for (size_t i = 0; i < choices.size(); ++i) {
    const ChoiceCounts& counts = choices[i].counts();
    total.completion_tokens += counts.completion_tokens;
    total.reasoning_tokens += counts.reasoning_tokens;
    if (i % static_cast<size_t>(choices_per_item) != 0) continue;
    total.prompt_tokens += counts.prompt_tokens;
    total.cached_tokens += std::min(counts.cached_tokens, counts.prompt_tokens);
  }
  return total;
}

void append_usage(std::string& out, const ChoiceCounts& counts) {
  out += R"({"prompt_tokens":)";
  append_json(out, counts.prompt_tokens);
  out += R"(,"total_tokens":)";
  append_json(out, counts.prompt_tokens + counts.completion_tokens);
  out += R"(,"completion_tokens":)";
  append_json(out, counts.completion_tokens);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  append_json(out, counts.cached_tokens);
  out += R"(},"completion_tokens_details":{"reasoning_tokens":)";
  append_json(out, counts.reasoning_tokens);
  out += R"(},"reasoning_tokens":)";
  append_json(out, counts.reasoning_tokens);
  out += '}';
}

}  // namespace fathom::answer
