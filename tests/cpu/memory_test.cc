#include "cpu/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "cpu/fast/fast_backend.h"
#include "cpu/reference/reference_backend.h"

#include "tests/scratch_directory.h"

namespace fathom::cpu {
namespace {

namespace fs = std::filesystem;

// A proc and a cgroup tree of our own making.
class FreeMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal: 4000 kB\nMemFree: 10 kB\nMemAvailable:    2000 kB\n");
  }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int64_t free_bytes() const {
    return free_memory_bytes((root_ / "proc").string(), (root_ / "cgroup").string());
  }

  ScratchDirectory scratch_;
  fs::path root_ = scratch_.path();
};

TEST_F(FreeMemoryTest, is_what_the_machine_has_available_without_a_cgroup) {
  EXPECT_EQ(free_bytes(), 2000 * 1024);
}

TEST_F(FreeMemoryTest, is_limited_by_the_cgroup_whose_idle_page_cache_counts_as_free) {
  write("proc/self/cgroup", "0::/pod/app\n");
  write("cgroup/pod/app/memory.max", "1000000\n");
  write("cgroup/pod/app/memory.current", "900000\n");
  EXPECT_EQ(free_bytes(), 100000);
  write("cgroup/pod/app/memory.stat", "anon 500000\ninactive_file 300000\nactive_file 7\n");
  EXPECT_EQ(free_bytes(), 400000);
}

TEST_F(FreeMemoryTest, is_limited_by_the_tightest_ancestor) {
  write("proc/self/cgroup", "0::/pod/app\n");
  write("cgroup/pod/app/memory.max", "max\n");
  write("cgroup/pod/app/memory.current", "900000\n");
  write("cgroup/pod/memory.max", "950000\n");
  write("cgroup/pod/memory.current", "920000\n");
  EXPECT_EQ(free_bytes(), 30000);
}

TEST_F(FreeMemoryTest, understands_the_first_version_of_cgroups) {
  write("proc/self/cgroup", "11:cpu,cpuacct:/x\n4:memory:/\n");
  write("cgroup/memory/memory.limit_in_bytes", "700000\n");
  write("cgroup/memory/memory.usage_in_bytes", "800000\n");
  EXPECT_EQ(free_bytes(), 0);
}

TEST_F(FreeMemoryTest, of_this_machine_is_positive) { EXPECT_GT(free_memory_bytes(), 0); }

TEST(TouchMemory, writes_to_every_page_and_nothing_beyond) {
  constexpr int64_t kPage = 4096;
  const std::unique_ptr<ops::Stream> streams[] = {reference_backend().make_stream({}),
                                                  fast_backend().make_stream({.num_threads = 3})};
  for (const std::unique_ptr<ops::Stream>& stream : streams) {
    std::vector<char> memory(10'000'001, 7);
    stream->touch(memory.data() + 1, static_cast<int64_t>(memory.size()) - 2);
    EXPECT_EQ(memory.front(), 7);
    EXPECT_EQ(memory.back(), 7);
    int64_t untouched = 0;  // in a row
    for (const char byte : memory) {
      untouched = byte == 7 ? untouched + 1 : 0;
      ASSERT_LE(untouched, kPage);
    }
    stream->touch(memory.data(), 0);
    EXPECT_EQ(memory.front(), 7);
  }
}

}  // namespace
}  // namespace fathom::cpu
