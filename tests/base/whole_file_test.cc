// Whole files: what is no file is refused at once, what cannot be written whole leaves nothing.

#include "base/whole_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/scratch_directory.h"

namespace fathom {
namespace {

constexpr int64_t kMostBytes = 1 << 20;

std::string why_not(const std::string& path) {
  const Result<std::string> read = read_whole_file(path, kMostBytes);
  return read ? "read " + std::to_string(read->size()) : read.error().message;
}

TEST(WholeFile, reads_regular_files_through_links) {
  const ScratchDirectory folder;
  std::string bytes(300'000, 'x');
  bytes[7] = '\0';
  std::ofstream(folder / "file", std::ios::binary) << bytes;
  std::filesystem::create_symlink(folder / "file", folder / "link");
  EXPECT_EQ(read_whole_file(folder / "link", kMostBytes).value(), bytes);
  EXPECT_TRUE(check_regular_file(folder / "link"));
  std::ofstream(folder / "empty") << "";
  EXPECT_EQ(why_not(folder / "empty"), "read 0");
}

TEST(WholeFile, refuses_what_is_no_regular_file_and_does_not_wait) {
  const ScratchDirectory folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", folder / "zeros");
  const std::pair<std::string, std::string> cases[] = {
      {folder / "pipe", "must be a regular file, is a pipe"},
      {folder / "zeros", "must be a regular file, is a device"},
      {folder.path(), "must be a regular file, is a directory"},
      {folder / "gone", "cannot be read: No such file or directory"}};
  for (const auto& [path, why] : cases) {
    EXPECT_EQ(why_not(path), path + ": " + why);
    ASSERT_FALSE(check_regular_file(path));
    EXPECT_EQ(check_regular_file(path).error().message, path + ": " + why);
  }
  EXPECT_EQ(read_whole_file(folder / "gone", 1).error().code, ErrorCode::kNotFound);
}

TEST(WholeFile, refuses_more_bytes_than_the_limit) {
  const ScratchDirectory folder;
  std::ofstream(folder / "file") << "12345";
  EXPECT_EQ(read_whole_file(folder / "file", 5).value(), "12345");
  EXPECT_EQ(read_whole_file(folder / "file", 4).error().message,
            folder / "file" + ": has 5 bytes, the limit is 4");
}

int num_entries(const std::string& folder) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder),
                                        std::filesystem::directory_iterator()));
}

TEST(WholeFile, writes_a_file_whole_or_leaves_what_was_there) {
  const ScratchDirectory folder;
  const std::string path = folder / "trace.json";
  ASSERT_FALSE(write_whole_file(path, "first"));
  EXPECT_EQ(read_whole_file(path, kMostBytes).value(), "first");
  // As a full disk does: some of it is written, then no more.
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit little = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &little);
  const std::error_code error = write_whole_file(path, std::string(100'000, 'x'));
  const std::error_code new_file = write_whole_file(folder / "new", std::string(100'000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error, std::errc::file_too_large) << error.message();
  EXPECT_TRUE(new_file);
  EXPECT_EQ(read_whole_file(path, kMostBytes).value(), "first");
  EXPECT_EQ(num_entries(folder.path()), 1);
  ASSERT_FALSE(write_whole_file(path, "second"));
  EXPECT_EQ(read_whole_file(path, kMostBytes).value(), "second");
  EXPECT_EQ(write_whole_file(folder / "gone/file", "x"), std::errc::no_such_file_or_directory);
}

}  // namespace
}  // namespace fathom
