#pragma once
// The safetensors format, read strictly: 8 bytes little-endian header length, a JSON header, then data that
// the tensors tile exactly. Every size is overflow-checked before it is used; nothing is memory-mapped, so
// a file that shrinks is a clear error and never a signal.
//
//   Result<std::vector<TensorInfo>> tensors = read_safetensors_header("model.safetensors");
//   // error: model.safetensors: tensor "a": data_offsets [0, 12] hold 12 bytes, f32[4] needs 16
//
// Refused beyond the letter of the format, because no checkpoint needs them: dimensions of 0, more than 8
// dimensions, dtypes the engine has no use for, unknown keys. Thread-safe (no state). Format: safetensors
// documentation, "Format".

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace fathom::weights {

class File;

// One tensor of a file. Its offset and size have been checked against the file.
struct TensorInfo {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  std::string file;    // path
  int64_t offset = 0;  // of the first byte, from the start of the file
  int64_t num_bytes = 0;
};
// For errors: "bf16[4, 576]".
std::string describe(const TensorInfo& tensor);

// Checks a header (the JSON text alone) against the size of the data section that follows it. `file` is
// for messages and TensorInfo::file; data_start is added to offsets. The part that fuzzing drives.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         int64_t data_start, int64_t data_bytes,
                                                         const std::string& file);

// Opens the file, reads and checks its header. Tensors come in file order.
Result<std::vector<TensorInfo>> read_safetensors_header(const std::string& path);
Result<std::vector<TensorInfo>> read_safetensors_header(const File& file);

}  // namespace fathom::weights
