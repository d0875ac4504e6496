#include "tuned/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/scratch_directory.h"
#include "tuned/shipped.h"

namespace fathom::tuned {
namespace {

using tensor::DType;
using testing::HasSubstr;

constexpr const char* kMatrixName =
    "N=1536,K=1536,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json";
constexpr const char* kExpertName =
    "E=256,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json";

MatrixChoices some_matrix() {
  return {
      .device = "NVIDIA_H200",
      .shape = {.dtype = DType::kF8E4M3, .n = 1536, .k = 1536},
      .entries =
          {{.rows = 8,
            .choice = {.kernel = MatrixKernel::kStreaming, .cluster = 1, .warps = 8, .stages = 3},
            .us = 4.25,
            .default_us = 5},
           {.rows = 64, .choice = {.kernel = MatrixKernel::kBatch, .cluster = 4}},
           {.rows = 256, .choice = {}, .us = 9},
           {.rows = 1024,
            .choice = {.kernel = MatrixKernel::kTiled, .tile = Tile::kSmall, .raster = 8}},
           {.rows = 4096, .choice = {.kernel = MatrixKernel::kLibrary}}},
      .from = "here"};
}

ExpertChoices some_experts() {
  return {
      .device = "NVIDIA_H200",
      .shape = {.dtype = DType::kF8E4M3, .experts = 256, .inter = 512},
      .entries =
          {{.rows = 1,
            .choice = {.kernel = ExpertKernel::kPairs, .gate_up_stages = 4, .down_stages = 2}},
           {.rows = 16, .choice = {.kernel = ExpertKernel::kNarrow}},
           {.rows = 256, .choice = {.kernel = ExpertKernel::kWide}},
           {.rows = 4096, .choice = {.kernel = ExpertKernel::kTiled, .down_tile = Tile::kSmall}}},
      .from = "here"};
}

// Why it is refused; empty: it is not.
std::string refusal(const std::string& name, const std::string& text,
                    std::string_view device = "NVIDIA_H200") {
  Table table;
  const Status added = add_file({.name = name, .text = text, .from = "dir/" + name}, device, table);
  return added ? std::string() : added.error().message;
}

TEST(TunedFile, names_are_those_of_sglang) {
  EXPECT_EQ(file_name(some_matrix()), kMatrixName);
  EXPECT_EQ(file_name(some_experts()), kExpertName);
  MatrixChoices of_bf16 = some_matrix();
  of_bf16.shape.dtype = DType::kBf16;
  EXPECT_EQ(file_name(of_bf16), "N=1536,K=1536,device_name=NVIDIA_H200.json");
  EXPECT_EQ(device_name_in_files("NVIDIA H100 80GB HBM3"), "NVIDIA_H100_80GB_HBM3");
}

template <class Choices>
void expect_same_behind_a_file(const Choices& choices) {
  Table table;
  const Status added =
      add_file({.name = file_name(choices), .text = file_text(choices), .from = "here"},
               "NVIDIA_H200", table);
  ASSERT_TRUE(added) << added.error().message;
  const Choices* const read = table.find(choices.shape);
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->device, choices.device);
  EXPECT_EQ(read->from, "here");
  ASSERT_EQ(read->entries.size(), choices.entries.size());
  for (size_t i = 0; i < choices.entries.size(); ++i) {
    EXPECT_EQ(read->entries[i].rows, choices.entries[i].rows);
    EXPECT_EQ(read->entries[i].choice, choices.entries[i].choice);
    EXPECT_EQ(read->entries[i].us, choices.entries[i].us);
    EXPECT_EQ(read->entries[i].default_us, choices.entries[i].default_us);
  }
}

TEST(TunedFile, reads_what_it_wrote) {
  expect_same_behind_a_file(some_matrix());
  expect_same_behind_a_file(some_experts());
}

TEST(TunedFile, a_file_of_another_device_is_refused_by_name) {
  const std::string why = refusal(kMatrixName, file_text(some_matrix()), "NVIDIA_H100_80GB_HBM3");
  EXPECT_EQ(why, std::string("dir/") + kMatrixName +
                     ": is for NVIDIA_H200, not for NVIDIA_H100_80GB_HBM3");
}

TEST(TunedFile, names_of_other_forms_are_refused) {
  for (const char* name :
       {"notes.json", "N=1536,device_name=NVIDIA_H200.json",
        "N=0,K=1536,device_name=NVIDIA_H200.json", "N=1536,K=1536,device_name=.json",
        "N=1536,K=1536,device_name=NVIDIA_H200,dtype=int8_w8a8.json",
        "N=1536,K=1536,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[64, 64].json",
        "E=256,K=256,device_name=NVIDIA_H200.json", "N=99999999999,K=1,device_name=A.json"})
    EXPECT_THAT(refusal(name, "{\"1\": {}}"),
                HasSubstr("is not named as files of tuned choices are"))
        << name;
}

struct WrongText {
  const char* text;
  const char* why;
};

TEST(TunedFile, wrong_contents_are_refused_with_the_reason) {
  const WrongText cases[] = {
      {"{", "line 1"},
      {"[]", "must be an object of numbers of rows"},
      {"{}", "must be an object of numbers of rows"},
      {R"({"many": {}})", "\"many\" is no number of rows"},
      {R"({"8": 3})", "for 8 rows: is 3, must be an object"},
      {R"({"8": {"BLOCK_SIZE_M": 64}})", "it is of SGLang's Triton kernels"},
      {R"({"8": {"tilt": 1}})", "\"tilt\" is no key of these files"},
      {R"({"8": {"kernel": "fastest"}})",
       "kernel is \"fastest\", which this program does not know"},
      {R"({"8": {"kernel": "streaming", "cluster": 1, "warps": "8"}})", "warps is \"8\""},
      {R"({"8": {"kernel": "batch", "cluster": 1}})", "its kernel does not take 8 rows"},
      {R"({"8": {"kernel": "streaming", "cluster": 16, "warps": 8}})", "cluster is 16"},
      {R"({"8": {"us": -1}})", "us is -1, must be above 0"},
      {R"({"8": {}, "8": {}})", "duplicate key"}};
  for (const WrongText& wrong : cases) {
    const std::string why = refusal(kMatrixName, wrong.text);
    EXPECT_THAT(why, HasSubstr(wrong.why)) << wrong.text;
    EXPECT_THAT(why, HasSubstr(kMatrixName)) << wrong.text;
  }
  EXPECT_THAT(refusal(kExpertName, R"({"256": {"kernel": "pairs"}})"),
              HasSubstr("does not take 256 rows"));
  EXPECT_THAT(refusal(kExpertName, R"({"64": {"kernel": "tiled"}})"),
              HasSubstr("does not take 64 rows"));
}

TEST(TunedFile, two_orders_of_sums_in_a_class_are_refused) {
  EXPECT_THAT(
      refusal(
          kMatrixName,
          R"({"16": {"kernel": "batch", "cluster": 4}, "64": {"kernel": "batch", "cluster": 2}})"),
      HasSubstr("16 and 64 rows would have sums of another order"));
  // The default's is one of its own.
  EXPECT_THAT(
      refusal(kMatrixName, R"({"1": {}, "8": {"kernel": "streaming", "cluster": 1, "warps": 8}})"),
      HasSubstr("1 and 8 rows would have sums of another order"));
  EXPECT_EQ(
      refusal(
          kMatrixName,
          R"({"8": {}, "16": {"kernel": "batch", "cluster": 4}, "256": {}, "512": {"kernel": "tiled"}})"),
      "");
  // Stages change no sum, and neither do the kernels of few tokens.
  EXPECT_EQ(
      refusal(kMatrixName, R"({"1": {"kernel": "streaming", "cluster": 1, "warps": 8, "stages": 4},
                                     "8": {"kernel": "streaming", "cluster": 1, "warps": 8}})"),
      "");
  EXPECT_EQ(
      refusal(kExpertName, R"({"1": {"kernel": "pairs"}, "8": {"kernel": "wide"}, "16": {}})"), "");
}

