// docs/reference against the tables of fields: every honoured field has its row, no row is about anything else, and
// the lists of refused fields and of those without effect are the tables' own.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "api/tables/endpoint_fields.h"
#include "base/json.h"
#include "tests/api/api_doc_text.h"
#include "tests/api/field_places.h"

namespace fathom::api::tests {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// "`typical_p` (1)": the name, and the values that ask for nothing.
std::string name_and_neutral(const FieldRule& rule) {
  std::string text = "`" + std::string(rule.name) + "`";
  if (rule.use != FieldUse::kRefused || rule.json.empty()) return text;
  std::vector<std::string> values;
  const json::Value neutral = json::parse(rule.json).value();
  for (const json::Value& value : neutral) values.push_back(json::dump(value));
  return text + " (" + joined(values) + ")";
}

// Where a rule holds. All bodies and settings of generating endpoints: "everywhere".
std::string where_of(const std::vector<std::string>& tables) {
  const std::vector<std::string> generating = {"chat", "completions", "/generate",
                                               "sampling_params"};
  return tables == generating ? "everywhere" : joined(tables);
}

// The rows of a use, in the order of the tables: | fields | where | why |, those of one reason and place together.
std::string doc_rows(FieldUse use) {
  // For every name with its reason: the tables.
  std::vector<std::pair<std::string, std::string>> order;  // name, reason
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> tables;
  for (const FieldPlace& place : field_places()) {
    for (const FieldRule& rule : place.table().rules()) {
      if (rule.use != use) continue;
      const std::pair key(name_and_neutral(rule), std::string(rule.about));
      if (!tables.contains(key)) order.push_back(key);
      tables[key].emplace_back(place.table().name());
    }
  }
  std::vector<std::pair<std::string, std::string>> row_order;  // where, reason
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> rows;
  for (const auto& key : order) {
    const std::pair row(where_of(tables[key]), key.second);
    if (!rows.contains(row)) row_order.push_back(row);
    rows[row].push_back(key.first);
  }
  std::string text;
  for (const auto& row : row_order) {
    text += "| " + joined(rows[row]) + " | " + row.first + " | " + row.second + " |\n";
  }
  return text;
}

// The first cells of all tables whose head begins with "field".
std::set<std::string> described_fields(const std::string& doc) {
  std::set<std::string> names;
  std::istringstream lines(doc);
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('|')) in_table = false;
    if (line.starts_with("| field")) in_table = true;
    if (!in_table) continue;
    for (std::string& name : in_backticks(line.substr(0, line.find('|', 1)))) {
      names.insert(std::move(name));
    }
  }
  return names;
}

std::set<std::string> honoured_names() {
  std::set<std::string> names;
  for (const FieldPlace& place : field_places()) {
    for (const FieldRule& rule : place.table().rules()) {
      if (rule.use == FieldUse::kHonoured) names.emplace(rule.name);
    }
  }
  return names;
}

TEST(FieldDoc, describes_every_honoured_field) {
  const std::string doc = api_doc_text();
  ASSERT_FALSE(doc.empty());
  for (const std::string& name : honoured_names()) {
    EXPECT_NE(doc.find("`" + name + "`"), std::string::npos) << name;
  }
}

TEST(FieldDoc, describes_no_field_that_is_not_honoured) {
  const std::set<std::string> honoured = honoured_names();
  const std::set<std::string> described = described_fields(api_doc_text());
  EXPECT_GE(described.size(), 50U);
  for (const std::string& name : described) EXPECT_TRUE(honoured.contains(name)) << name;
}

TEST(FieldDoc, lists_what_is_refused_as_the_tables_do) {
  const std::string rows =
      "| refused | where | why |\n|---|---|---|\n" + doc_rows(FieldUse::kRefused) + "\n";
  EXPECT_NE(reference_page("refused").find(rows), std::string::npos)
      << "docs/reference/refused.md must have\n"
      << rows;
}

TEST(FieldDoc, lists_what_is_without_effect_as_the_tables_do) {
  const std::string rows = "| accepted | where | what it is elsewhere |\n|---|---|---|\n" +
                           doc_rows(FieldUse::kWithoutEffect) + "\n";
  EXPECT_NE(reference_page("refused").find(rows), std::string::npos)
      << "docs/reference/refused.md must have\n"
      << rows;
}

}  // namespace
}  // namespace fathom::api::tests
