#include "base/json.h"

#include <gtest/gtest.h>

#include "tests/cpu_time.h"

namespace fathom::json {
namespace {

TEST(Json, keeps_the_order_of_keys) {
  const Result<Value> value = parse(R"({"b": 1, "a": [true, null, "x"]})");
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(dump(*value), R"({"b":1,"a":[true,null,"x"]})");
}

TEST(Json, refuses_duplicate_keys_at_any_depth) {
  EXPECT_TRUE(parse(R"({"a": {"x": 1}, "b": {"x": 1}})"));
  const Result<Value> value = parse(R"({"a": {"x": 1, "x": 2}})");
  ASSERT_FALSE(value);
  EXPECT_NE(value.error().message.find("duplicate key \"x\""), std::string::npos);
  const Result<Value> wild = parse(R"({"a\nb": 1, "a\nb": 2})");
  ASSERT_FALSE(wild);
  EXPECT_NE(wild.error().message.find(R"(duplicate key "a\nb")"), std::string::npos)
      << "on one line";
}

TEST(Json, bounds_depth_and_size) {
  const std::string deep = std::string(65, '[') + std::string(65, ']');
  EXPECT_FALSE(parse(deep));
  EXPECT_TRUE(parse(deep.substr(1, 128)));
  EXPECT_FALSE(parse("[1,2]", {.max_bytes = 4}));
}

TEST(Json, names_line_and_column_of_broken_text) {
  const Result<Value> value = parse("{\n  \"a\": nope}");
  ASSERT_FALSE(value);
  EXPECT_NE(value.error().message.find("line 2"), std::string::npos) << value.error().message;
  for (const char* text :
       {"", "{", "[1,]", "\"\xff\"", "{\"a\" 1}", "01", "1e999", "nul", "{} x"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
}

TEST(Json, a_nul_byte_does_not_end_the_text) {
  using namespace std::string_view_literals;  // NOLINT(google-build-using-namespace)
  for (const std::string_view text : {"{}\0"sv, "{}\0x"sv, "[1\0]"sv, "\0"sv, "\"a\0b\""sv}) {
    EXPECT_FALSE(parse(text)) << text;
  }
  EXPECT_TRUE(parse(R"("a\u0000b")"));
}

TEST(Json, finds_duplicates_in_objects_of_any_size) {
  for (const int num_keys : {2, 8, 9, 10'000}) {
    std::string keys;
    for (int i = 0; i < num_keys; ++i) keys += "\"k" + std::to_string(i) + "\":" + "{},";
    EXPECT_TRUE(parse("{" + keys + "\"k\":0}")) << num_keys;
    const Result<Value> twice = parse("[{" + keys + "\"k1\":0}]");
    ASSERT_FALSE(twice) << num_keys;
    EXPECT_NE(twice.error().message.find("duplicate key \"k1\""), std::string::npos);
  }
}

TEST(Json, messages_do_not_name_the_library) {
  for (const char* text : {"1e999", "{", "\"\xff\"", "[1,]"}) {
    EXPECT_EQ(parse(text).error().message.find("json.exception"), std::string::npos) << text;
  }
}

TEST(Json, a_long_broken_token_makes_no_long_message) {
  const Result<Value> value = parse("{\"" + std::string(100'000, 'x') + "\n");
  ASSERT_FALSE(value);
  EXPECT_NE(value.error().message.find("invalid string"), std::string::npos);
  EXPECT_LT(value.error().message.size(), 300u);
}

TEST(Json, shows_texts_and_values_of_errors_in_few_bytes_on_one_line) {
  EXPECT_EQ(shown_text("a\nb\"\x1b"), R"("a\nb\"\u001b")");
  EXPECT_EQ(shown_text(std::string(64, 'x')), '"' + std::string(64, 'x') + '"');
  EXPECT_EQ(shown_text(std::string(65, 'x')), '"' + std::string(64, 'x') + "\"...");
  EXPECT_EQ(shown_text(std::string(63, 'x') + "\u00e9"), '"' + std::string(63, 'x') + "\"...");
  EXPECT_EQ(shown(Value("a")), "\"a\"");
  EXPECT_EQ(shown(Value(7168.5)), "7168.5");
  EXPECT_EQ(shown(Value(nullptr)), "null");
  EXPECT_EQ(shown(Value::object()), "{}");
  EXPECT_EQ(shown(Value{{"a", 1}}), "an object");
  EXPECT_EQ(shown(Value::array()), "[]");
  EXPECT_EQ(shown(Value::array({1, "b", Value{{"c", 1}}})), "[1,\"b\",an object]");
  EXPECT_EQ(shown(Value::array({std::string(60, 'x'), "yyy"})), "a list of 2 values");
  EXPECT_EQ(shown(Value(std::vector<int>(17))), "a list of 17 values");
}

TEST(Json, builds_what_the_library_builds) {
  for (const char* text :
       {"1", "-7", "1.5e3", "\"x\"", "null", "[]", "{}", "[[],[[]],{}]",
        "{\"a\":{\"b\":[1,{\"c\":[]}],\"d\":2}}",
        "[{\"a\":[1,2,{\"b\":null}],\"c\":true},18446744073709551615,-9223372036854775808]"}) {
    const Result<Value> value = parse(text);
    ASSERT_TRUE(value) << text << ": " << value.error().message;
    EXPECT_EQ(dump(*value), Value::parse(text).dump()) << text;
  }
}

TEST(Json, reads_an_object_of_many_keys_in_linear_time) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"tensor." + std::to_string(i) + "\":1,";
  text.back() = '}';
  const CpuStopwatch watch;
  const Result<Value> value = parse(text);
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(value->size(), 200'000u);
  EXPECT_LT(watch.seconds(), 30.0);  // about 0.1 s; a search per key takes minutes
}

}  // namespace
}  // namespace fathom::json
