#include "api/tables/field_reader.h"
#include "base/json.h"
#include "base/json_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace fathom::api {
namespace {

using ::testing::HasSubstr;

json::Value object(const std::string& text) { return *json::parse(text); }

TEST(FieldReader, a_missing_field_and_null_are_the_same) {
  const json::Value body = object(R"({"a": null})");
  FieldProblem problem;
  FieldReader reader(body, "", problem);
  for (const char* key : {"a", "b"}) {
    EXPECT_EQ(reader.find(key), nullptr);
    EXPECT_EQ(reader.integer(key, {1, 2}), std::nullopt);
    EXPECT_EQ(reader.number(key, {.min = 1, .max = 2}), std::nullopt);
    EXPECT_EQ(reader.boolean(key), std::nullopt);
    EXPECT_EQ(reader.text(key, 1), std::nullopt);
    EXPECT_EQ(reader.seed(key), std::nullopt);
    EXPECT_EQ(reader.array(key, 1), nullptr);
    EXPECT_EQ(reader.object(key), nullptr);
  }
  EXPECT_FALSE(problem);
}

constexpr FieldRule kRules[] = {honoured("n", R"({"type":"integer"})", "a number"),
                                api::refused("beams", "there are no beams", "[1]"),
                                without_effect("user", "who asks")};

const FieldTable& small_fields() {
  static const FieldTable table("small", {kRules});
  return table;
}

TEST(FieldReader, names_are_checked_before_anything_is_read) {
  const auto problem_of = [](const std::string& text, UnknownFields unknown) {
    const json::Value body = object(text);
    FieldProblem problem({.unknown = unknown});
    FieldReader reader(body, "x", small_fields(), problem);
    return problem ? problem.error().message : "";
  };
  const UnknownFields refuse = UnknownFields::kRefuse, ignore = UnknownFields::kIgnore;
  EXPECT_EQ(problem_of(R"({"n": 1, "user": [], "beams": 1, "m": null})", refuse), "");
  EXPECT_EQ(problem_of(R"({"beams": 2})", refuse),
            "x.beams is 2, but there are no beams: leave it out");
  EXPECT_EQ(problem_of(R"({"beams": 2})", ignore),
            "x.beams is 2, but there are no beams: leave it out");
  EXPECT_EQ(problem_of(R"({"usr": 2})", refuse), "unknown field 'x.usr'; did you mean 'user'?");
  EXPECT_EQ(problem_of(R"({"usr": 2})", ignore), "");
}

TEST(FieldReader, of_a_body_only_refused_fields_are_built) {
  const std::string text = R"({"user": [1, 2, 3], "beams": 1, "n": 1})";
  // Room for names and small values, not for an array.
  json::Members body = json::Members::scan(text, {.max_value_bytes = 400}).value();
  FieldProblem problem;
  FieldReader reader(body, small_fields(), problem);
  EXPECT_FALSE(problem);
  EXPECT_EQ(reader.integer("n", {0, 5}), 1);
}

TEST(FieldReaderDeath, reads_nothing_that_its_table_does_not_honour) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const json::Value body = object(R"({"n": 1})");
  FieldProblem problem;
  FieldReader reader(body, "", small_fields(), problem);
  EXPECT_DEATH(reader.find("m"), "m is read, but small does not honour it");
  EXPECT_DEATH(reader.find("user"), "user is read, but small does not honour it");
}

TEST(FieldReader, an_error_names_field_value_and_rule) {
  const json::Value body = object(R"({"n": 129})");
  FieldProblem problem;
  FieldReader reader(body, "sampling_params", problem);
  EXPECT_EQ(reader.integer("n", {1, 128}), std::nullopt);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem.error().status, 400);
  EXPECT_EQ(problem.error().param, "sampling_params.n");
  EXPECT_EQ(problem.error().message, "sampling_params.n is 129, must be an integer in [1, 128]");
}

