// With FATHOM_KERNELS_FILE in the environment, the names of all kernels that the tests of this program launched go to
// that file, one a line: for tools/check_kernels.py --launched.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "base/json.h"
#include "base/trace.h"
#include "cuda/profile/profile.h"

namespace fathom::ops_test {
namespace {

class LaunchedKernels : public testing::Environment {
 public:
  explicit LaunchedKernels(std::string path) : path_(std::move(path)) {}

  void SetUp() override {
    cuda::join_traces();
    const Result<std::string> missing = trace::start({});
    ASSERT_TRUE(missing) << missing.error().message;
    ASSERT_EQ(*missing, "");
  }

  void TearDown() override {
    const json::Value recorded = json::parse(trace::stop()).value();
    std::set<std::string> names;
    for (const json::Value& event : recorded.at("traceEvents"))
      if (event.value("cat", "") == "kernel") names.insert(event.at("name"));
    std::ofstream file(path_);
    for (const std::string& name : names) file << name << "\n";
    file.close();
    EXPECT_TRUE(file.good()) << path_;
  }

 private:
  const std::string path_;
};

[[maybe_unused]] const testing::Environment* const launched_kernels = [] {
  const char* const path = std::getenv("FATHOM_KERNELS_FILE");
  return path == nullptr ? nullptr : testing::AddGlobalTestEnvironment(new LaunchedKernels(path));
}();

}  // namespace
}  // namespace fathom::ops_test
