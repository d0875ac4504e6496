#pragma once
// Files of tuned choices, one for a shape and a device, named as SGLang names its own:
//
//   N=1536,K=1536,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json      a matrix [N, K]
//   E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json        experts: E of a width N
//
// Without dtype and block_shape weights are bf16. Inside, an entry for each number of rows that was measured:
//
//   {"64": {"kernel": "batch", "cluster": 4, "us": 11.2, "default_us": 13}, "128": {"kernel": "default"}}
//
//   Status added = add_directory(path, "NVIDIA_H200", table);    // "PATH: is for NVIDIA_H100, not for NVIDIA_H200"
//   added = add_file({.name = name, .text = text, .from = "shipped"}, "NVIDIA_H200", table);
//
// Everything is checked: a name or a key that is not known, another device, a kernel that cannot take a shape, two
// orders of sums within a class of rows. Errors name the file. Thread-safe (no state).

#include <string>
#include <string_view>

#include "base/result.h"
#include "tuned/table.h"

namespace fathom::tuned {

// "NVIDIA H200" -> "NVIDIA_H200"
std::string device_name_in_files(std::string_view device);

std::string file_name(const MatrixChoices& choices);
std::string file_name(const ExpertChoices& choices);
std::string file_text(const MatrixChoices& choices);
std::string file_text(const ExpertChoices& choices);

std::string kernel_name(MatrixKernel kernel);
std::string kernel_name(ExpertKernel kernel);
// "batch, cluster 4"; "default"
std::string choice_text(const MatrixChoice& choice);
std::string choice_text(const ExpertChoice& choice);

struct NamedText {
  std::string name, text;  // without folders
  std::string from;        // what errors and Choices::from say
};
// For this device alone; an empty one takes files of any.
Status add_file(const NamedText& file, std::string_view device, Table& table);
// All of its .json files. Adds to `table`.
Status add_directory(const std::string& path, std::string_view device, Table& table);

}  // namespace fathom::tuned
