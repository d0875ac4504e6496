#pragma once
// The tiny DeepSeek-V3.2 of tests/data/v32 as a checkpoint on disk. Its weights are a function of their names, told
// once more in make_golden.py there, so that only what came out of them is kept.
//
//   const V32Checkpoint checkpoint;
//   LoadedModel loaded(checkpoint.directory(), {}, cpu::fast_backend());
//
// Owns the files.

#include <string>
#include <vector>

#include "base/json.h"
#include "tests/scratch_directory.h"

namespace fathom::model {

struct V32Edits {
  int index_topk = 0;  // 0 = the published 64
  bool is_v3 = false;  // a DeepSeek-V3 of the same weights: no indexer
  // As published: FP8 matrices in blocks of 128 and index keys of 128 values, which the FP8 form needs.
  bool is_fp8 = false;
  int head_copies = 1;  // times the published number of heads
  // Rows of the head other than those of tokens 2, 3, ... are 0: models of random weights then agree now and then.
  // 0 = all tokens are alike.
  int num_likely_tokens = 0;
};

class V32Checkpoint {
 public:
  explicit V32Checkpoint(const V32Edits& edits = {});
  const std::string& directory() const { return directory_.path(); }

 private:
  ScratchDirectory directory_;
};

// golden.json
const json::Value& v32_golden();
// The prompt of so many tokens.
std::vector<int32_t> v32_prompt(int num_tokens);

inline constexpr int kV32Topk = 64, kV32Layers = 2;

}  // namespace fathom::model