TEST(TunedFile, a_directory_is_read_whole_or_refused) {
  const ScratchDirectory directory;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(directory / name) << text;
  };
  write(kMatrixName, file_text(some_matrix()));
  write(kExpertName, file_text(some_experts()));
  write("README.md", "not one of them");
  Table table;
  ASSERT_TRUE(add_directory(directory.path(), "NVIDIA_H200", table));
  EXPECT_EQ(table.matrices.size(), 1U);
  EXPECT_EQ(table.experts.size(), 1U);
  write("other.json", "{}");
  const Status refused = add_directory(directory.path(), "NVIDIA_H200", table);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("other.json: is not named"));
  const Status missing = add_directory(directory / "none", "NVIDIA_H200", table);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("none: No such file or directory"));
}

// Each was measured to be faster than what it replaces, by more than noise.
TEST(TunedFile, shipped_files_are_right_and_worth_it) {
  constexpr double kWorth = 0.98;
  for (const ShippedFile& file : shipped_files()) {
    Table table;
    const Status added = add_file({.name = std::string(file.name),
                                   .text = std::string(file.text),
                                   .from = std::string(file.name)},
                                  "", table);
    ASSERT_TRUE(added) << added.error().message;
    double log_ratios = 0;
    const auto check = [&](const auto& all) {
      for (const auto& choices : all) {
        EXPECT_EQ(file_name(choices), file.name);
        EXPECT_EQ(file_text(choices), file.text) << file.name;
        for (const auto& entry : choices.entries) {
          if (entry.choice == decltype(entry.choice){}) continue;
          EXPECT_LE(entry.us, entry.default_us) << file.name << ", " << entry.rows << " rows";
          log_ratios += std::log(entry.us / entry.default_us);
        }
      }
    };
    check(table.matrices);
    check(table.experts);
    EXPECT_LT(log_ratios, std::log(kWorth)) << file.name;
  }
}

TEST(TunedFile, a_device_gets_the_files_that_ship_for_it) {
  EXPECT_TRUE(shipped_table("NVIDIA_H20").matrices.empty());
  EXPECT_TRUE(shipped_table("").matrices.empty());
}

}  // namespace
}  // namespace fathom::tuned
