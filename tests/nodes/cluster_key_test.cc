#include "nodes/cluster_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/startup_error.h"
#include "base/whole_file.h"
#include "tests/scratch_directory.h"

namespace fathom::nodes {
namespace {

using ::testing::HasSubstr;

class ClusterKey : public ::testing::Test {
 protected:
  std::string file_of(const std::string& text) {
    const std::string path = scratch_ / "key";
    EXPECT_FALSE(write_whole_file(path, text));
    return path;
  }
  static std::string complaint(const std::string& path) {
    try {
      read_cluster_key(path);
    } catch (const StartupError& error) {
      return error.what();
    }
    return "";
  }
  ScratchDirectory scratch_;
};

TEST_F(ClusterKey, is_the_file_without_the_end_of_its_line) {
  const std::string key(64, 'k');
  EXPECT_EQ(read_cluster_key(file_of(key + " \r\n")), key);
}

TEST_F(ClusterKey, is_refused_where_it_is_too_short_or_not_there) {
  EXPECT_THAT(complaint(file_of("secret\n")),
              HasSubstr("a key has 32 to 4096 bytes, this one has 6"));
  EXPECT_THAT(complaint(file_of("\n")), HasSubstr("this one has 0"));
  EXPECT_THAT(complaint("/nowhere/key"), HasSubstr("--cluster-key-file /nowhere/key"));
}

}  // namespace
}  // namespace fathom::nodes
