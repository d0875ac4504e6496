#include "jit/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/failpoint.h"
#include "base/whole_file.h"
#include "jit/source.h"

namespace fathom::jit {
namespace {

namespace fs = std::filesystem;

// A file: the mark, the digest of the bytes, a line's end, the bytes.
constexpr std::string_view kMark = "fathom kernel 1 ";
constexpr size_t kHeadBytes = kMark.size() + 64 + 1;
constexpr std::string_view kSuffix = ".cubin", kPartialSuffix = ".partial";
// Of a process that ended while it wrote.
constexpr std::chrono::hours kForgottenAfter{1};

Error error_of(const std::string& path, const std::string& what, int number) {
  return {ErrorCode::kInvalidArgument,
          path + ": " + what + ": " + std::generic_category().message(number)};
}

Status make_directory(const std::string& directory) {
  std::error_code error;
  const fs::path parent = fs::path(directory).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) return error_of(parent.string(), "cannot be made", error.value());
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return error_of(directory, "cannot be made", errno);
  return {};
}

Status check_directory(const std::string& directory) {
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0)
    return error_of(directory, "cannot be looked at", errno);
  if (!S_ISDIR(status.st_mode)) return invalid_argument(directory + ": must be a directory");
  if (status.st_uid != ::geteuid())
    return invalid_argument(directory + ": belongs to user " + std::to_string(status.st_uid) +
                            ", must belong to " + std::to_string(::geteuid()));
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return invalid_argument(directory + ": others may write to it, must be of mode 0700");
  return {};
}

struct CachedFile {
  fs::path path;
  int64_t bytes = 0;
  fs::file_time_type used;
};

}  // namespace

Result<DiskCache> DiskCache::open(const std::string& directory, int64_t max_bytes) {
  if (directory.empty())
    return invalid_argument("neither XDG_CACHE_HOME nor HOME names an absolute path");
  if (const Status made = make_directory(directory); !made) return made.error();
  if (const Status checked = check_directory(directory); !checked) return checked.error();
  return DiskCache(directory, max_bytes);
}

std::string DiskCache::path_of(const std::string& key) const {
  return directory_ + "/" + key + std::string(kSuffix);
}

std::optional<std::string> DiskCache::find(const std::string& key) const {
  const std::string path = path_of(key);
  Result<std::string> file = read_whole_file(path, max_bytes_ + static_cast<int64_t>(kHeadBytes));
  if (!file || file->size() < kHeadBytes || !file->starts_with(kMark)) return {};
  std::string bytes = file->substr(kHeadBytes);
  if (file->substr(kMark.size(), kHeadBytes - kMark.size()) != sha256_hex(bytes) + "\n") return {};
  // The time of the last use. Where it cannot be written, files go in the order in which they came.
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return bytes;
}

Status DiskCache::store(const std::string& key, std::string_view bytes) const {
  const std::string path = path_of(key);
  std::string file = std::string(kMark) + sha256_hex(bytes) + "\n";
  file += bytes;
  if (static_cast<int64_t>(file.size()) > max_bytes_)
    return invalid_argument(path + ": would have " + std::to_string(file.size()) +
                            " bytes, the bound of all is " + std::to_string(max_bytes_));
  std::error_code error = failpoint("jit.store")
                              ? std::make_error_code(std::errc::no_space_on_device)
                              : write_whole_file(path, file);
  if (error) return error_of(path, "cannot be written", error.value());
  remove_oldest();
  return {};
}

// Another process may remove the same ones: what is gone already is no error.
void DiskCache::remove_oldest() const {
  std::vector<CachedFile> files;
  int64_t bytes = 0;
  std::error_code error;
  const auto forgotten = fs::file_time_type::clock::now() - kForgottenAfter;
  for (fs::directory_iterator at(directory_, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const std::string extension = at->path().extension().string();
    const CachedFile file{.path = at->path(),
                          .bytes = static_cast<int64_t>(at->file_size(gone)),
                          .used = at->last_write_time(gone)};
    if (gone) continue;
    if (extension == kPartialSuffix && file.used < forgotten) fs::remove(file.path, gone);
    if (extension != kSuffix) continue;
    bytes += file.bytes;
    files.push_back(file);
  }
  std::sort(files.begin(), files.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.used < b.used; });
  for (const CachedFile& file : files) {
    if (bytes <= max_bytes_) return;
    std::error_code gone;
    fs::remove(file.path, gone);
    bytes -= file.bytes;
  }
}

std::string default_directory() {
  const auto absolute = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  if (const std::string cache = absolute("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/fathom/jit";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.cache/fathom/jit";
}

}  // namespace fathom::jit
