#include "base/json.h"
#include "text/pieces/json_fields.h"
#include "text/tokenizer_json.h"

namespace fathom::text {
namespace {

// A token is given as its text or as an object with "content"; null and missing mean none.
Result<std::string> token_field(const json::Value& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::string();
  const json::Value* content = &*found;
  if (content->is_object()) {
    const auto inner = content->find("content");
    if (inner != content->end()) content = &*inner;
  }
  if (!content->is_string() || content->get_ref<const std::string&>().empty()) {
    return invalid_argument(std::string(key) +
                            " must be a token's text or an object with \"content\"");
  }
  return content->get<std::string>();
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(std::string_view text) {
  if (text.empty()) return TokenizerConfig{};
  const Result<json::Value> root = json::parse(text);
  if (!root) return root.error();
  if (!root->is_object()) return invalid_argument("must be a JSON object");
  const Result<std::string> bos = token_field(*root, "bos_token");
  if (!bos) return bos.error();
  const Result<std::string> eos = token_field(*root, "eos_token");
  if (!eos) return eos.error();
  // The class that the published files name adds BOS unless told otherwise.
  const auto tokenizer_class = root->find("tokenizer_class");
  const bool class_adds_bos =
      tokenizer_class != root->end() && (json::is_text(*tokenizer_class, "LlamaTokenizerFast") ||
                                         json::is_text(*tokenizer_class, "LlamaTokenizer"));
  const Result<bool> add_bos = bool_field(*root, "add_bos_token", class_adds_bos && !bos->empty());
  if (!add_bos) return add_bos.error();
  if (*add_bos && bos->empty()) {
    return invalid_argument("add_bos_token is true, but there is no bos_token");
  }
  const Result<bool> add_eos = bool_field(*root, "add_eos_token", false);
  if (!add_eos) return add_eos.error();
  if (*add_eos) return invalid_argument("add_eos_token = true is not supported");
  return TokenizerConfig{.bos_token = *bos, .eos_token = *eos, .add_bos_token = *add_bos};
}

}  // namespace fathom::text
