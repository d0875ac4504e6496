// docs/api.md against the code: every field that the parsers are tested with is described, every field that
// a table describes is tested, and the limits are those of RequestLimits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "api/served_model.h"
#include "tests/api/parameter_cases.h"
#include "tests/source_tree.h"

namespace fathom::api::tests {
namespace {

std::string api_doc() {
  std::ifstream file(source_path("docs/api.md"));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// "messages[0].content" -> content
std::string last_name(const std::string& field) {
  const size_t dot = field.rfind('.');
  return dot == std::string::npos ? field : field.substr(dot + 1);
}

std::set<std::string> tested_fields() {
  std::set<std::string> fields;
  for (const ParameterCase& c : field_cases({.vocab_size = 2048, .max_context_tokens = 1024})) {
    fields.insert(last_name(c.field));
  }
  fields.erase("an_unknown_field");
  fields.erase("another_unknown_field");
  return fields;
}

// What stands in backticks in a line.
std::vector<std::string> quoted_names(const std::string& line) {
  std::vector<std::string> names;
  for (size_t begin = line.find('`'); begin != std::string::npos;) {
    const size_t end = line.find('`', begin + 1);
    if (end == std::string::npos) break;
    names.push_back(line.substr(begin + 1, end - begin - 1));
    begin = line.find('`', end + 1);
  }
  return names;
}

// The first cells of all tables whose head begins with "field".
std::vector<std::string> described_fields(const std::string& doc) {
  std::vector<std::string> names;
  std::istringstream lines(doc);
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('|')) in_table = false;
    if (line.starts_with("| field")) in_table = true;
    if (!in_table) continue;
    for (std::string& name : quoted_names(line.substr(0, line.find('|', 1)))) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

// The row whose first cell holds `field`.
std::string row_of(const std::string& doc, const std::string& field) {
  std::istringstream lines(doc);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> names = line.starts_with("| `")
                                               ? quoted_names(line.substr(0, line.find('|', 1)))
                                               : std::vector<std::string>{};
    if (std::find(names.begin(), names.end(), field) != names.end()) return line;
  }
  return "";
}

TEST(ApiDoc, describes_every_field) {
  const std::string doc = api_doc();
  ASSERT_FALSE(doc.empty());
  for (const std::string& field : tested_fields()) {
    EXPECT_NE(doc.find("`" + field + "`"), std::string::npos) << field;
  }
}

TEST(ApiDoc, describes_no_field_that_is_not_read) {
  const std::set<std::string> tested = tested_fields();
  const std::vector<std::string> described = described_fields(api_doc());
  EXPECT_GE(described.size(), 60U);
  for (const std::string& field : described) {
    // Ignored, and said to be.
    if (field == "user") continue;
    EXPECT_TRUE(tested.contains(field)) << field;
  }
}

TEST(ApiDoc, states_the_limits_of_the_code) {
  const api::RequestLimits limits;
  EXPECT_EQ(limits.max_n, 128);
  EXPECT_EQ(limits.max_sequences, 1024);
  EXPECT_EQ(limits.max_messages, 16'384);
  EXPECT_EQ(limits.max_grammar_bytes, 64 << 10);
  EXPECT_EQ(limits.max_tokenize_bytes, 8 << 20);
  EXPECT_EQ(limits.max_detokenize_ids, 1 << 20);
  const std::string doc = api_doc();
  const auto says = [&](const std::string& field, const std::string& text) {
    EXPECT_THAT(row_of(doc, field), testing::HasSubstr(text)) << field;
  };
  says("n", std::to_string(limits.max_n));
  says("stop", std::to_string(limits.max_stop_strings));
  says("stop", std::to_string(limits.max_stop_bytes));
  says("stop_token_ids", std::to_string(limits.max_stop_token_ids));
  says("top_logprobs", std::to_string(limits.max_top_logprobs));
  says("tools", std::to_string(limits.max_tools));
  says("rid", std::to_string(limits.max_name_bytes));
  says("cache_salt", std::to_string(limits.max_salt_bytes));
  says("messages", "16,384");
  says("logit_bias", "1,024");
  says("regex", "64 KiB");
  says("prompt", "1,024");
}

}  // namespace
}  // namespace fathom::api::tests
