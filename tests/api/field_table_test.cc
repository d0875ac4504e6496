// Names, and which of the known ones somebody meant.

#include "api/tables/field_table.h"

#include <gtest/gtest.h>

#include <string>

#include "api/tables/endpoint_fields.h"
#include "base/edit_distance.h"
#include "tests/cpu_time.h"

namespace fathom::api::tests {
namespace {

constexpr FieldRule kInner[] = {honoured("depth", R"({"type":"integer"})", "a number")};

const FieldTable& inner_fields() {
  static const FieldTable table("inner", {kInner});
  return table;
}

constexpr FieldRule kOuter[] = {
    honoured("inner", R"({"type":"object"})", "an object", inner_fields),
    api::refused("colour", "there are no colours", "[0]"),
    without_effect("color", "of the page"),
};

TEST(FieldTable, finds_rules_by_their_whole_name) {
  const FieldTable table("outer", {kOuter});
  ASSERT_NE(table.find("colour"), nullptr);
  EXPECT_EQ(table.find("colour")->use, FieldUse::kRefused);
  EXPECT_EQ(table.find("color")->use, FieldUse::kWithoutEffect);
  for (const char* name : {"", "colou", "colours", "Colour", "inne"}) {
    EXPECT_EQ(table.find(name), nullptr) << name;
  }
}

// The sender of a name chooses its length, and every rule of the table is compared with it.
TEST(FieldTable, a_name_of_megabytes_is_near_nothing_and_costs_no_copies_of_it) {
  const FieldTable table("outer", {kOuter});
  const std::string letters(30'000'000, 'a'), dashes = std::string(30'000'000, '_') + "colour";
  const CpuStopwatch watch;
  EXPECT_EQ(table.nearest(letters), "");
  EXPECT_EQ(table.nearest(dashes), "");
  EXPECT_LT(watch.seconds(), 0.01);
}

TEST(FieldTable, knows_in_which_object_a_field_belongs) {
  const FieldTable table("outer", {kOuter});
  ASSERT_NE(table.place_of("depth"), nullptr);
  EXPECT_EQ(table.place_of("depth")->name, "inner");
  EXPECT_EQ(table.place_of("color"), nullptr);
  EXPECT_EQ(generate_fields().place_of("temperature")->name, "sampling_params");
}

TEST(FieldTable, names_the_field_that_was_meant) {
  const FieldTable& chat = chat_fields();
  EXPECT_EQ(chat.nearest("temprature"), "temperature");
  EXPECT_EQ(chat.nearest("maxTokens"), "max_tokens");
  EXPECT_EQ(chat.nearest("max-completion-tokens"), "max_completion_tokens");
  EXPECT_EQ(chat.nearest("tepmerature"), "temperature");
  EXPECT_EQ(chat.nearest("frequency_penality"), "frequency_penalty");
  EXPECT_EQ(chat.nearest("messages "), "messages");
  EXPECT_EQ(chat.nearest("use_beem_search"), "use_beam_search");
  // Nothing is near these, and "z" is no misspelling of "n".
  for (const char* name : {"z", "", "entirely_different", "an_unknown_field"}) {
    EXPECT_EQ(chat.nearest(name), "") << name;
  }
  EXPECT_EQ(chat.nearest(std::string(100'000, 'm')), "");
}

TEST(FieldTable, prefers_a_field_that_does_something) {
  const FieldTable table("outer", {kOuter});
  EXPECT_EQ(table.nearest("colouur"), "colour");
  EXPECT_EQ(table.nearest("innner"), "inner");
  constexpr FieldRule kNear[] = {api::refused("stop_a", "it is none"),
                                 honoured("stop_b", "{}", "one")};
  EXPECT_EQ(FieldTable("near", {kNear}).nearest("stop_c"), "stop_b");
}

TEST(EditDistance, counts_letters_added_removed_changed_and_swapped) {
  EXPECT_EQ(edit_distance("stop", "stop", 3), 0);
  EXPECT_EQ(edit_distance("stp", "stop", 3), 1);
  EXPECT_EQ(edit_distance("stoop", "stop", 3), 1);
  EXPECT_EQ(edit_distance("step", "stop", 3), 1);
  EXPECT_EQ(edit_distance("sotp", "stop", 3), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting", 5), 3);
  EXPECT_EQ(edit_distance("", "abc", 5), 3);
  EXPECT_EQ(edit_distance("abcdef", "uvwxyz", 3), 4) << "more than the limit is the limit and one";
  EXPECT_EQ(edit_distance("MaxTokens", "max_tokens", 3), 0);
}

TEST(FieldTableDeath, refuses_a_name_that_comes_twice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((FieldTable("twice", {kOuter, kOuter})), "twice has two rules for color");
}

}  // namespace
}  // namespace fathom::api::tests
