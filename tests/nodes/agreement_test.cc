#include "nodes/agreement.h"
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom::nodes {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Agreement, of_the_same_facts_has_no_differences) {
  const json::Value facts = {{"version", "1"},
                             {"flags", {{"tp_size", 4}, {"gpus", {"H100", "H100"}}}}};
  EXPECT_THAT(differences(facts, facts, "node 1"), IsEmpty());
}

TEST(Agreement, names_each_difference_and_both_values) {
  const json::Value head = {{"version", "1"}, {"flags", {{"tp_size", 4}, {"dtype", "float32"}}}};
  const json::Value other = {{"version", "2"}, {"flags", {{"tp_size", 4}, {"dtype", "auto"}}}};
  EXPECT_THAT(differences(head, other, "node 3"),
              ElementsAre("version: node 0 has \"1\", node 3 has \"2\"",
                          "dtype: node 0 has \"float32\", node 3 has \"auto\""));
}

TEST(Agreement, names_what_only_one_has) {
  EXPECT_THAT(
      differences({{"a", 1}}, {{"b", 2}}, "node 1"),
      ElementsAre("a: node 0 has 1, node 1 has nothing", "b: node 0 has nothing, node 1 has 2"));
}

TEST(Agreement, is_not_reached_with_what_is_no_object) {
  EXPECT_THAT(differences({{"a", 1}}, json::Value::array({1}), "node 1"),
              ElementsAre("facts: node 0 has {\"a\":1}, node 1 has [1]"));
}

}  // namespace
}  // namespace fathom::nodes
