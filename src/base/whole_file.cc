#include "base/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace fathom {
namespace {

std::error_code last_error() { return {errno, std::generic_category()}; }

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Error unreadable(const std::string& path, const std::error_code& why) {
  const bool is_missing = why == std::errc::no_such_file_or_directory;
  return {is_missing ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
          path + ": cannot be read: " + why.message()};
}

Status check_mode(const std::string& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return {};
  return invalid_argument(path + ": must be a regular file, is " + kind_of(status.st_mode));
}

// Closes at the end of its scope, unless it was closed to hear of errors.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

std::error_code write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t num = ::write(descriptor, bytes.data(), bytes.size());
    if (num < 0 && errno == EINTR) continue;
    if (num < 0) return last_error();
    bytes.remove_prefix(static_cast<size_t>(num));
  }
  // Some file systems find out only now that there is no room.
  return ::fsync(descriptor) == 0 ? std::error_code() : last_error();
}

std::error_code write_new_file(const std::string& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.number() < 0) return last_error();
  if (const std::error_code error = write_all(file.number(), bytes)) return error;
  return file.close() ? std::error_code() : last_error();
}

}  // namespace

Status check_regular_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return unreadable(path, last_error());
  return check_mode(path, status);
}

Result<std::string> read_whole_file(const std::string& path, int64_t max_bytes) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not hang. It has no effect on regular files.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0)
    return unreadable(path, last_error());
  if (const Status checked = check_mode(path, status); !checked) return checked.error();
  if (status.st_size > max_bytes)
    return invalid_argument(path + ": has " + std::to_string(status.st_size) +
                            " bytes, the limit is " + std::to_string(max_bytes));
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t num_read = 0;
  while (num_read < bytes.size()) {
    const ssize_t num = ::read(file.number(), bytes.data() + num_read, bytes.size() - num_read);
    if (num < 0 && errno == EINTR) continue;
    if (num < 0) return unreadable(path, last_error());
    if (num == 0) break;  // it has become shorter
    num_read += static_cast<size_t>(num);
  }
  bytes.resize(num_read);
  return bytes;
}

std::error_code write_whole_file(const std::string& path, std::string_view bytes) {
  static std::atomic<int> num_written{0};
  const std::string partial =
      path + "." + std::to_string(::getpid()) + "-" + std::to_string(num_written++) + ".partial";
  std::error_code error = write_new_file(partial, bytes);
  if (!error && std::rename(partial.c_str(), path.c_str()) != 0) error = last_error();
  if (error && error != std::errc::file_exists) ::unlink(partial.c_str());
  return error;
}

}  // namespace fathom