TEST(FieldReader, keeps_the_first_of_several_errors) {
  const json::Value body = object(R"({"a": "x", "b": "y"})");
  FieldProblem problem;
  FieldReader reader(body, "", problem);
  reader.integer("b", {1, 2});
  reader.integer("a", {1, 2});
  EXPECT_EQ(problem.error().param, "b");
}

TEST(FieldReader, integers_are_exact_or_refused) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const IntRange all{kMin, kMax};
  EXPECT_EQ(integer_in(object("9223372036854775807"), all), kMax);
  EXPECT_EQ(integer_in(object("-9223372036854775808"), all), kMin);
  EXPECT_EQ(integer_in(object("9223372036854775808"), all), std::nullopt);
  EXPECT_EQ(integer_in(object("-9223372036854775809"), all), std::nullopt);
  EXPECT_EQ(integer_in(object("5.0"), all), 5);
  EXPECT_EQ(integer_in(object("5e0"), all), 5);
  EXPECT_EQ(integer_in(object("5.5"), all), std::nullopt);
  EXPECT_EQ(integer_in(object("9007199254740993.0"), all), 9007199254740992);  // as JSON reads it
  EXPECT_EQ(integer_in(object("9007199254740994.0"), all), std::nullopt);
  for (const char* text : {"\"5\"", "true", "null", "[5]", "{}"}) {
    EXPECT_EQ(integer_in(object(text), all), std::nullopt) << text;
  }
}

TEST(FieldReader, a_seed_is_any_64_bits) {
  const json::Value body = object(
      R"({"a": -1, "b": 18446744073709551615, "c": -9223372036854775808, "d": 0, "e": 1.5})");
  FieldProblem problem;
  FieldReader reader(body, "", problem);
  EXPECT_EQ(reader.seed("a"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(reader.seed("b"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(reader.seed("c"), uint64_t{1} << 63);
  EXPECT_EQ(reader.seed("d"), uint64_t{0});
  EXPECT_FALSE(problem);
  EXPECT_EQ(reader.seed("e"), std::nullopt);
  EXPECT_EQ(problem.error().param, "e");
}

TEST(FieldReader, a_bound_that_is_not_included_stays_so_when_a_number_rounds_to_it) {
  const json::Value body = object(R"({"top_p": 1e-320, "zero": 0})");
  FieldProblem problem;
  FieldReader reader(body, "", problem);
  const std::optional<float> top_p =
      reader.number("top_p", {.min = 0, .max = 1, .is_min_included = false});
  ASSERT_TRUE(top_p);
  EXPECT_GT(*top_p, 0.0f);
  EXPECT_FALSE(reader.number("zero", {.min = 0, .max = 1, .is_min_included = false}));
  EXPECT_EQ(problem.error().message, "zero is 0, must be a number in (0, 1]");
}

TEST(FieldReader, finds_fields_in_objects_of_many) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i)
    text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  const json::Value body = object(text + R"("n": null})");
  FieldProblem problem;
  FieldReader reader(body, "", problem);
  EXPECT_EQ(reader.integer("k0", {0, 999}), 0);
  EXPECT_EQ(reader.integer("k999", {0, 999}), 999);
  EXPECT_EQ(reader.find("k1000"), nullptr);
  EXPECT_EQ(reader.find("n"), nullptr);
  EXPECT_EQ(reader.find(""), nullptr);
}

TEST(FieldReader, shows_values_in_few_bytes) {
  EXPECT_EQ(shown(object("[1, 2, 3]")), "an array of 3");
  EXPECT_EQ(shown(object(R"({"a": 1})")), "an object");
  EXPECT_EQ(shown(object("1.5")), "1.5");
  EXPECT_EQ(shown(object("null")), "null");
  EXPECT_EQ(shown(object(R"("a\nb")")), R"("a\nb")");
  EXPECT_LT(shown(json::Value(std::string(100'000, 'x'))).size(), 100U);
  // Cut inside a character: still text.
  std::string cut = "x";
  for (int i = 0; i < 100; ++i) cut += "é";
  EXPECT_TRUE(json::parse("[" + json::dump(json::Value(shown(json::Value(cut)))) + "]"));
}

}  // namespace
}  // namespace fathom::api
