// The tables of fields against the parsers: what a table honours is read, what it refuses is refused by name, what it
// says to be without effect is accepted whatever it holds, and no other name is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "api/tables/endpoint_fields.h"
#include "base/json.h"
#include "tests/api/demo_served_model.h"
#include "tests/api/field_places.h"

namespace fathom::api::tests {
namespace {

const char* const kWrongValues[] = {"1.5",   "true",         "-7",         "[[]]",
                                    "[1.5]", R"({"zz": 1})", R"("\u0001")"};

// Whether some value of the field is refused in its name, which nobody can do without reading it.
bool is_read(const FieldPlace& place, const FieldRule& rule, const ServedModel& model) {
  const std::string path = path_in(place, rule.name);
  for (const char* value : kWrongValues) {
    const std::optional<ApiError> error = place.parse(body_with(place, rule.name, value), model);
    if (error && error->param.starts_with(path)) return true;
  }
  return false;
}

TEST(FieldRules, every_place_accepts_what_it_must) {
  const ServedModel model = demo_served_model();
  for (const FieldPlace& place : field_places()) {
    const auto error = place.parse(body_with(place, "an_unknown_field", "null"), model);
    EXPECT_FALSE(error.has_value()) << place.table().name() << ": " << error->message;
  }
}

// With the check in FieldReader::find(), which ends the program when a parser reads what its table does not honour,
// the honoured names of a table are those that its parser reads.
TEST(FieldRules, every_honoured_field_is_read) {
  const ServedModel model = demo_served_model();
  for (const FieldPlace& place : field_places()) {
    for (const FieldRule& rule : place.table().rules()) {
      if (rule.use != FieldUse::kHonoured) continue;
      EXPECT_TRUE(is_read(place, rule, model)) << place.table().name() << ": " << rule.name;
    }
  }
}

TEST(FieldRules, a_refused_field_that_asks_for_something_is_refused_by_name) {
  const ServedModel model = demo_served_model();
  int num_fields = 0;
  for (const FieldPlace& place : field_places()) {
    for (const FieldRule& rule : place.table().rules()) {
      if (rule.use != FieldUse::kRefused) continue;
      ++num_fields;
      for (const char* value : {R"("asks")", "17", R"({"a": 1})", "[1]"}) {
        const auto error = place.parse(body_with(place, rule.name, value), model);
        ASSERT_TRUE(error.has_value()) << place.table().name() << ": " << rule.name;
        EXPECT_EQ(error->param, path_in(place, rule.name)) << error->message;
        EXPECT_EQ(error->code, "unsupported_parameter");
        EXPECT_NE(error->message.find(rule.about), std::string::npos) << error->message;
      }
    }
  }
  EXPECT_GE(num_fields, 300);
}

TEST(FieldRules, a_refused_field_that_asks_for_nothing_is_accepted) {
  const ServedModel model = demo_served_model();
  for (const FieldPlace& place : field_places()) {
    for (const FieldRule& rule : place.table().rules()) {
      if (rule.use != FieldUse::kRefused) continue;
      json::Value neutral =
          json::Value::array({nullptr, false, "", json::Value::array(), json::Value::object()});
      if (!rule.json.empty()) {
        const json::Value more = json::parse(rule.json).value();
        neutral.insert(neutral.end(), more.begin(), more.end());
      }
      for (const json::Value& value : neutral) {
        const auto error = place.parse(body_with(place, rule.name, json::dump(value)), model);
        EXPECT_FALSE(error.has_value())
            << place.table().name() << ": " << rule.name << " " << value << ": " << error->message;
      }
    }
  }
}

TEST(FieldRules, a_field_without_effect_is_accepted_whatever_it_holds) {
  const ServedModel model = demo_served_model();
  for (const FieldPlace& place : field_places()) {
    for (const FieldRule& rule : place.table().rules()) {
      if (rule.use != FieldUse::kWithoutEffect) continue;
      for (const char* value : {"1", "true", R"("x")", R"({"a": [1, {}]})", "[[]]"}) {
        const auto error = place.parse(body_with(place, rule.name, value), model);
        EXPECT_FALSE(error.has_value())
            << place.table().name() << ": " << rule.name << ": " << error->message;
      }
    }
  }
}

TEST(FieldRules, a_name_that_nobody_knows_is_refused_unless_the_operator_says_otherwise) {
  ServedModel model = demo_served_model();
  for (const FieldPlace& place : field_places()) {
    const std::string body = body_with(place, "an_unknown_field", "0");
    model.unknown_fields = UnknownFields::kRefuse;
    const auto error = place.parse(body, model);
    ASSERT_TRUE(error.has_value()) << place.table().name();
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(error->param, path_in(place, "an_unknown_field"));
    EXPECT_EQ(error->code, "unknown_parameter");
    model.unknown_fields = UnknownFields::kIgnore;
    EXPECT_FALSE(place.parse(body, model).has_value()) << place.table().name();
  }
}

TEST(FieldRules, endpoints_whose_clients_are_ahead_of_the_tables_skip_unknown_names) {
  ServedModel model = demo_served_model();
  model.unknown_fields.reset();
  for (const FieldPlace& place : field_places()) {
    const std::string body = body_with(place, "an_unknown_field", "0");
    const std::string_view endpoint = place.endpoint;
    const bool skips = endpoint == "/v1/messages" || endpoint == "/v1/responses";
    EXPECT_EQ(place.parse(body, model).has_value(), !skips) << place.table().name() << body;
  }
}

struct TestLog : FieldLog {
  void add(const SkippedField& skipped) override { all.push_back(skipped); }
  std::vector<SkippedField> all;
};

TEST(FieldRules, the_log_is_told_once_for_a_request_of_everything_that_was_skipped) {
  TestLog log;
  ServedModel model = demo_served_model();
  model.field_log = &log;
  model.unknown_fields = UnknownFields::kIgnore;
  accepted(parse_chat_request(
      R"({"user": "u", "new_one": 1, "stop": null, "store": null, "messages": [
          {"role": "user", "content": "hi", "annotations": [1], "newer": 0},
          {"role": "assistant", "content": "a", "annotations": [2], "newer": 0, "parsed": {}},
          {"role": "user", "content": "b"}]})",
      model));
  std::vector<std::string> names;
  for (const SkippedField& skipped : log.all) {
    EXPECT_EQ(skipped.endpoint, "/v1/chat/completions");
    EXPECT_EQ(skipped.kind == SkippedField::Kind::kUnknown, skipped.name.starts_with("new"));
    names.push_back(skipped.name);
  }
  EXPECT_THAT(
      names, ::testing::UnorderedElementsAre("user", "messages[].annotations", "new_one", "newer"));
}

