// Checkpoints in the form in which Kimi-K2 and Moonlight are published: tiktoken.model and no tokenizer.json. That ids
// are tiktoken's is tokenizer_golden_test.cc's; here what the files may hold, and the chat format on top of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/json.h"
#include "tests/scratch_directory.h"
#include "tests/text/golden_file.h"
#include "text/chat_encoder.h"
#include "text/chat_markup.h"

namespace fathom::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string ranks_text() { return read_bytes(test_data_path("kimi/tiktoken.model")); }
std::string config_text() { return read_bytes(test_data_path("kimi/tokenizer_config.json")); }

std::string error_of(const std::string& ranks, const std::string& config) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse_tiktoken(ranks, config);
  if (tokenizer) return "accepted";
  EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos) << tokenizer.error().message;
  return tokenizer.error().message;
}

std::string edited(const std::function<void(json::Value&)>& edit) {
  json::Value config = json::parse(config_text()).value();
  edit(config);
  return json::dump(config);
}

TEST(Tiktoken, special_tokens_are_the_listed_and_the_reserved_ones) {
  const Tokenizer tokenizer = kimi_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), kKimiRanks + 256);
  EXPECT_EQ(tokenizer.bos_id(), kKimiRanks);
  EXPECT_EQ(tokenizer.eos_id(), kKimiRanks + 1);
  EXPECT_FALSE(tokenizer.add_bos_token());
  EXPECT_EQ(tokenizer.token_id("<|im_end|>"), kKimiRanks + 2);
  EXPECT_TRUE(tokenizer.is_special(kKimiRanks + 2));
  EXPECT_EQ(tokenizer.token_id("<|tool_call_begin|>"), kKimiRanks + 13);
  EXPECT_FALSE(tokenizer.is_special(kKimiRanks + 13));
  const std::string reserved = "<|reserved_token_" + std::to_string(kKimiRanks + 5) + "|>";
  EXPECT_EQ(tokenizer.token_id(reserved), kKimiRanks + 5);
  EXPECT_TRUE(tokenizer.is_added(kKimiRanks + 5));
  EXPECT_THAT(tokenizer.encode(reserved), ElementsAre(kKimiRanks + 5));
  EXPECT_GT(tokenizer.encode(reserved, {.parse_special = false}).size(), 1u);
}

TEST(Tiktoken, a_chat_of_kimi_is_its_markup_and_the_ids_of_its_text) {
  const Tokenizer tokenizer = kimi_tokenizer();
  EXPECT_THAT(unknown_markup(ChatFormat::kKimiK2, tokenizer), testing::IsEmpty());
  EXPECT_THAT(unknown_markup(ChatFormat::kMoonlight, tokenizer), testing::IsEmpty());
  Conversation chat;
  chat.messages = {{.role = "system", .content = "Be brief."},
                   {.role = "user", .content = "\u4f60\u597d<|im_end|>"}};
  const auto prompt = render(ChatFormat::kKimiK2, chat);
  ASSERT_TRUE(prompt);
  const std::vector<int32_t> ids = encode(*prompt, tokenizer);
  EXPECT_EQ(ids.front(), tokenizer.token_id(markup::kImSystem));
  // Two messages end; what the user wrote is text.
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.token_id(markup::kImEnd)), 2);
  EXPECT_EQ(tokenizer.decode(ids, /*skip_special_tokens=*/false), to_text(*prompt));
}

TEST(Tiktoken, tokenizer_json_wins_and_one_of_them_must_be_there) {
  const ScratchDirectory scratch;
  const std::filesystem::path folder = scratch.path();
  EXPECT_THAT(Tokenizer::load(folder).error().message,
              HasSubstr("holds no tokenizer.json and no tiktoken.model"));
  std::ofstream(folder / "tiktoken.model") << ranks_text();
  EXPECT_THAT(Tokenizer::load(folder).error().message,
              HasSubstr("tokenizer_config.json: is missing"));
  std::ofstream(folder / "tokenizer_config.json") << config_text();
  EXPECT_EQ(Tokenizer::load(folder)->vocab_size(), kKimiRanks + 256);
  std::ofstream(folder / "tiktoken.model") << "version https://git-lfs.github.com/spec/v1\noid";
  EXPECT_THAT(Tokenizer::load(folder).error().message,
              HasSubstr("tiktoken.model: is a Git LFS pointer"));
  std::filesystem::copy_file(source_path("models/demo/tokenizer.json"), folder / "tokenizer.json");
  std::filesystem::remove(folder / "tokenizer_config.json");
  EXPECT_EQ(Tokenizer::load(folder)->vocab_size(), v3_tokenizer().vocab_size());
}

