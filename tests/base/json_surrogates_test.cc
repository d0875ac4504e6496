#include "base/json_surrogates.h"

#include <gtest/gtest.h>

#include "base/json_members.h"

namespace fathom::json {
namespace {

TEST(JsonSurrogates, halves_become_the_replacement_character) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("cut \ud83d")", R"("cut \ufffd")"},
      {R"("\uDE42 rest")", R"("\ufffd rest")"},
      {R"("\ude42\ud83d")", R"("\ufffd\ufffd")"},
      {R"("\ud83d\ud83d\ude42")", R"("\ufffd\ud83d\ude42")"},
      {R"("\ud83d\n\ude42")", R"("\ufffd\n\ufffd")"},
      {R"("\\\ud83d\\ud83d")", R"("\\\ufffd\\ud83d")"},
      {R"({"\ud83d": 1})", R"({"\ufffd": 1})"}};
  for (const auto& [text, mended] : cases) {
    EXPECT_EQ(with_whole_pairs(text).value_or("unchanged"), mended) << text;
  }
}

TEST(JsonSurrogates, everything_else_stays) {
  for (const char* text : {"", "\\", "\\u", "\"\\ud8", R"("\ud83d\ude42")", R"("\\ud83d")",
                           R"("\ud7ff\ue000")", R"("\u+d8")", R"("\udxyz")", "plain", R"("\\")"}) {
    EXPECT_FALSE(with_whole_pairs(text).has_value()) << text;
  }
}

TEST(JsonSurrogates, members_of_a_body_are_mended) {
  Result<Members> scanned = Members::scan(R"({"a": "cut \ud83d", "\udc00": "\ud83d\ude42"})");
  ASSERT_TRUE(scanned) << scanned.error().message;
  Members body = std::move(*scanned);
  EXPECT_EQ((*body.find("a").value()).get<std::string>(), "cut \xef\xbf\xbd");
  EXPECT_EQ((*body.find("\xef\xbf\xbd").value()).get<std::string>(), "\xf0\x9f\x99\x82");
  EXPECT_EQ(body.size(), 2U);
}

}  // namespace
}  // namespace fathom::json
