#include "tests/model/golden.h"

#include <fstream>
#include <iterator>

#include "base/startup_error.h"

namespace fathom::model {

GoldenTensors::GoldenTensors(const std::string& path)
    : tensors_(value_or_throw(weights::read_safetensors_header(path))) {}

const weights::TensorInfo& GoldenTensors::find(const std::string& name) const {
  for (const weights::TensorInfo& info : tensors_) {
    if (info.name == name && info.dtype == tensor::DType::kF32) return info;
  }
  throw StartupError("no f32 tensor " + name);
}

std::vector<float> GoldenTensors::read(const std::string& name) const {
  const weights::TensorInfo& info = find(name);
  std::vector<float> values(static_cast<size_t>(info.num_bytes) / sizeof(float));
  std::ifstream file(info.file, std::ios::binary);
  file.seekg(info.offset);
  file.read(reinterpret_cast<char*>(values.data()), info.num_bytes);
  if (!file) throw StartupError("cannot read " + name + " from " + info.file);
  return values;
}

std::vector<float> GoldenTensors::read_row(const std::string& name, int64_t row) const {
  const std::vector<float> values = read(name);
  const int64_t cols = find(name).shape.at(1);
  return {values.begin() + row * cols, values.begin() + (row + 1) * cols};
}

json::Value read_json(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return value_or_throw(json::parse(text));
}

}  // namespace fathom::model
