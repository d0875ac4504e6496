#include <algorithm>
#include <array>
#include <string>

#include "base/json.h"
#include "text/pieces/json_fields.h"
#include "text/pieces/pre_tokenizer.h"

namespace fathom::text {
namespace {

constexpr std::array<std::string_view, 3> kV3Patterns = {
    R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr std::array<std::string_view, 5> kV2Patterns = {
    R"([\r\n])",
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-"
    "\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", R"(\s+$)",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"};

// Published files spell line breaks inside patterns sometimes as escapes, sometimes as themselves.
std::string with_escaped_newlines(std::string_view pattern) {
  std::string escaped;
  for (const char c : pattern) {
    if (c == '\r') {
      escaped += "\\r";
    } else if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

bool has(const json::Value& value, std::string_view key, const json::Value& expected) {
  const auto found = value.find(key);
  return found != value.end() && *found == expected;
}

// Whether the value is Split by exactly this pattern, each match isolated.
bool is_split_by(const json::Value& value, std::string_view pattern) {
  if (type_name(value) != "\"Split\"" || !has(value, "behavior", "Isolated")) return false;
  if (!has(value, "invert", false)) return false;
  const auto found = value.find("pattern");
  if (found == value.end() || !found->is_object() || found->size() != 1) return false;
  const auto regex = found->find("Regex");
  return regex != found->end() && regex->is_string() &&
         with_escaped_newlines(regex->get_ref<const std::string&>()) == pattern;
}

bool is_byte_level(const json::Value& value) {
  return type_name(value) == "\"ByteLevel\"" && has(value, "add_prefix_space", false) &&
         has(value, "use_regex", false);
}

bool is_single_digits(const json::Value& value) {
  return type_name(value) == "\"Digits\"" && has(value, "individual_digits", true);
}

template <size_t kCount>
bool starts_with_splits(const json::Value& steps,
                        const std::array<std::string_view, kCount>& patterns) {
  if (steps.size() < kCount) return false;
  for (size_t i = 0; i < kCount; ++i) {
    if (!is_split_by(steps[i], patterns[i])) return false;
  }
  return true;
}

// What an unknown sequence consists of, for the error line.
std::string describe(const json::Value& steps) {
  constexpr size_t kMaxSteps = 8;
  std::string text;
  for (size_t i = 0; i < std::min(steps.size(), kMaxSteps); ++i) {
    text += (i == 0 ? "" : ", ") + type_name(steps[i]);
    if (type_name(steps[i]) != "\"Split\"") continue;
    const auto pattern = steps[i].find("pattern");
    if (pattern != steps[i].end()) text += " " + json::shown_text(json::dump(*pattern));
  }
  return steps.size() > kMaxSteps ? text + ", ..." : text;
}

}  // namespace

Result<PreTokenizerKind> pre_tokenizer_kind(const json::Value& pre_tokenizer) {
  constexpr std::string_view kKnown =
      "; known are the pre-tokenizers of DeepSeek-V2 and DeepSeek-V3";
  if (type_name(pre_tokenizer) != "\"Sequence\"") {
    return invalid_argument("pre_tokenizer is " + type_name(pre_tokenizer) + std::string(kKnown));
  }
  const auto steps = pre_tokenizer.find("pretokenizers");
  if (steps == pre_tokenizer.end() || !steps->is_array()) {
    return invalid_argument("pre_tokenizer is a Sequence without a list \"pretokenizers\"");
  }
  const size_t count = steps->size();
  if (count == kV3Patterns.size() + 1 && starts_with_splits(*steps, kV3Patterns) &&
      is_byte_level(steps->back())) {
    return PreTokenizerKind::kV3;
  }
  if (count == kV2Patterns.size() + 2 && starts_with_splits(*steps, kV2Patterns) &&
      is_single_digits((*steps)[count - 2]) && is_byte_level(steps->back())) {
    return PreTokenizerKind::kV2;
  }
  return invalid_argument("pre_tokenizer is a Sequence of " + std::to_string(count) + " steps (" +
                          describe(*steps) + ")" + std::string(kKnown));
}

}  // namespace fathom::text
