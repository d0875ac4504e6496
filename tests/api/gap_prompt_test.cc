#include "api/gap_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "api/completion_request.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using ::testing::HasSubstr;
using tests::accepted;
using tests::demo_served_model;
using tests::refused;

std::string file_text(const std::string& name) {
  std::ifstream file(source_path("models/demo/" + name));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void rename_token(std::string& json, const std::string& from, const std::string& to) {
  for (size_t at = json.find(from); at != std::string::npos; at = json.find(from, at + to.size()))
    json.replace(at, from.size(), to);
}

constexpr int32_t kBosId = 0, kBeginId = 2, kHoleId = 12, kEndId = 13;

// The demo model with the marks in the place of three of its added tokens.
ServedModel model_with_marks() {
  std::string tokenizer = file_text("tokenizer.json"), config = file_text("tokenizer_config.json");
  for (std::string* text : {&tokenizer, &config}) {
    rename_token(*text, "<｜▁pad▁｜>", "<｜fim▁begin｜>");
    rename_token(*text, "<｜tool▁output▁begin｜>", "<｜fim▁hole｜>");
    rename_token(*text, "<｜tool▁output▁end｜>", "<｜fim▁end｜>");
  }
  ServedModel model = demo_served_model();
  Result<text::Tokenizer> parsed = text::Tokenizer::parse(tokenizer, config);
  EXPECT_TRUE(parsed) << parsed.error().message;
  model.tokenizer = std::make_shared<const text::Tokenizer>(std::move(*parsed));
  return model;
}

std::vector<int32_t> ids_around(const std::string& prompt, const std::string& suffix) {
  const auto tokenizer = tests::demo_tokenizer();
  std::vector<int32_t> ids = {kBosId, kBeginId};
  const auto append = [&](const std::string& text) {
    for (const int32_t id : tokenizer->encode(text, {.parse_special = false})) ids.push_back(id);
  };
  append(prompt);
  ids.push_back(kHoleId);
  append(suffix);
  ids.push_back(kEndId);
  return ids;
}

TEST(GapPrompt, is_the_published_form_of_marks_and_texts) {
  const ServedModel model = model_with_marks();
  const GenerationRequest request = accepted(parse_completion_request(
      R"({"prompt": "def add(a, b):\n", "suffix": "\n    return sum"})", model));
  EXPECT_EQ(request.items.front().prompt, ids_around("def add(a, b):\n", "\n    return sum"));
  const GenerationRequest two =
      accepted(parse_completion_request(R"({"prompt": ["one", ""], "suffix": "end"})", model));
  ASSERT_EQ(two.items.size(), 2U);
  EXPECT_EQ(two.items[0].prompt, ids_around("one", "end"));
  EXPECT_EQ(two.items[1].prompt, ids_around("", "end"));
}

TEST(GapPrompt, an_empty_suffix_asks_for_nothing) {
  const ServedModel model = model_with_marks();
  EXPECT_EQ(accepted(parse_completion_request(R"({"prompt": "one", "suffix": ""})", model))
                .items.front()
                .prompt,
            accepted(parse_completion_request(R"({"prompt": "one"})", model)).items.front().prompt);
}

TEST(GapPrompt, text_spells_special_tokens_as_in_every_completion) {
  const ServedModel model = model_with_marks();
  const auto prompt_of = [&](const std::string& body) {
    return accepted(parse_completion_request(body, model)).items.front().prompt;
  };
  const auto with_token = prompt_of(R"({"prompt": "a<think>b", "suffix": "c"})");
  EXPECT_EQ(std::ranges::count(with_token, 5), 1);
  EXPECT_EQ(std::ranges::count(prompt_of(R"({"prompt": "a<think>b"})"), 5), 1);
}

TEST(GapPrompt, is_refused_by_name_where_it_cannot_be) {
  const ApiError unable =
      refused(parse_completion_request(R"({"prompt": "a", "suffix": "b"})", demo_served_model()));
  EXPECT_EQ(unable.param, "suffix");
  EXPECT_THAT(unable.message, HasSubstr("<｜fim▁hole｜>"));
  const ServedModel model = model_with_marks();
  const auto param_of = [&](const std::string& body) {
    return refused(parse_completion_request(body, model)).param;
  };
  EXPECT_EQ(param_of(R"({"prompt": [5, 6], "suffix": "b"})"), "prompt");
  EXPECT_EQ(param_of(R"({"prompt": [[5]], "suffix": "b"})"), "prompt");
  EXPECT_EQ(param_of(R"({"prompt": "a", "suffix": "b", "echo": true})"), "echo");
  EXPECT_EQ(param_of(R"({"prompt": "a", "suffix": ["b"]})"), "suffix");
  EXPECT_EQ(param_of(R"({"prompt": "a", "suffix": ")" + std::string(200'000, 'x') + "\"}"),
            "prompt");
}

}  // namespace
}  // namespace fathom::api
