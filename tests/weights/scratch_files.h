#pragma once
// Files for the loader's tests: safetensors files written from scratch (not through the reader's code),
// well-formed or with any header.
//
//   ScratchDirectory directory;
//   write_file(directory / "model.safetensors", safetensors_file({{"a", "F32", {2, 2}, bytes}}));

#include <cstdint>
#include <string>
#include <vector>

#include "tests/scratch_directory.h"
#include "weights/loader.h"

namespace fathom::weights {

void write_file(const std::string& path, const std::string& bytes);

struct FileTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// Opens the checkpoint and loads them with two threads.
Status load_from(const std::string& directory, const std::vector<Parameter>& parameters);

// Header length, header and data.
std::string safetensors_file(const std::vector<FileTensor>& tensors);
std::string with_header(const std::string& header, const std::string& data);
std::string header_of(const std::vector<FileTensor>& tensors);
std::string index_of(const std::vector<std::pair<std::string, std::string>>& weight_map);

// The bytes of an array of numbers.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Pseudo-random numbers in (-1, 1), and finite f8 bytes.
std::vector<float> random_floats(int64_t count, uint32_t seed);
std::vector<uint8_t> random_f8(int64_t count, uint32_t seed);
// Positive ones as F32 or BF16; `values` are what the file holds.
FileTensor random_scales(const std::string& name, const std::vector<int64_t>& shape,
                         const std::string& dtype, std::vector<float>& values);

}  // namespace fathom::weights