TEST(Tiktoken, lines_may_come_in_any_order_and_end_as_on_windows) {
  std::vector<std::string> lines;
  std::istringstream text(ranks_text());
  for (std::string line; std::getline(text, line);) lines.push_back(line + "\r\n");
  std::string reversed;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) reversed += *line;
  const Result<Tokenizer> tokenizer = Tokenizer::parse_tiktoken(reversed, config_text());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::string sample = "The licence, 1234 \u4e16\u754c";
  EXPECT_EQ(tokenizer->encode(sample), kimi_tokenizer().encode(sample));
}

TEST(Tiktoken, broken_ranks_are_refused_in_one_line) {
  const std::string good = ranks_text();
  const std::string bytes = good.substr(0, good.find("\n", good.find(" 255")) + 1);
  ASSERT_EQ(error_of(bytes, edited([](json::Value& c) {
                       for (const char* key : {"added_tokens_decoder", "bos_token", "eos_token"})
                         c.erase(key);
                     })),
            "accepted");
  for (const auto& [ranks, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "no token has the rank 0"},
           {"\n\n", "no token has the rank 0"},
           {"\x0a\x10<s>", "line 2 is"},  // SentencePiece
           {good + "IQ==\n", "must be a token in base64, a space and its rank"},
           {good + " 5\n", "must be a token in base64"},
           {good + "I!== 2004\n", "must be a token in base64"},
           {good + "IHRoZQ== -1\n", "must be a token in base64"},
           {good + "IHRoZQ== 2004 7\n", "must be a token in base64"},
           {good + "IHRoZQ== 99999999999\n", "must be a token in base64"},
           {good + "IHRoZXp6eg== 2003\n", "has the rank 2003, must be one of 0 to"},
           {good + "IHRoZXp6eg== 9999\n", "has the rank 9999, must be one of 0 to"},
           {good + "IHRoZXp6eg== 2005\n\n", "no token has the rank 2004"},
           {good + "IQ== 2004\n", "have the same token"},
           {"IQ== 0\n", "no token for byte 0"},
           {good + std::string(1024, 'A') + " 2004\n", "a token of 768 bytes, the limit is 512"}}) {
    EXPECT_THAT(error_of(ranks, config_text()),
                testing::AllOf(testing::StartsWith("tiktoken.model: "), HasSubstr(part)));
  }
}

TEST(Tiktoken, a_config_that_does_not_fit_is_refused_in_one_line) {
  using Edit = std::function<void(json::Value&)>;
  const auto add = [](const char* id, json::Value token) -> Edit {
    return [=](json::Value& config) { config["added_tokens_decoder"][id] = token; };
  };
  for (const auto& [edit, part] : std::vector<std::pair<Edit, std::string>>{
           {[](json::Value& c) { c["tokenizer_class"] = "QWenTokenizer"; },
            "tokenizer_class is \"QWenTokenizer\", of tiktoken.model only"},
           {[](json::Value& c) { c.erase("tokenizer_class"); }, "tokenizer_class is missing"},
           {[](json::Value& c) { c["added_tokens_decoder"] = json::Value::array(); },
            "added_tokens_decoder must be an object"},
           {[](json::Value& c) { c["bos_token"] = "<s>"; }, "bos_token \"<s>\" is not a token"},
           {add("5", {{"content", "<x>"}}), "must be an integer from 2004"},
           {add("x", {{"content", "<x>"}}), "[\"x\"]: the id must be an integer"},
           {add("2009", {{"content", ""}}), "content must be a string that is not empty"},
           {add("2009", {{"content", "<x>"}, {"lstrip", true}}), "lstrip = true is not supported"},
           {add("02005", {{"content", "[EOS2]"}}), "has the id 2005 twice"},
           {add("2009", {{"content", "[BOS]"}}), "\"[BOS]\" has two ids"}}) {
    EXPECT_THAT(error_of(ranks_text(), edited(edit)),
                testing::AllOf(testing::StartsWith("tokenizer_config.json: "), HasSubstr(part)));
  }
  // Tokens of a fine-tune, behind the reserved ones.
  const Result<Tokenizer> tokenizer = Tokenizer::parse_tiktoken(
      ranks_text(), edited(add("2300", {{"content", "<mine>"}, {"special", true}})));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 2301);
  EXPECT_THAT(tokenizer->encode("<mine>"), ElementsAre(2300));
}

}  // namespace
}  // namespace fathom::text
