// Files that lie: by hand one for every rule, and thousands with damaged headers. A clear error or a list of
// tensors that stay inside the file; no crash, no signal, no long wait.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "tests/cpu_time.h"
#include "tests/weights/scratch_files.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"

namespace fathom::weights {
namespace {

using testing::HasSubstr;
using testing::Not;

struct HostileHeader {
  const char* header;
  int64_t data_bytes;
  const char* message;  // part of it
};

const std::vector<HostileHeader>& hostile_headers() {
  static const std::vector<HostileHeader> cases = {
      // Not the right kind of document.
      {"", 0, "header must begin with {"},
      {" {}", 0, "header must begin with {"},
      {"[]", 0, "header must begin with {"},
      {"null", 0, "header must begin with {"},
      {"\xef\xbb\xbf{}", 0, "header must begin with {"},
      {"{", 0, "not valid JSON"},
      {"{}{}", 0, "not valid JSON"},
      {"{} x", 0, "not valid JSON"},
      {"{\"a\": NaN}", 0, "not valid JSON"},
      {"{\"\xff\":{}}", 0, "not valid JSON"},
      {"{\"a\":1,\"a\":1}", 0, "duplicate key \"a\""},
      {"{\"a\":[[[[[[1]]]]]]}", 0, "nesting deeper than 3"},
      // Entries.
      {R"({"a":null})", 0, "tensor \"a\": is null, must be an object"},
      {R"({"a":[]})", 0, "tensor \"a\": is [], must be an object"},
      {R"({"a":{}})", 0, "tensor \"a\": dtype is missing"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "dtype is missing"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "shape is missing"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "data_offsets is missing"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"stride":[1]}})", 4,
       "unknown key \"stride\""},
      {R"({"a":{"dtype":"F32","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4,
       "duplicate key \"dtype\""},
      {R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
       "the name must have 1 to 512"},
      // Types.
      {R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "dtype is \"F64\", must be"},
      {R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, "dtype is \"f32\""},
      {R"({"a":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", 1, "dtype is \"F8_E5M2\""},
      {R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", 1, "dtype is \"BOOL\""},
      {R"({"a":{"dtype":"","shape":[1],"data_offsets":[0,1]}})", 1, "dtype is \"\""},
      {R"({"a":{"dtype":0,"shape":[1],"data_offsets":[0,4]}})", 4, "dtype is 0"},
      {R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4, "dtype is [\"F32\"]"},
      // Shapes.
      {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "shape is 1, must be a list"},
      {R"({"a":{"dtype":"F32","shape":null,"data_offsets":[0,4]}})", 4, "shape is null"},
      {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0, "shape holds 0, dimensions"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "shape holds -1"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "shape holds 1.0"},
      {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "shape holds \"1\""},
      {R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}})", 4, "shape holds true"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551617],"data_offsets":[0,4]}})", 4,
       "shape holds 1.8446744073709552e+19"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]}})", 4,
       "shape holds 9223372036854775808"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4,
       "shape has 9 dimensions, at most 8"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "f32[4294967296, 4294967296] has more bytes than 63 bits can count"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0,
       "more bytes than 63 bits"},
      {R"({"a":{"dtype":"F32","shape":[2305843009213693952,8],"data_offsets":[0,4]}})", 4,
       "more bytes than 63 bits"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,4]}})", 4,
       "hold 4 bytes, u8[9223372036854775807] needs 9223372036854775807"},
      // Ranges.
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,12]}})", 12,
       "data_offsets [0,12] hold 12 bytes, f32[4] needs 16"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}})", 12, "f32[2] needs 8"},
      {R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,8]}})", 8, "f32[] needs 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "must not go backwards"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4,
       "must be two integers >= 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,-4]}})", 4,
       "must be two integers >= 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]}})", 4,
       "must be two integers >= 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4,
       "must be two integers >= 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[9223372036854775804,9223372036854775807]}})",
       4, "end past the data, which has 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4, "end past the data"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "must be two integers >= 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4,
       "must be two integers >= 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0.0,4.0]}})", 4, "must be two integers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":["0","4"]}})", 4, "must be two integers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":null}})", 4, "must be two integers >= 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":{"begin":0}}})", 4,
       "must be two integers"},
      // Tiling.
      {R"({})", 1, "the data has 1 bytes, the tensors take 0"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5,
       "the data has 5 bytes, the tensors take 4"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5,
       "tensor \"a\": starts at byte 1 of the data, which leaves a hole after 0"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})",
       7, "tensor \"b\": starts at byte 5 of the data, which leaves a hole after 4"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6,
       "tensor \"b\": starts at byte 2 of the data, inside the tensor before it, which ends at 4"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       4, "inside the tensor before it"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
       4, "tensor \"b\": shape holds 0"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2,0],"data_offsets":[2,2]}})",
       4, "tensor \"b\": shape holds 0"},
      // Metadata.
      {R"({"__metadata__":null})", 0, "__metadata__ is null, must be an object of strings"},
      {R"({"__metadata__":[]})", 0, "__metadata__ is []"},
      {R"({"__metadata__":"pt"})", 0, "__metadata__ is \"pt\""},
      {R"({"__metadata__":{"format":1}})", 0, "__metadata__ holds 1 for \"format\""},
      {R"({"__metadata__":{"a":{"b":"c"}}})", 0, "__metadata__ holds an object for \"a\""},
  };
  return cases;
}

