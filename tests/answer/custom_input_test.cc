// A custom tool's input, read out of the arguments of its call however these are cut.

#include "answer/custom_input.h"

#include <gtest/gtest.h>

namespace fathom::answer {
namespace {

std::string read_in_pieces(std::string_view arguments, size_t piece_bytes) {
  CustomInput input;
  std::string read;
  for (size_t at = 0; at < arguments.size(); at += piece_bytes) {
    read += input.push(arguments.substr(at, piece_bytes));
  }
  return read;
}

struct InputCase {
  std::string arguments, input;
};

std::vector<InputCase> input_cases() {
  return {
      {R"({"input":"abc"})", "abc"},
      {"{ \"input\" :\n\"\"}", ""},
      {R"({"input":"a\n\t\"\\\/b"})", "a\n\t\"\\/b"},
      {R"({"input":"\u00e9\ud83d\ude00!"})", "\u00e9\U0001F600!"},
      {R"({"input":"grün", "more": "not read"})", "grün"},
      // Cut: what is there of the text, and nothing of an escape.
      {R"({"input":"ab\u00)", "ab"},
      {R"({"inp)", ""},
      // Another form than the one that was shown.
      {R"({"patch":"x"})", R"({"patch":"x"})"},
      {R"({"input":5})", R"({"input":5})"},
      {"*** Begin Patch\n", "*** Begin Patch\n"},
  };
}

TEST(CustomInput, is_the_text_of_the_one_argument) {
  for (const InputCase& c : input_cases()) {
    for (const size_t piece_bytes : {1U, 2U, 3U, 7U, 100U}) {
      EXPECT_EQ(read_in_pieces(c.arguments, piece_bytes), c.input)
          << c.arguments << " in pieces of " << piece_bytes;
    }
  }
}

TEST(CustomInput, comes_as_soon_as_it_is_known) {
  CustomInput input;
  EXPECT_EQ(input.push(R"({"input": "ab)"), "ab");
  EXPECT_EQ(input.push(R"(c\)"), "c");
  EXPECT_EQ(input.push(R"(nd")"), "\nd");
  EXPECT_EQ(input.push("}"), "");
}

}  // namespace
}  // namespace fathom::answer
