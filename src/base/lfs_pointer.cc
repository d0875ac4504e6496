#include "base/lfs_pointer.h"

#include <filesystem>

namespace fathom {
namespace {

constexpr std::string_view kPrefix = "version https://git-lfs.";
static_assert(kPrefix.size() == kLfsPointerPrefixBytes);

}  // namespace

bool is_lfs_pointer(std::string_view beginning_of_file) {
  return beginning_of_file.starts_with(kPrefix);
}

Error lfs_pointer_error(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  return invalid_argument(path +
                          ": is a Git LFS pointer, the file itself is not here yet: run `git lfs "
                          "pull` in " +
                          folder);
}

}  // namespace fathom
