#include "text/pieces/pre_tokenizer.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/source_tree.h"
#include "tests/text/golden_file.h"

namespace fathom::text {
namespace {

std::vector<std::string> pieces(PreTokenizerKind kind, const std::string& text) {
  std::vector<size_t> ends;
  pre_tokenize(kind, text, ends);
  std::vector<std::string> result;
  size_t begin = 0;
  for (const size_t end : ends) {
    result.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return result;
}

std::vector<std::string> v2(const std::string& text) { return pieces(PreTokenizerKind::kV2, text); }
std::vector<std::string> v3(const std::string& text) { return pieces(PreTokenizerKind::kV3, text); }
using Pieces = std::vector<std::string>;

json::Value pre_tokenizer_of(const std::string& path) {
  return json::parse(read_bytes(path)).value()["pre_tokenizer"];
}
json::Value v3_json() { return pre_tokenizer_of(source_path("models/demo/tokenizer.json")); }
json::Value v2_json() { return pre_tokenizer_of(test_data_path("v2_tokenizer.json")); }

TEST(PreTokenizer, cuts_nothing_from_nothing) {
  EXPECT_EQ(v2(""), Pieces());
  EXPECT_EQ(v3(""), Pieces());
}

TEST(PreTokenizer, v3_takes_numbers_by_three_from_the_left) {
  EXPECT_EQ(v3("x1234567 8"), (Pieces{"x", "123", "456", "7", " ", "8"}));
}

TEST(PreTokenizer, v3_leaves_one_space_to_the_word_that_follows) {
  EXPECT_EQ(v3("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(v3("a  1"), (Pieces{"a", "  ", "1"}));
  EXPECT_EQ(v3("a  "), (Pieces{"a", "  "}));
  EXPECT_EQ(v3("a \n\n b"), (Pieces{"a", " \n\n", " b"}));
}

TEST(PreTokenizer, v3_joins_punctuation_with_the_letters_or_line_breaks_after_it) {
  EXPECT_EQ(v3("don't"), (Pieces{"don", "'t"}));
  EXPECT_EQ(v3("x ...\r\n\ny"), (Pieces{"x", " ...\r\n\n", "y"}));
  EXPECT_EQ(v3("'t\u00e9st"), (Pieces{"'t", "\u00e9st"}));
}

TEST(PreTokenizer, v3_keeps_han_and_kana_apart_from_latin) {
  EXPECT_EQ(v3("ab\u4e2d\u6587cd"), (Pieces{"ab", "\u4e2d\u6587", "cd"}));
  // The middle dot is in the kana range but is punctuation for the pattern that comes after.
  EXPECT_EQ(v3("\u30ab\u30fb\u30ab"), (Pieces{"\u30ab", "\u30fb", "\u30ab"}));
}

TEST(PreTokenizer, v2_takes_digits_and_line_breaks_one_by_one) {
  EXPECT_EQ(v2("a12\r\n"), (Pieces{"a", "1", "2", "\r", "\n"}));
}

TEST(PreTokenizer, v2_splits_inside_the_pieces_of_the_split_before) {
  EXPECT_EQ(v2("h\u00e9llo"), (Pieces{"h", "\u00e9", "llo"}));
  EXPECT_EQ(v2(" Hello  world "), (Pieces{" Hello", " ", " world", " "}));
  EXPECT_EQ(v2("!\u3000"), (Pieces{"!", "\u3000"}));
  EXPECT_EQ(v2("5  \n"), (Pieces{"5", "  ", "\n"}));
}

TEST(PreTokenizer, takes_stray_bytes_as_characters_without_a_class) {
  EXPECT_EQ(v3("a\xff\xfe b"), (Pieces{"a", "\xff\xfe", " b"}));
  EXPECT_EQ(v3("\xc3"), (Pieces{"\xc3"}));
  EXPECT_EQ(v2("\xe4\xb8."), (Pieces{"\xe4\xb8", "."}));
}

TEST(PreTokenizer, recognises_the_two_families) {
  EXPECT_EQ(pre_tokenizer_kind(v3_json()).value(), PreTokenizerKind::kV3);
  EXPECT_EQ(pre_tokenizer_kind(v2_json()).value(), PreTokenizerKind::kV2);
}

TEST(PreTokenizer, recognises_line_breaks_spelled_as_themselves) {
  json::Value value = v3_json();
  auto& regex = value["pretokenizers"][2]["pattern"]["Regex"].get_ref<std::string&>();
  for (size_t at = regex.find("\\r\\n"); at != std::string::npos; at = regex.find("\\r\\n")) {
    regex.replace(at, 4, "\r\n");
  }
  EXPECT_EQ(pre_tokenizer_kind(value).value(), PreTokenizerKind::kV3);
}

TEST(PreTokenizer, refuses_any_other_and_names_it) {
  json::Value changed = v3_json();
  changed["pretokenizers"][0]["pattern"]["Regex"] = "\\p{N}{1,2}";
  const Result<PreTokenizerKind> kind = pre_tokenizer_kind(changed);
  ASSERT_FALSE(kind);
  EXPECT_NE(kind.error().message.find("{1,2}"), std::string::npos) << kind.error().message;
  const Result<PreTokenizerKind> metaspace = pre_tokenizer_kind({{"type", "Metaspace"}});
  ASSERT_FALSE(metaspace);
  EXPECT_NE(metaspace.error().message.find("Metaspace"), std::string::npos);
}

}  // namespace
}  // namespace fathom::text
