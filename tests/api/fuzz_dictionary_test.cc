// The dictionary of the fuzzer of bodies has every field that a body may hold.

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "tests/api/field_places.h"
#include "tests/source_tree.h"

namespace fathom::api::tests {
namespace {

// As they stand there: "\"prompt\"".
std::set<std::string> entries_of(const std::string& path) {
  std::ifstream file(path);
  std::set<std::string> entries;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with('"')) entries.insert(line);
  return entries;
}

TEST(FuzzDictionary, has_every_field_that_is_honoured) {
  const std::set<std::string> entries = entries_of(source_path("tests/fuzz/chat_request.dict"));
  std::string missing;
  for (const FieldPlace& place : field_places()) {
    for (const FieldRule& rule : place.table().rules()) {
      const std::string entry = R"("\")" + std::string(rule.name) + R"(\"")";
      if (rule.use == FieldUse::kHonoured && !entries.contains(entry)) missing += entry + '\n';
    }
  }
  EXPECT_EQ(missing, "") << "tests/fuzz/chat_request.dict lacks them";
}

}  // namespace
}  // namespace fathom::api::tests
