// json::Box: a copy is a value of its own, and moves keep the value.

#include <gtest/gtest.h>

#include <utility>

#include "base/json.h"

namespace fathom::json::tests {
namespace {

TEST(JsonBox, HoldsNullUntilItIsGivenAValue) {
  Box box;
  EXPECT_TRUE(box->is_null());
  EXPECT_EQ(dump(*Box::object()), "{}");
  box = *parse("[1]");
  EXPECT_EQ(dump(*box), "[1]");
}

TEST(JsonBox, CopiesAreValuesOfTheirOwn) {
  Box box(*parse(R"({"a": 1})"));
  Box copy = box;
  Box assigned;
  assigned = box;
  (*box)["a"] = 2;
  EXPECT_EQ(dump(*copy), R"({"a":1})");
  EXPECT_EQ(dump(*assigned), R"({"a":1})");
  copy = std::move(box);
  EXPECT_EQ(dump(*copy), R"({"a":2})");
}

}  // namespace
}  // namespace fathom::json::tests
