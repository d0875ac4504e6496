// docs/reference against the code: the limits that it states are those of RequestLimits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "api/served_model.h"
#include "tests/api/api_doc_text.h"

namespace fathom::api::tests {
namespace {

// The row whose first cell holds `field`.
std::string row_of(const std::string& doc, const std::string& field) {
  std::istringstream lines(doc);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> names = line.starts_with("| `")
                                               ? in_backticks(line.substr(0, line.find('|', 1)))
                                               : std::vector<std::string>{};
    if (std::find(names.begin(), names.end(), field) != names.end()) return line;
  }
  return "";
}

TEST(ApiDoc, states_the_limits_of_the_code) {
  const api::RequestLimits limits;
  EXPECT_EQ(limits.max_n, 128);
  EXPECT_EQ(limits.max_sequences, 1024);
  EXPECT_EQ(limits.max_messages, 16'384);
  EXPECT_EQ(limits.max_grammar_bytes, core::kMaxGrammarBytes);
  EXPECT_EQ(limits.max_tokenize_bytes, 8 << 20);
  EXPECT_EQ(limits.max_detokenize_ids, 1 << 20);
  const std::string doc = api_doc_text();
  const auto says = [&](const std::string& field, const std::string& text) {
    EXPECT_THAT(row_of(doc, field), testing::HasSubstr(text)) << field;
  };
  says("n", std::to_string(limits.max_n));
  says("stop", std::to_string(limits.max_stop_strings));
  says("stop", std::to_string(limits.max_stop_bytes));
  says("stop_token_ids", std::to_string(limits.max_stop_token_ids));
  says("top_logprobs", std::to_string(limits.max_top_logprobs));
  EXPECT_EQ(limits.max_tools, 16'384);
  says("tools", "16,384");
  says("rid", std::to_string(limits.max_name_bytes));
  says("cache_salt", std::to_string(limits.max_salt_bytes));
  says("messages", "16,384");
  says("logit_bias", "1,024");
  says("regex", std::to_string(limits.max_grammar_bytes >> 10) + " KiB");
  says("response_format", std::to_string(limits.max_grammar_bytes >> 10) + " KiB");
  says("prompt", "1,024");
}

}  // namespace
}  // namespace fathom::api::tests
