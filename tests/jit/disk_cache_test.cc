// The cache of compiled kernels: what is found is what was stored, whatever happens to the files and whoever else
// writes there; and a directory that others can write to is not used.

#include "jit/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/failpoint.h"
#include "base/whole_file.h"
#include "tests/scratch_directory.h"

namespace fathom::jit {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = 1 << 20;

DiskCache open_cache(const std::string& directory, int64_t max_bytes = kMostBytes) {
  return DiskCache::open(directory, max_bytes).value();
}

std::string why_not(const std::string& directory) {
  const Result<DiskCache> cache = DiskCache::open(directory, kMostBytes);
  return cache ? "" : cache.error().message;
}

std::string file_of(const ScratchDirectory& folder, const std::string& key) {
  return folder / "jit/" + key + ".cubin";
}

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(DiskCache, keeps_what_was_stored_in_a_directory_of_the_user_alone) {
  const ScratchDirectory folder;
  const std::string directory = folder / "home/user/jit";
  const std::string bytes = std::string("a\0b", 3) + std::string(10'000, 'x');
  EXPECT_FALSE(open_cache(directory).find("k"));
  EXPECT_TRUE(open_cache(directory).store("k", bytes));
  EXPECT_EQ(open_cache(directory).find("k"), bytes);
  EXPECT_FALSE(open_cache(directory).find("other"));
  struct stat status {};
  ASSERT_EQ(::stat(directory.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(DiskCache, takes_a_file_that_was_cut_or_changed_for_none) {
  const ScratchDirectory folder;
  const DiskCache cache = open_cache(folder / "jit");
  ASSERT_TRUE(cache.store("k", "some code"));
  const std::string whole = read_whole_file(file_of(folder, "k"), kMostBytes).value();
  for (size_t size = 0; size < whole.size(); ++size) {
    overwrite(file_of(folder, "k"), whole.substr(0, size));
    EXPECT_FALSE(cache.find("k")) << size << " bytes of " << whole.size();
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    overwrite(file_of(folder, "k"), changed);
    EXPECT_FALSE(cache.find("k")) << "byte " << at;
  }
  ASSERT_TRUE(cache.store("k", "some code"));
  EXPECT_EQ(cache.find("k"), "some code");
}

TEST(DiskCache, refuses_a_directory_of_others) {
  const ScratchDirectory folder;
  const std::string directory = folder / "jit";
  fs::create_directory(directory);
  for (const mode_t mode : {0770U, 0707U, 0777U}) {
    ASSERT_EQ(::chmod(directory.c_str(), mode), 0);
    EXPECT_EQ(why_not(directory), directory + ": others may write to it, must be of mode 0700");
  }
  ASSERT_EQ(::chmod(directory.c_str(), 0700), 0);
  EXPECT_EQ(why_not(directory), "");
  fs::create_directory_symlink(directory, folder / "link");
  EXPECT_EQ(why_not(folder / "link"), folder / "link: must be a directory");
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  ASSERT_EQ(::chown(directory.c_str(), 12345, 0), 0);
  EXPECT_EQ(why_not(directory), directory + ": belongs to user 12345, must belong to 0");
}

TEST(DiskCache, says_why_a_directory_cannot_be_made) {
  const ScratchDirectory folder;
  overwrite(folder / "file", "");
  EXPECT_EQ(why_not(folder / "file/jit"), folder / "file: cannot be made: Not a directory");
  EXPECT_EQ(why_not(folder / "file"), folder / "file: must be a directory");
  EXPECT_EQ(why_not(""), "neither XDG_CACHE_HOME nor HOME names an absolute path");
}

TEST(DiskCache, leaves_nothing_of_a_write_that_fails) {
  const ScratchDirectory folder;
  const DiskCache cache = open_cache(folder / "jit");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status stored = cache.store("k", std::string(5000, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().message, file_of(folder, "k") + ": cannot be written: File too large");
  EXPECT_TRUE(fs::is_empty(folder / "jit"));
  arm_failpoint("jit.store", 1);
  const Status full = cache.store("k", "code");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().message,
            file_of(folder, "k") + ": cannot be written: No space left on device");
  fs::remove_all(folder / "jit");
  EXPECT_FALSE(cache.store("k", "code"));
  EXPECT_FALSE(cache.find("k"));
}

TEST(DiskCache, removes_what_was_not_used_for_the_longest_time) {
  const ScratchDirectory folder;
  const DiskCache cache = open_cache(folder / "jit", 3500);
  const std::string bytes(1000, 'x');
  const auto now = fs::file_time_type::clock::now();
  const auto set_age = [&](const std::string& key, int minutes) {
    fs::last_write_time(file_of(folder, key), now - std::chrono::minutes(minutes));
  };
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(cache.store(key, bytes));
  set_age("a", 30);
  set_age("b", 20);
  set_age("c", 10);
  ASSERT_TRUE(cache.find("a"));  // used now
  ASSERT_TRUE(cache.store("d", bytes));
  EXPECT_TRUE(cache.find("a"));
  EXPECT_FALSE(cache.find("b"));
  EXPECT_TRUE(cache.find("c"));
  EXPECT_TRUE(cache.find("d"));
  const Status larger = cache.store("e", std::string(4000, 'x'));
  ASSERT_FALSE(larger);
  EXPECT_TRUE(cache.find("d"));
}

TEST(DiskCache, removes_what_a_process_left_half_written) {
  const ScratchDirectory folder;
  const DiskCache cache = open_cache(folder / "jit");
  for (const char* name : {"jit/old.cubin.1-0.partial", "jit/new.cubin.2-0.partial"})
    overwrite(folder / name, "half");
  fs::last_write_time(folder / "jit/old.cubin.1-0.partial",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(cache.store("k", "code"));
  EXPECT_FALSE(fs::exists(folder / "jit/old.cubin.1-0.partial"));
  EXPECT_TRUE(fs::exists(folder / "jit/new.cubin.2-0.partial"));
}

// Of a key's bytes; those of one key are always the same.
std::string code_of(int key) {
  return std::string(static_cast<size_t>(500 + 37 * key), static_cast<char>('a' + key));
}

// Whether all that is found is whole, while others write, read and remove.
bool use_cache(const std::string& directory) {
  const DiskCache cache = open_cache(directory, 4000);  // not all of them
  for (int round = 0; round < 40; ++round) {
    for (int key = 0; key < 8; ++key) {
      const std::string name = "k" + std::to_string(key);
      const std::optional<std::string> found = cache.find(name);
      if (found && *found != code_of(key)) return false;
      if (!found && !cache.store(name, code_of(key))) return false;
    }
  }
  return true;
}

TEST(DiskCache, is_shared_by_processes) {
  const ScratchDirectory folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(use_cache(folder / "jit") ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  int64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(folder / "jit")) {
    EXPECT_EQ(file.path().extension(), ".cubin");
    bytes += static_cast<int64_t>(file.file_size());
  }
  EXPECT_LE(bytes, 4000);
}

TEST(DiskCache, lies_where_the_user_keeps_such_files) {
  const auto with = [](const char* cache, const char* home) {
    ::setenv("XDG_CACHE_HOME", cache, 1);
    ::setenv("HOME", home, 1);
    return default_directory();
  };
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  EXPECT_EQ(with("/c", "/home/u"), "/c/fathom/jit");
  EXPECT_EQ(with("", "/home/u"), "/home/u/.cache/fathom/jit");
  EXPECT_EQ(with("relative", "/home/u"), "/home/u/.cache/fathom/jit");
  EXPECT_EQ(with("", ""), "");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace fathom::jit