TEST(FieldRules, a_body_of_unknown_names_tells_the_log_a_few) {
  TestLog log;
  FieldProblem problem(
      {.endpoint = "/v1/messages", .unknown = UnknownFields::kIgnore, .log = &log});
  for (int i = 0; i < 1000; ++i)
    problem.skip_unknown("name\n" + std::string(9999, 'x') + std::to_string(i));
  for (int i = 0; i < 1000; ++i) problem.skip_tool("tool" + std::to_string(i));
  EXPECT_LE(log.all.size(), 16U);
  for (const SkippedField& skipped : log.all) {
    EXPECT_LT(skipped.name.size(), 200U);
    EXPECT_EQ(skipped.name.find('\n'), std::string::npos);
  }
}

TEST(FieldRules, a_misspelt_name_is_told_the_right_one) {
  const ServedModel model = demo_served_model();
  const auto message_of = [&](const std::string& more) {
    const auto error = field_places().front().parse(
        R"({"messages": [{"role": "user", "content": "hi"}], )" + more + "}", model);
    return error ? error->message : "accepted";
  };
  EXPECT_EQ(message_of(R"("temprature": 0)"),
            "unknown field 'temprature'; did you mean 'temperature'?");
  EXPECT_EQ(message_of(R"("stream_options": {"include_usge": true})"),
            "unknown field 'stream_options.include_usge'; did you mean 'include_usage'?");
  EXPECT_EQ(message_of(R"("include_usage": true)"),
            "unknown field 'include_usage'; it belongs in 'stream_options'");
  EXPECT_EQ(message_of(R"("q\"\n": true)"),
            "unknown field 'q\\\"\\n': leave it out (started with --unknown-fields ignore, the "
            "server skips such "
            "fields)");
  EXPECT_EQ(message_of(R"("use_beam_search": true)"),
            "use_beam_search is true, but there is no beam search: leave it out");
  EXPECT_LT(message_of("\"" + std::string(100'000, 'q') + "\": 1").size(), 300U);
}

// The rules of the tables are data: what is wrong with them shows here and not in a server.
TEST(FieldRules, schemas_and_neutral_values_are_json) {
  std::set<std::string_view> names;
  for (const FieldPlace& place : field_places()) {
    EXPECT_TRUE(names.insert(place.table().name()).second) << place.table().name();
    for (const FieldRule& rule : place.table().rules()) {
      EXPECT_FALSE(rule.about.empty()) << rule.name;
      const bool has_json = rule.use == FieldUse::kHonoured || !rule.json.empty();
      if (!has_json) continue;
      const Result<json::Value> value = json::parse(rule.json);
      ASSERT_TRUE(value.has_value()) << rule.name << ": " << rule.json;
      EXPECT_EQ(value->is_object(), rule.use == FieldUse::kHonoured) << rule.name;
    }
  }
}

}  // namespace
}  // namespace fathom::api::tests