TEST(HostileSafetensors, names_file_tensor_and_rule) {
  EXPECT_GE(hostile_headers().size(), 60u);
  for (const HostileHeader& hostile : hostile_headers()) {
    const auto read =
        parse_safetensors_header(hostile.header, 8, hostile.data_bytes, "x.safetensors");
    ASSERT_FALSE(read) << hostile.header << " was accepted";
    EXPECT_THAT(read.error().message, HasSubstr(hostile.message)) << hostile.header;
    EXPECT_THAT(read.error().message, HasSubstr("x.safetensors: "));
    EXPECT_THAT(read.error().message, Not(HasSubstr("\n")));
  }
}

TEST(HostileSafetensors, long_names_and_values_stay_readable) {
  const std::string name(100'000, 'n');
  const auto long_name = parse_safetensors_header(
      "{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 8, 1, "x");
  ASSERT_FALSE(long_name);
  EXPECT_LT(long_name.error().message.size(), 400u);
  std::string ones = "1";
  for (int i = 0; i < 100'000; ++i) ones += ",1";
  const auto long_shape = parse_safetensors_header(
      R"({"a":{"dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1]}})", 8, 1, "x");
  ASSERT_FALSE(long_shape);
  EXPECT_LT(long_shape.error().message.size(), 400u);
  const auto control = parse_safetensors_header(R"({"a\nb\u001b[2J":{"dtype":"U9"}})", 8, 1, "x");
  ASSERT_FALSE(control);
  EXPECT_THAT(control.error().message, Not(HasSubstr("\x1b")));
  EXPECT_THAT(control.error().message, Not(HasSubstr("\n")));
}

std::string little_endian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i, value >>= 8) bytes += static_cast<char>(value & 0xff);
  return bytes;
}

TEST(HostileSafetensors, refuses_header_lengths_that_the_file_does_not_hold) {
  ScratchDirectory directory;
  const std::string path = directory / "a.safetensors";
  for (const uint64_t length : {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 62,
                                uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    write_file(path, little_endian(length) + "{}");
    const auto read = read_safetensors_header(path);
    ASSERT_FALSE(read) << length;
    EXPECT_THAT(read.error().message, HasSubstr(path + ": header length is "));
  }
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}}) {
    write_file(path, little_endian(length) + "{}");
    EXPECT_FALSE(read_safetensors_header(path)) << length;
  }
  for (const size_t size : {0U, 1U, 7U}) {
    write_file(path, std::string(size, '\0'));
    const auto read = read_safetensors_header(path);
    ASSERT_FALSE(read);
    EXPECT_THAT(read.error().message, HasSubstr("begins with a header length of 8"));
  }
}

TEST(HostileSafetensors, refuses_what_is_not_a_file_without_waiting) {
  ScratchDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe.safetensors").c_str(), 0600), 0);
  for (const std::string& path :
       {directory.path(), directory / "pipe.safetensors", std::string("/dev/zero")}) {
    const auto read = read_safetensors_header(path);
    ASSERT_FALSE(read) << path;
    EXPECT_THAT(read.error().message, HasSubstr(path + ": must be a regular file"));
  }
  EXPECT_EQ(read_safetensors_header(directory / "absent").error().code, ErrorCode::kNotFound);
}

TEST(HostileSafetensors, every_truncation_of_a_file_is_refused) {
  ScratchDirectory directory;
  const std::string path = directory / "model.safetensors";
  const std::string file = safetensors_file({{"a", "F32", {64, 1024}, std::string(1 << 18, 'a')},
                                             {"b", "BF16", {300}, std::string(600, 'b')}});
  std::vector<size_t> sizes;
  for (size_t size = 0; size < 400; ++size) sizes.push_back(size);
  for (size_t size = 1 << 16; size < file.size(); size += 1 << 16) sizes.push_back(size);
  sizes.push_back(file.size() - 1);
  write_file(path, file);
  ASSERT_TRUE(Checkpoint::open(directory.path()));
  for (const size_t size : sizes) {
    write_file(path, file.substr(0, size));
    ASSERT_FALSE(Checkpoint::open(directory.path())) << size;
  }
  write_file(path, file + "x");
  EXPECT_FALSE(Checkpoint::open(directory.path()));
}

