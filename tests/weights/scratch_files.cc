#include "tests/weights/scratch_files.h"

#include <fstream>
#include <random>

#include "base/check.h"

namespace fathom::weights {

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.flush();
  FATHOM_CHECK(file.good(), path);
}

std::string header_of(const std::vector<FileTensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  size_t offset = 0;
  for (const FileTensor& tensor : tensors) {
    header += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      header += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    header += "],\"data_offsets\":[" + std::to_string(offset) + ",";
    offset += tensor.bytes.size();
    header += std::to_string(offset) + "]}";
  }
  return header + "}";
}

std::string with_header(const std::string& header, const std::string& data) {
  std::string file;
  uint64_t length = header.size();
  for (int i = 0; i < 8; ++i, length >>= 8) file += static_cast<char>(length & 0xff);
  return file + header + data;
}

std::string safetensors_file(const std::vector<FileTensor>& tensors) {
  std::string data;
  for (const FileTensor& tensor : tensors) data += tensor.bytes;
  return with_header(header_of(tensors), data);
}

std::string index_of(const std::vector<std::pair<std::string, std::string>>& weight_map) {
  std::string text = "{\"metadata\":{\"total_size\":0},\"weight_map\":{";
  for (size_t i = 0; i < weight_map.size(); ++i) {
    text += (i == 0 ? "\"" : ",\"") + weight_map[i].first + "\":\"" + weight_map[i].second + "\"";
  }
  return text + "}}";
}

Status load_from(const std::string& directory, const std::vector<Parameter>& parameters) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory);
  return checkpoint ? load_parameters(*checkpoint, parameters, {.num_threads = 2})
                    : checkpoint.error();
}

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = uniform(random);
  return values;
}

std::vector<uint8_t> random_f8(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> values(static_cast<size_t>(count));
  for (uint8_t& v : values) {
    do {
      v = static_cast<uint8_t>(random());
    } while ((v & 0x7f) == 0x7f);
  }
  return values;
}

FileTensor random_scales(const std::string& name, const std::vector<int64_t>& shape,
                         const std::string& dtype, std::vector<float>& values) {
  values = random_floats(shape[0] * shape[1], 4);
  std::vector<tensor::Bf16> rounded;
  for (float& v : values) {
    v = 0.001f + v * v;
    rounded.push_back(tensor::from_float<tensor::Bf16>(v));
    if (dtype == "BF16") v = tensor::to_float(rounded.back());
  }
  return {name, dtype, shape, dtype == "BF16" ? bytes_of(rounded) : bytes_of(values)};
}

}  // namespace fathom::weights
