#include "config/config_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/lfs_pointer.h"

namespace fathom::config {

Result<std::string> read_config_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // A folder on the way that may not be searched, or a link to itself.
  if (status.type() == std::filesystem::file_type::none)
    return invalid_argument(path + ": cannot be read: " + error.message());
  if (!std::filesystem::exists(status)) {
    return Error{ErrorCode::kNotFound, path + ": no such file"};
  }
  if (!std::filesystem::is_regular_file(status)) {
    return invalid_argument(path + ": must be a regular file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return invalid_argument(path + ": cannot be read: " + std::strerror(errno));
  std::string text(static_cast<size_t>(kMaxConfigBytes) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) return invalid_argument(path + ": can't be read");
  if (static_cast<int64_t>(text.size()) > kMaxConfigBytes) {
    return invalid_argument(path + ": longer than " + std::to_string(kMaxConfigBytes) +
                            " bytes, the limit for a configuration");
  }
  if (is_lfs_pointer(text)) return lfs_pointer_error(path);
  return text;
}

}  // namespace fathom::config
