#pragma once
// StructureCheck: whether a constrained output is whole where a stop string cut it.
//
//   StructureCheck check(constraint->clone(), {.tokenizer = tokenizer, .vocab_size = 2048, .eos_token_ids = {1}});
//   check.add(token, num_text_bytes);                  // every token of the output
//   if (!check.is_whole_after(num_shown_bytes)) ...    // the client has the beginning of a structure
//
// Keeps the tokens. What costs time is is_whole_after(), which a choice asks at most once. On one thread; borrows
// the tokenizer.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/token_constraint.h"
#include "text/tokenizer.h"

namespace fathom::answer {

class StructureCheck {
 public:
  struct Config {
    const text::Tokenizer* tokenizer = nullptr;
    int vocab_size = 0;  // of the logits
    std::vector<int32_t> eos_token_ids;
  };
  StructureCheck(std::unique_ptr<core::TokenConstraint> start, Config config);

  // A token whose text is so many bytes of the output's.
  void add(int32_t token, size_t num_bytes) { tokens_.emplace_back(token, num_bytes); }
  // The output's first bytes may be all of it.
  bool is_whole_after(size_t num_bytes) const;

 private:
  const std::unique_ptr<core::TokenConstraint> start_;
  const Config config_;
  std::vector<std::pair<int32_t, size_t>> tokens_;
};

}  // namespace fathom::answer
