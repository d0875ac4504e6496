// Numbers of schemas: 64-bit integers and doubles, without a digit that is cut.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {
namespace {

bool number_fits(const std::string& schema, const std::string& text) {
  static const TestVocabulary bytes = make_vocabulary(byte_tokens());
  const auto constraint = compiled(json_schema(schema))->new_constraint(bytes.vocabulary);
  for (const char c : text) {
    if (!constraint->accept(static_cast<uint8_t>(c))) return false;
  }
  return constraint->accept(bytes.eos);
}

struct NumberCase {
  std::string schema;
  std::vector<std::string> fitting, others;
};

void expect_all(const std::vector<NumberCase>& cases) {
  for (const NumberCase& one : cases) {
    for (const std::string& text : one.fitting)
      EXPECT_TRUE(number_fits(one.schema, text)) << one.schema << " on " << text;
    for (const std::string& text : one.others)
      EXPECT_FALSE(number_fits(one.schema, text)) << one.schema << " on " << text;
  }
}

TEST(Numbers, integers_have_64_bits) {
  const std::string least = "-9223372036854775808", largest = "9223372036854775807",
                    largest_unsigned = "18446744073709551615";
  expect_all({
      {R"({"type":"integer"})",
       {"0", "-0", "1234567890123456789", least, largest, largest_unsigned},
       {"-9223372036854775809", "18446744073709551616", "01", "1e3"}},
      {R"({"type":"integer","format":"int64"})", {least, largest}, {"9223372036854775808"}},
      {R"({"type":"integer","format":"uint64"})",
       {"0", largest_unsigned},
       {"-1", "18446744073709551616"}},
      {R"({"type":"integer","minimum":0})",
       {"0", largest_unsigned},
       {"-1", "18446744073709551616"}},
      {R"({"type":"integer","exclusiveMinimum":9007199254740992})",
       {"9007199254740993", largest},
       {"9007199254740992"}},
      {R"({"type":"integer","maximum":18446744073709551615,"minimum":18446744073709551614})",
       {largest_unsigned, "18446744073709551614"},
       {"18446744073709551613"}},
      {R"({"type":"integer","maximum":1e19})",
       {"10000000000000000000", least},
       {"10000000000000000001"}},
  });
}

TEST(Numbers, doubles_are_whole) {
  expect_all({
      {R"({"type":"number"})",
       {"0.12345678901234567", "1e100", "1.7976931348623157e308", "-1.7976931348623157E+308",
        "5e-324", "2.2250738585072014e-308", "9.9e307", "123456789012345680000",
        "1" + std::string(307, '0'), "0." + std::string(323, '0') + "5", "12e5", "1e05", "100E-3"},
       {"1.7976931348623158e308", "2e308", "1e309", "1e400", "1" + std::string(308, '0'), ".5",
        "1.", "1e"}},
      {R"({"type":"number","minimum":0})",
       {"0.12345678901234567", "1e100", "5e-324", "0", "12345678901234567890.5"},
       {"-1", "-1e5"}},
      {R"({"type":"number","minimum":0.1,"maximum":12345678901234567000})",
       {"0.12345678901234567", "12345678901234567000", "0.1"},
       {"0.09", "12345678901234567000.1"}},
  });
}

TEST(Numbers, may_have_exponents_within_their_bounds) {
  expect_all({
      {R"({"type":"number","minimum":1})",
       {"1", "1e1", "1.5e300", "9.99E+20", "7e307", "12345678901234567890.5"},
       {"1e0", "1e-1", "0.5", "-1e5", "2e308", "1e309"}},
      {R"({"type":"number","minimum":-250,"exclusiveMaximum":1e6})",
       {"-2e1", "-9.9e0", "9.99e4", "5e-9", "-5E-300", "999999.5"},
       {"-3e2", "-2e2", "1e5", "1e6", "-1e3"}},
      {R"({"type":"number","exclusiveMinimum":0})",
       {"1e-13", "3e7", "0.5"},
       {"0", "1e-300", "0e5"}},
      {R"({"type":"number","maximum":0.001})", {"1e-5", "-1e300", "0.001", "0"}, {"1e-3", "1e0"}},
      {R"({"type":"number","minimum":0.5,"maximum":2})", {"0.5", "2"}, {"1e0", "5e-1", "2e0"}},
      {R"({"type":"number","maximum":1e25})", {"1e18", "99999999999999999999"}, {"1e26"}},
      {R"({"type":"number","maximum":-1e-3})",
       {"-1e0", "-5.5e7", "-0.001"},
       {"1e5", "-1e-5", "-1e-3"}},
      {R"({"type":"integer","minimum":1})", {"1"}, {"1e1"}},
  });
}

TEST(Numbers, multiples_of_large_steps_are_kept) {
  expect_all({
      {R"({"type":"integer","multipleOf":1000})",
       {"0", "1000", "-25000", "18446744073709551000"},
       {"100", "1001", "999", "18446744073709552000"}},
      {R"({"type":"integer","multipleOf":4096})",
       {"0", "4096", "1048576"},
       {"4097", "4000", "2048"}},
      {R"({"type":"integer","multipleOf":86400})",
       {"0", "86400", "-172800", "8640000000"},
       {"86401", "8640", "3600"}},
      {R"({"type":"integer","multipleOf":65536})", {"65536", "196608"}, {"65537", "32768"}},
      {R"({"type":"integer","multipleOf":1000000000})",
       {"7000000000"},
       {"700000000", "7000000001"}},
      {R"({"type":"integer","multipleOf":1000,"minimum":1,"maximum":1000000})",
       {"1000", "1000000"},
       {"0", "1001000"}},
  });
  EXPECT_FALSE(compile(json_schema(R"({"type":"integer","multipleOf":1234567})")));
}

}  // namespace
}  // namespace fathom::grammar::tests
