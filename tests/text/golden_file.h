#pragma once
// Reads the golden files that tools/tokenizer/golden.py and kimi.py write; the format is described in the first.
//
//   const GoldenFile golden = read_golden_file("v3.golden");
//
// Plain data. A file that cannot be read aborts the test program.

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/source_tree.h"
#include "text/tokenizer.h"

namespace fathom::text {

struct GoldenEncoding {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<int32_t> plain_ids;  // added tokens taken as text
};

struct GoldenDecoding {
  std::vector<int32_t> ids;
  std::string without_special;
  std::string with_special;
};

struct GoldenFile {
  std::vector<GoldenEncoding> encodings;
  std::vector<GoldenDecoding> decodings;
};

class GoldenReader {
 public:
  explicit GoldenReader(std::string bytes) : bytes_(std::move(bytes)) {}

  GoldenFile read() {
    FATHOM_CHECK(take(8) == "FTHMTOK1", "not a golden file");
    GoldenFile file;
    file.encodings.resize(u32());
    for (GoldenEncoding& encoding : file.encodings) {
      encoding.text = take(varint());
      encoding.ids = ids(varint());
      const size_t num_plain = varint();
      encoding.plain_ids = num_plain == 0 ? encoding.ids : ids(num_plain - 1);
    }
    file.decodings.resize(u32());
    for (GoldenDecoding& decoding : file.decodings) {
      decoding.ids = ids(varint());
      decoding.without_special = take(varint());
      decoding.with_special = take(varint());
    }
    FATHOM_CHECK(position_ == bytes_.size(), "bytes after the end");
    return file;
  }

 private:
  uint8_t byte() {
    FATHOM_CHECK(position_ < bytes_.size(), "golden file ends early");
    return static_cast<uint8_t>(bytes_[position_++]);
  }
  size_t varint() {
    size_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t next = byte();
      value |= size_t{next & 0x7fu} << shift;
      if (next < 0x80) return value;
    }
  }
  size_t u32() {
    size_t value = 0;
    for (int shift = 0; shift < 32; shift += 8) value |= size_t{byte()} << shift;
    return value;
  }
  std::string take(size_t num_bytes) {
    FATHOM_CHECK(num_bytes <= bytes_.size() - position_, "golden file ends early");
    position_ += num_bytes;
    return bytes_.substr(position_ - num_bytes, num_bytes);
  }
  std::vector<int32_t> ids(size_t count) {
    std::vector<int32_t> values(count);
    for (int32_t& value : values) value = static_cast<int32_t>(varint());
    return values;
  }

  std::string bytes_;
  size_t position_ = 0;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  FATHOM_CHECK(file.good(), path << " cannot be opened");
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string test_data_path(const std::string& name) {
  return source_path("tests/data/tokenizer/") + name;
}

inline GoldenFile read_golden_file(const std::string& name) {
  return GoldenReader(read_bytes(test_data_path(name))).read();
}

// The tokenizers that the golden files were made with.
inline Tokenizer v3_tokenizer() { return Tokenizer::load(source_path("models/demo")).value(); }
inline Tokenizer v2_tokenizer() {
  return Tokenizer::parse(read_bytes(test_data_path("v2_tokenizer.json")), "").value();
}

// In the form in which Kimi-K2 and Moonlight are published; 2004 tokens in tiktoken.model.
inline constexpr int32_t kKimiRanks = 2004;
inline Tokenizer kimi_tokenizer() { return Tokenizer::load(test_data_path("kimi")).value(); }

}  // namespace fathom::text
