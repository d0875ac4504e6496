// Which files a directory is read from, and every way in which an index can lie.

#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/failpoint.h"
#include "tests/weights/scratch_files.h"

namespace fathom::weights {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";

std::string tensor_file(const std::vector<std::string>& names) {
  std::vector<FileTensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, "F32", {1}, std::string(4, '\0')});
  return safetensors_file(tensors);
}

// Two shards a and b with the tensors a.0, a.1 and b.0.
void write_shards(const ScratchDirectory& directory) {
  write_file(directory / "a.safetensors", tensor_file({"a.0", "a.1"}));
  write_file(directory / "b.safetensors", tensor_file({"b.0"}));
  write_file(
      directory / kIndex,
      index_of({{"a.0", "a.safetensors"}, {"a.1", "a.safetensors"}, {"b.0", "b.safetensors"}}));
}

std::string error_of(const std::string& directory) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory);
  return checkpoint ? "accepted" : checkpoint.error().message;
}

TEST(Checkpoint, opens_shards_by_index) {
  ScratchDirectory directory;
  write_shards(directory);
  write_file(directory / "stray.safetensors", "not read");
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_THAT(checkpoint->files(),
              ElementsAre(directory / "a.safetensors", directory / "b.safetensors"));
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
  EXPECT_EQ(checkpoint->total_bytes(), 12);
  ASSERT_NE(checkpoint->find("b.0"), nullptr);
  EXPECT_EQ(checkpoint->find("b.0")->file, directory / "b.safetensors");
  EXPECT_EQ(checkpoint->find("b.1"), nullptr);
}

TEST(Checkpoint, opens_a_single_file_of_any_name) {
  ScratchDirectory directory;
  write_file(directory / "weights.safetensors", tensor_file({"w"}));
  ASSERT_TRUE(Checkpoint::open(directory.path()));
  write_file(directory / "golden.safetensors", tensor_file({"g"}));
  write_file(directory / "model.safetensors", tensor_file({"m"}));
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_NE(checkpoint->find("m"), nullptr);
  EXPECT_EQ(checkpoint->files().size(), 1u);
}

TEST(Checkpoint, opens_all_files_where_there_is_no_index) {
  ScratchDirectory directory;
  write_file(directory / "model-00001-of-000002.safetensors", tensor_file({"a", "b"}));
  EXPECT_THAT(error_of(directory.path()), HasSubstr("has no model-00002-of-000002.safetensors"));
  write_file(directory / "model-00002-of-000002.safetensors", tensor_file({"c"}));
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->files().size(), 2u);
  for (const char* name : {"a", "b", "c"}) EXPECT_NE(checkpoint->find(name), nullptr) << name;
  write_file(directory / "model-of-mine-1-of-x.safetensors", tensor_file({"c"}));
  EXPECT_THAT(error_of(directory.path()), HasSubstr("in two files: tensor \"c\": "));
}

TEST(Checkpoint, half_a_download_is_one_sentence) {
  ScratchDirectory directory;
  std::vector<std::pair<std::string, std::string>> weight_map;
  for (int i = 0; i < 40; ++i) {
    const std::string file = "model-" + std::to_string(100 + i) + ".safetensors";
    weight_map.emplace_back("t" + std::to_string(i), file);
    if (i % 2 == 0) write_file(directory / file, tensor_file({weight_map.back().first}));
  }
  write_file(directory / kIndex, index_of(weight_map));
  EXPECT_EQ(error_of(directory.path()),
            directory /
                "model-101.safetensors: is missing, the first of 20 of the 40 files of the "
                "checkpoint that are: the download has not finished");
}

TEST(Checkpoint, weights_of_other_programs_are_told) {
  ScratchDirectory directory;
  write_file(directory / "pytorch_model.bin", "x");
  EXPECT_THAT(error_of(directory.path()), HasSubstr("weights of PyTorch, which are not read"));
  write_file(directory / "demo-q4_k_m.gguf", "GGUF");
  EXPECT_THAT(error_of(directory.path()), HasSubstr("GGUF files, which are not read"));
}

