// Broken and unsupported tokenizer files: each is refused with one clear line, none brings the program down.
#include <gtest/gtest.h>

#include <functional>

#include "base/json.h"
#include "tests/source_tree.h"
#include "tests/text/golden_file.h"

namespace fathom::text {
namespace {

using Change = std::function<void(json::Value&)>;

struct HostileFile {
  std::string name;
  std::string expected;  // in the error line
  Change change;
};

std::string model_file(const std::string& name) {
  return read_bytes(source_path("models/demo/") + name);
}

void expect_one_clear_line(const Result<Tokenizer>& tokenizer, const std::string& name) {
  ASSERT_FALSE(tokenizer) << name << " was accepted";
  const std::string& line = tokenizer.error().message;
  EXPECT_EQ(line.find_first_of("\r\n"), std::string::npos) << name << ": " << line;
  EXPECT_TRUE(line.starts_with("tokenizer.json: ") || line.starts_with("tokenizer_config.json: "))
      << name << ": " << line;
  EXPECT_GT(line.size(), 24u) << name;
  EXPECT_LT(line.size(), 1200u) << name << ": " << line;
}

void expect_refused(const std::vector<HostileFile>& files) {
  const json::Value good = json::parse(model_file("tokenizer.json")).value();
  for (const HostileFile& file : files) {
    json::Value bad = good;
    file.change(bad);
    const Result<Tokenizer> tokenizer = Tokenizer::parse(json::dump(bad), "");
    expect_one_clear_line(tokenizer, file.name);
    if (tokenizer) continue;
    EXPECT_NE(tokenizer.error().message.find(file.expected), std::string::npos)
        << file.name << ": " << tokenizer.error().message;
  }
}

// Sets the value at a JSON pointer.
Change set(const std::string& pointer, json::Value value) {
  return [=](json::Value& root) { root[json::Value::json_pointer(pointer)] = value; };
}
Change erase(const std::string& parent, const std::string& key) {
  return [=](json::Value& root) { root[json::Value::json_pointer(parent)].erase(key); };
}

// What each place may not hold, whatever the type.
std::vector<HostileFile> wrong_types(const std::string& pointer, const std::string& expected,
                                     const std::vector<json::Value>& values) {
  std::vector<HostileFile> files;
  for (const json::Value& value : values) {
    files.push_back({pointer + " = " + json::dump(value), expected, set(pointer, value)});
  }
  return files;
}

const json::Value kObject = json::Value::object();
const json::Value kList = json::Value::array();

TEST(HostileTokenizer, refuses_the_file_cut_short_anywhere) {
  const std::string good = model_file("tokenizer.json");
  constexpr size_t kCuts = 200;
  for (size_t i = 0; i < kCuts; ++i) {
    const size_t cut = i * good.size() / kCuts;
    const Result<Tokenizer> tokenizer = Tokenizer::parse(std::string_view(good).substr(0, cut), "");
    expect_one_clear_line(tokenizer, "cut at " + std::to_string(cut));
  }
}

TEST(HostileTokenizer, survives_any_byte_changed) {
  const std::string good = read_bytes(test_data_path("v2_tokenizer.json"));
  constexpr size_t kChanges = 300;
  int refused = 0;
  for (size_t i = 0; i < kChanges; ++i) {
    std::string bad = good;
    bad[i * good.size() / kChanges] ^= static_cast<char>(1 + i % 255);
    const Result<Tokenizer> tokenizer = Tokenizer::parse(bad, "");
    if (tokenizer) {
      tokenizer->decode(tokenizer->encode("Some text, 12 <|EOT|>."), false);
    } else {
      expect_one_clear_line(tokenizer, "change " + std::to_string(i));
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(HostileTokenizer, refuses_other_documents) {
  for (const char* text : {"", "null", "[]", "1", "\"x\"", "{}", "{\"model\":{}}", "\xef\xbb\xbf{}",
                           "{\"a\":1,\"a\":2}", "{\"version\":\"1.0\",\"colour\":1}", "[[[[[[[[",
                           "{\"model\":\"\xff\"}", "not json"}) {
    expect_one_clear_line(Tokenizer::parse(text, ""), text);
  }
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  expect_one_clear_line(Tokenizer::parse(deep, ""), "deep");
}

TEST(HostileTokenizer, refuses_what_would_change_text_or_ids) {
  expect_refused({
      {"truncation", "truncation", set("/truncation", 5)},
      {"padding", "padding", set("/padding", "right")},
      {"NFC", "NFC", set("/normalizer", {{"type", "NFC"}})},
      {"Lowercase", "Sequence", set("/normalizer/normalizers", {{{"type", "Lowercase"}}})},
      {"Template", "TemplateProcessing", set("/post_processor", {{"type", "TemplateProcessing"}})},
      {"Metaspace decoder", "Metaspace", set("/decoder", {{"type", "Metaspace"}})},
      {"decoder null", "decoder", set("/decoder", nullptr)},
      {"no decoder", "missing", erase("", "decoder")},
      {"WordPiece", "WordPiece", set("/model/type", "WordPiece")},
      {"Unigram", "Unigram", set("/model/type", "Unigram")},
      {"newline in a name", "\\n", set("/model/type", "a\nb")},
      {"no model", "model", erase("", "model")},
      {"no type", "(none)", erase("/model", "type")},
      {"no vocab", "vocab", erase("/model", "vocab")},
      {"no merges", "merges", erase("/model", "merges")},
      {"dropout", "dropout", set("/model/dropout", 0.5)},
      {"unk", "unk_token", set("/model/unk_token", "<think>")},
      {"prefix", "continuing_subword_prefix", set("/model/continuing_subword_prefix", "##")},
      {"suffix", "end_of_word_suffix", set("/model/end_of_word_suffix", "</w>")},
      {"byte_fallback", "byte_fallback", set("/model/byte_fallback", true)},
      {"ignore_merges", "ignore_merges", set("/model/ignore_merges", true)},
      {"unknown option", "shiny", set("/model/shiny", 1)},
      {"pre_tokenizer null", "pre_tokenizer", set("/pre_tokenizer", nullptr)},
      {"no pre_tokenizer", "pre_tokenizer", erase("", "pre_tokenizer")},
      {"Whitespace", "Whitespace", set("/pre_tokenizer", {{"type", "Whitespace"}})},
      {"steps missing", "pretokenizers", erase("/pre_tokenizer", "pretokenizers")},
      {"steps empty", "0 steps", set("/pre_tokenizer/pretokenizers", kList)},
      {"step not object", "4 steps", set("/pre_tokenizer/pretokenizers/0", 7)},
      {"other regex", "[a-z]+", set("/pre_tokenizer/pretokenizers/0/pattern/Regex", "[a-z]+")},
      {"other behaviour", "Split", set("/pre_tokenizer/pretokenizers/1/behavior", "Removed")},
      {"inverted", "Split", set("/pre_tokenizer/pretokenizers/1/invert", true)},
      {"String pattern", "String",
       set("/pre_tokenizer/pretokenizers/1/pattern", {{"String", " "}})},
      {"use_regex", "ByteLevel", set("/pre_tokenizer/pretokenizers/3/use_regex", true)},
      {"prefix space", "ByteLevel", set("/pre_tokenizer/pretokenizers/3/add_prefix_space", true)},
      {"Digits", "Digits", set("/pre_tokenizer/pretokenizers/3", {{"type", "Digits"}})},
  });
}

TEST(HostileTokenizer, refuses_broken_vocabularies) {
  expect_refused(wrong_types("/model/vocab/e", "id of \"e\"",
                             {-1, 1.5, "5", nullptr, kList, true, 1e300, 2097152, 4294967296,
                              int64_t{-9223372036854775807}}));
  expect_refused({
      {"same id twice", "same id", set("/model/vocab/e", 300)},
      {"empty token", "empty token", set("/model/vocab/", 2048)},
      {"no byte", "byte 101", erase("/model/vocab", "e")},
      {"no bytes", "no token for byte",
       [](json::Value& root) { root["model"]["vocab"] = kObject; }},
      {"vocab a list", "vocab", set("/model/vocab", kList)},
      {"vocab a number", "vocab", set("/model/vocab", 3)},
  });
}

TEST(HostileTokenizer, refuses_broken_merges) {
  expect_refused(
      wrong_types("/model/merges/3", "model.merges[3]",
                  {"", "a", "a b c", " ", "a ", "no such", 5, nullptr, kObject, kList,
                   json::Value::array({"a"}), json::Value::array({"a", 1}),
                   json::Value::array({"a", "b", "c"}), json::Value::array({"", "a"}),
                   json::Value::array({"unknown", "a"}), json::Value::array({"a", "unknown"}),
                   // Both are tokens, but together they are none.
                   json::Value::array({"q", "\u0120"})}));
  expect_refused({
      {"merge twice", "earlier line",
       [](json::Value& root) { root["model"]["merges"].push_back(root["model"]["merges"][0]); }},
      {"merges an object", "merges", set("/model/merges", kObject)},
      {"merges null", "merges", set("/model/merges", nullptr)},
  });
}

TEST(HostileTokenizer, refuses_absurd_added_tokens) {
  expect_refused(
      wrong_types("/added_tokens/3", "added_tokens[3]", {5, nullptr, "x", kList, kObject}));
  expect_refused(wrong_types("/added_tokens/3/id", "id must be",
                             {-1, 1.5, "3", nullptr, 2097152, uint64_t{18446744073709551615u}}));
  expect_refused(wrong_types("/added_tokens/3/content", "content", {"", 5, nullptr, kList}));
  expect_refused(wrong_types("/added_tokens/3/special", "special", {1, "true", nullptr}));
  expect_refused(wrong_types("/added_tokens/3/normalized", "normalized", {0, "no"}));
  expect_refused(wrong_types("/added_tokens", "added_tokens", {5, "x", kObject, true}));
  expect_refused({
      {"single_word", "single_word", set("/added_tokens/3/single_word", true)},
      {"lstrip", "lstrip", set("/added_tokens/3/lstrip", true)},
      {"rstrip", "rstrip", set("/added_tokens/3/rstrip", true)},
      {"flag a number", "lstrip", set("/added_tokens/3/lstrip", 1)},
      {"other id than in vocab", "in model.vocab it has 3", set("/added_tokens/3/id", 4)},
      {"id of another", "which is that of", set("/added_tokens/3/content", "<other>")},
      {"listed twice", "listed twice",
       [](json::Value& root) { root["added_tokens"].push_back(root["added_tokens"][3]); }},
      {"two with one id", "same id",
       [](json::Value& root) {
         for (const char* content : {"<x>", "<y>"}) {
           root["added_tokens"].push_back({{"id", 5000}, {"content", content}});
         }
       }},
      {"very long", "the limit is 256", set("/added_tokens/3/content", std::string(100'000, '<'))},
  });
}

TEST(HostileTokenizer, refuses_broken_configs) {
  const std::string tokenizer_json = model_file("tokenizer.json");
  for (const char* config :
       {"{", "[]", "5", "{\"bos_token\":5}", "{\"bos_token\":\"\"}", "{\"bos_token\":{}}",
        "{\"bos_token\":{\"content\":1}}", "{\"bos_token\":\"<none>\"}",
        "{\"eos_token\":\"<none>\"}", "{\"eos_token\":[]}", "{\"add_bos_token\":true}",
        "{\"add_bos_token\":1}", "{\"add_eos_token\":true}", "{\"add_eos_token\":\"x\"}", " ",
        "{\"bos_token\":\"a\\nb\"}"}) {
    expect_one_clear_line(Tokenizer::parse(tokenizer_json, config), config);
  }
}

TEST(HostileTokenizer, takes_ids_with_gaps) {
  json::Value root = json::parse(model_file("tokenizer.json")).value();
  root["added_tokens"].push_back({{"id", 9000}, {"content", "<extra>"}, {"special", false}});
  const Tokenizer tokenizer = Tokenizer::parse(json::dump(root), "").value();
  EXPECT_EQ(tokenizer.vocab_size(), 9001);
  EXPECT_EQ(tokenizer.encode("<extra>"), std::vector<int32_t>{9000});
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{8999, 9000, 9001}, true), "<extra>");
  EXPECT_EQ(tokenizer.token_bytes(8999), "");
}

// What a training run leaves in the file says nothing about ids.
TEST(TokenizerFile, truncation_and_padding_change_nothing) {
  json::Value file = json::parse(model_file("tokenizer.json")).value();
  file["truncation"] = {
      {"direction", "Right"}, {"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}};
  file["padding"] = {{"strategy", {{"Fixed", 64}}},
                     {"direction", "Left"},
                     {"pad_to_multiple_of", nullptr},
                     {"pad_id", 2},
                     {"pad_type_id", 0},
                     {"pad_token", "<\uff5c\u2581pad\u2581\uff5c>"}};
  const Result<Tokenizer> tokenizer = Tokenizer::parse(json::dump(file), "");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::string text = "A sentence of more than four tokens, which stays as it is.";
  EXPECT_EQ(tokenizer->encode(text), v3_tokenizer().encode(text));
}

}  // namespace
}  // namespace fathom::text
