#pragma once
// Reference outputs of Hugging Face transformers: golden.json and golden.safetensors beside a checkpoint.
//
//   const GoldenTensors tensors("tests/data/demo/golden.safetensors");
//   const std::vector<float> logits = tensors.read("logits.0");

#include <string>
#include <vector>

#include "base/json.h"
#include "weights/safetensors.h"

namespace fathom::model {

class GoldenTensors {
 public:
  explicit GoldenTensors(const std::string& path);
  // All values of an f32 tensor.
  std::vector<float> read(const std::string& name) const;
  // Row i of an f32 matrix.
  std::vector<float> read_row(const std::string& name, int64_t row) const;

 private:
  const weights::TensorInfo& find(const std::string& name) const;
  std::vector<weights::TensorInfo> tensors_;
};

json::Value read_json(const std::string& path);

}  // namespace fathom::model
