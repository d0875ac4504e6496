#include "weights/compare.h"

#include <algorithm>
#include <vector>

#include "weights/file.h"

namespace fathom::weights {
namespace {

constexpr int64_t kComparedBytes = int64_t{4} << 20;

}  // namespace

Result<bool> same_tensor(const TensorInfo& a, const TensorInfo& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.num_bytes != b.num_bytes) return false;
  const Result<File> file_a = File::open(a.file), file_b = File::open(b.file);
  if (!file_a) return file_a.error();
  if (!file_b) return file_b.error();
  const int64_t piece_bytes = std::min(kComparedBytes, a.num_bytes);
  std::vector<char> bytes_a(static_cast<size_t>(piece_bytes));
  std::vector<char> bytes_b(static_cast<size_t>(piece_bytes));
  for (int64_t begin = 0; begin < a.num_bytes; begin += piece_bytes) {
    const int64_t num_bytes = std::min(piece_bytes, a.num_bytes - begin);
    Status read = file_a->read_at(a.offset + begin, bytes_a.data(), num_bytes);
    if (read) read = file_b->read_at(b.offset + begin, bytes_b.data(), num_bytes);
    if (!read) return read.error();
    if (!std::equal(bytes_a.begin(), bytes_a.begin() + num_bytes, bytes_b.begin())) return false;
  }
  return true;
}

}  // namespace fathom::weights
