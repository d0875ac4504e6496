#include "api/served_model.h"

#include <algorithm>

namespace fathom::api {

bool ServedModel::answers_to(std::string_view name) const {
  return takes_any_name || name.empty() || name == "default" || name == model_path ||
         std::ranges::find(names, name) != names.end();
}

FieldPolicy policy_of(std::string_view endpoint, const ServedModel& model) {
  return field_policy(endpoint, model.unknown_fields, model.field_log);
}

size_t longest_token_bytes(const text::Tokenizer& tokenizer) {
  size_t longest = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.token_bytes(id).size());
  }
  return longest;
}

}  // namespace fathom::api
