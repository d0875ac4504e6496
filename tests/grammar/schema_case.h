#pragma once
// Tables of schemas with texts that fit them and texts that do not.
//
//   for (const SchemaCase& one : cases) expect_fit(one);

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {

struct SchemaCase {
  std::string schema;
  std::vector<std::string> fitting, others;
};

inline void expect_fit(const SchemaCase& one) {
  ASSERT_EQ(refusal(one.schema), "") << one.schema;
  for (const std::string& text : one.fitting)
    EXPECT_TRUE(accepts(one.schema, text)) << one.schema << " " << text;
  for (const std::string& text : one.others)
    EXPECT_FALSE(accepts(one.schema, text)) << one.schema << " " << text;
}

}  // namespace fathom::grammar::tests