TEST(Checkpoint, a_pointer_of_git_lfs_is_no_shard_and_no_index) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') +
      "\nsize 4302350184\n";
  for (const char* name : {"b.safetensors", kIndex}) {
    ScratchDirectory directory;
    write_shards(directory);
    write_file(directory / name, pointer);
    EXPECT_EQ(error_of(directory.path()),
              directory / name +
                  ": is a Git LFS pointer, the file itself is not here yet: run "
                  "`git lfs pull` in " +
                  directory.path());
  }
}

TEST(Checkpoint, names_a_directory_without_weights) {
  ScratchDirectory directory;
  EXPECT_THAT(error_of(directory.path()), HasSubstr("holds no .safetensors files"));
  EXPECT_THAT(error_of(directory / "absent"), HasSubstr("can't be listed"));
}

TEST(Checkpoint, stays_valid_when_moved) {
  ScratchDirectory directory;
  write_shards(directory);
  Result<Checkpoint> opened = Checkpoint::open(directory.path());
  ASSERT_TRUE(opened);
  const Checkpoint moved = std::move(*opened);
  EXPECT_EQ(moved.find("a.1")->name, "a.1");
}

TEST(Checkpoint, refuses_shards_that_are_not_plain_names) {
  for (const char* name :
       {"../b.safetensors", "/etc/b.safetensors", "sub/b.safetensors", "..", ".", "", "b.bin",
        ".safetensors", "a\\\\b.safetensors", "a\\u0000.safetensors", "./b.safetensors"}) {
    ScratchDirectory directory;
    write_shards(directory);
    write_file(directory / kIndex, index_of({{"a.0", "a.safetensors"}, {"b.0", name}}));
    EXPECT_THAT(error_of(directory.path()), HasSubstr("\"weight_map\" puts \"b.0\" into ")) << name;
  }
}

TEST(Checkpoint, refuses_an_index_that_is_not_one) {
  for (const char* text :
       {"", "{", "[]", "null", "{}", R"({"weight_map":null})", R"({"weight_map":{}})",
        R"({"weight_map":[]})", R"({"weight_map":"a.safetensors"})", R"({"weight_map":{"a.0":1}})",
        R"({"weight_map":{"a.0":["a.safetensors"]}})", R"({"weight_map":{"a.0":null}})",
        R"({"weight_map":{"a.0":"a.safetensors","a.0":"b.safetensors"}})", "\xff"}) {
    ScratchDirectory directory;
    write_shards(directory);
    write_file(directory / kIndex, text);
    EXPECT_THAT(error_of(directory.path()), HasSubstr(directory / kIndex)) << text;
  }
}

TEST(Checkpoint, a_missing_shard_is_named) {
  ScratchDirectory directory;
  write_shards(directory);
  fs::remove(directory / "b.safetensors");
  EXPECT_THAT(error_of(directory.path()),
              HasSubstr(directory / "b.safetensors: is missing, the first of 1 of the 2 files"));
}

TEST(Checkpoint, a_damaged_shard_is_named) {
  ScratchDirectory directory;
  write_shards(directory);
  write_file(directory / "b.safetensors", tensor_file({"b.0"}) + "x");
  EXPECT_THAT(error_of(directory.path()),
              HasSubstr(directory / "b.safetensors: the data has 5 bytes"));
}

TEST(Checkpoint, lists_everything_that_the_index_gets_wrong) {
  ScratchDirectory directory;
  write_shards(directory);
  write_file(
      directory / kIndex,
      index_of({{"a.0", "b.safetensors"}, {"b.0", "b.safetensors"}, {"c.0", "a.safetensors"}}));
  const std::string message = error_of(directory.path());
  EXPECT_THAT(message, HasSubstr("1 in the wrong file, 1 not in the index, 1 in no file"));
  EXPECT_THAT(message, HasSubstr("in the wrong file: tensor \"a.0\" is in "));
  EXPECT_THAT(message, HasSubstr("not in the index: tensor \"a.1\" of "));
  EXPECT_THAT(message, HasSubstr("in no file: tensor \"c.0\", the index says "));
}