std::string valid_header() {
  std::vector<FileTensor> tensors;
  for (int i = 0; i < 6; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".mlp.down_proj.weight";
    tensors.push_back(
        {name, "F8_E4M3", {16, 8 + i}, std::string(static_cast<size_t>(16 * (8 + i)), 'x')});
    tensors.push_back({name + "_scale_inv", "F32", {1, 1}, std::string(4, 'x')});
  }
  return header_of(tensors);
}

constexpr int64_t kValidDataBytes = 16 * (8 + 9 + 10 + 11 + 12 + 13) + 6 * 4;

// One to four edits: bytes replaced, inserted or removed, digits changed, pieces repeated.
std::string damaged(std::string text, std::mt19937& random) {
  static constexpr std::string_view kBytes = "0123456789-.eE\"[]{},:FBU_ \n\xff";
  const int edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < edits; ++i) {
    const size_t at = random() % text.size();
    const char byte = kBytes[random() % kBytes.size()];
    switch (random() % 5) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      case 2:
        text.erase(at, 1 + random() % 8);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), random() % 120));
        break;
      default: {
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text[digit] = static_cast<char>('0' + random() % 10);
      }
    }
    if (text.empty()) text = "{";
  }
  return text;
}

// What is accepted must lie inside the data, tile it and agree with its own shape.
void expect_sound(const std::vector<TensorInfo>& tensors, int64_t data_start, int64_t data_bytes) {
  int64_t position = data_start;
  for (const TensorInfo& tensor : tensors) {
    int64_t bytes = tensor::dtype_bytes(tensor.dtype);
    for (const int64_t dim : tensor.shape) bytes *= dim;
    EXPECT_EQ(tensor.offset, position);
    EXPECT_EQ(tensor.num_bytes, bytes);
    position += bytes;
  }
  EXPECT_EQ(position, data_start + data_bytes);
}

TEST(HostileSafetensors, damaged_headers_are_refused_or_sound_and_never_take_long) {
  constexpr uint32_t kSeed = 4242;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  const std::string header = valid_header();
  ASSERT_TRUE(parse_safetensors_header(header, 100, kValidDataBytes, "x"));
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string hostile = damaged(header, random);
    const CpuStopwatch watch;
    const auto read = parse_safetensors_header(hostile, 100, kValidDataBytes, "x.safetensors");
    EXPECT_LT(watch.seconds(), 2.0) << hostile;
    if (read) {
      ++accepted;
      expect_sound(*read, 100, kValidDataBytes);
    } else {
      EXPECT_THAT(read.error().message, HasSubstr("x.safetensors: "));
    }
  }
  EXPECT_GT(accepted, 10);  // a changed letter of a name is no error
  EXPECT_LT(accepted, 2000);
}

TEST(HostileSafetensors, damaged_files_are_refused_or_sound) {
  constexpr uint32_t kSeed = 777;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  ScratchDirectory directory;
  const std::string path = directory / "model.safetensors";
  const std::string file =
      with_header(valid_header(), std::string(static_cast<size_t>(kValidDataBytes), 'x'));
  for (int i = 0; i < 1000; ++i) {
    std::string hostile = file;
    // Also the length field, which damaged_headers never sees.
    if (i % 2 == 0) hostile[random() % 8] = static_cast<char>(random());
    if (i % 3 != 0) hostile = hostile.substr(0, 8) + damaged(hostile.substr(8), random);
    write_file(path, hostile);
    const Result<Checkpoint> checkpoint = Checkpoint::open(directory.path());
    if (!checkpoint) continue;
    ASSERT_FALSE(checkpoint->tensors().empty());
    const int64_t start = checkpoint->tensors().front().offset;
    expect_sound(checkpoint->tensors(), start, static_cast<int64_t>(hostile.size()) - start);
  }
}

TEST(HostileSafetensors, a_header_of_many_tensors_is_read_in_linear_time) {
  std::string header = "{";
  constexpr int64_t kCount = 100'000;
  for (int64_t i = 0; i < kCount; ++i) {
    header += "\"t" + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" +
              std::to_string(kCount - i - 1) + "," + std::to_string(kCount - i) + "]},";
  }
  header.back() = '}';
  const CpuStopwatch watch;
  const auto read = parse_safetensors_header(header, 8, kCount, "x");
  ASSERT_TRUE(read) << read.error().message;
  // 0.3 s, 8 s under ThreadSanitizer; quadratic would take minutes, there hours.
  EXPECT_LT(watch.seconds(), 60.0);
}

}  // namespace
}  // namespace fathom::weights