TEST(Checkpoint, a_tensor_in_two_shards_is_refused) {
  ScratchDirectory directory;
  write_shards(directory);
  write_file(directory / "b.safetensors", tensor_file({"b.0", "a.0"}));
  EXPECT_THAT(error_of(directory.path()), HasSubstr("in two files: tensor \"a.0\": "));
}

TEST(Checkpoint, refuses_links_that_leave_the_directory) {
  ScratchDirectory directory, elsewhere;
  write_shards(directory);
  write_file(elsewhere / "b.safetensors", tensor_file({"b.0"}));
  fs::remove(directory / "b.safetensors");
  fs::create_symlink(elsewhere / "b.safetensors", directory / "b.safetensors");
  EXPECT_THAT(error_of(directory.path()),
              HasSubstr("is a link that leaves the checkpoint directory"));
  fs::remove(directory / "b.safetensors");
  fs::create_symlink(directory / "absent", directory / "b.safetensors");
  EXPECT_THAT(error_of(directory.path()), HasSubstr("is missing"));
  fs::remove(directory / "b.safetensors");
  fs::create_symlink("b.safetensors", directory / "b.safetensors");
  EXPECT_THAT(error_of(directory.path()), HasSubstr("is missing"));
}

TEST(Checkpoint, follows_links_inside_the_directory_and_to_it) {
  ScratchDirectory directory, links;
  write_shards(directory);
  fs::create_directory(directory / "data");
  fs::rename(directory / "b.safetensors", directory / "data/b.bin");
  fs::create_symlink("data/b.bin", directory / "b.safetensors");
  EXPECT_EQ(error_of(directory.path()), "accepted");
  fs::create_symlink(directory.path(), links / "model");
  EXPECT_EQ(error_of(links / "model"), "accepted");
}

TEST(Checkpoint, follows_links_of_a_hugging_face_cache_into_its_own_blobs) {
  ScratchDirectory cache;
  fs::create_directories(cache / "repo/snapshots/abc");
  fs::create_directories(cache / "repo/blobs");
  fs::create_directories(cache / "other/blobs");
  write_file(cache / "repo/blobs/1234", tensor_file({"w"}));
  write_file(cache / "other/blobs/5678", tensor_file({"w"}));
  const std::string snapshot = cache / "repo/snapshots/abc";
  fs::create_symlink("../../blobs/1234", snapshot + "/model.safetensors");
  EXPECT_EQ(error_of(snapshot), "accepted");
  fs::remove(snapshot + "/model.safetensors");
  fs::create_symlink("../../../other/blobs/5678", snapshot + "/model.safetensors");
  EXPECT_THAT(error_of(snapshot), HasSubstr("is a link that leaves the checkpoint directory"));
}

TEST(Checkpoint, a_failing_read_of_a_header_is_an_error) {
  ScratchDirectory directory;
  write_shards(directory);
  for (int nth = 1; nth <= 5; ++nth) {  // the index, then two reads of each shard
    arm_failpoint("weights.read", nth);
    EXPECT_THAT(error_of(directory.path()), HasSubstr("injected failure")) << nth;
  }
  disarm_failpoints();
  EXPECT_EQ(error_of(directory.path()), "accepted");
}

TEST(Checkpoint, reads_many_shards) {
  ScratchDirectory directory;
  std::vector<std::pair<std::string, std::string>> weight_map;
  for (int i = 0; i < 60; ++i) {
    const std::string file = "model-" + std::to_string(i) + ".safetensors";
    std::vector<std::string> names;
    for (int j = 0; j < 50; ++j) names.push_back(std::to_string(i) + "." + std::to_string(j));
    for (const std::string& name : names) weight_map.emplace_back(name, file);
    write_file(directory / file, tensor_file(names));
  }
  write_file(directory / kIndex, index_of(weight_map));
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 3000u);
}

}  // namespace
}  // namespace fathom::weights
