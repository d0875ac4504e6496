#pragma once
// Random outputs of a request's constraint, token by token as an engine would choose them, and what an output parser
// reads out of each.
//
//   const WalkModel model = walk_model(tokenizer, text::ChatFormat::kV3, 129280);
//   const api::GenerationRequest request = accepted(api::parse_chat_request(body, model.served));
//   const Walked walked = walk(model, request, {.seed = 1, .prefix = "<｜tool▁calls▁begin｜>"});
//   EXPECT_EQ(walked.calls.size(), 1U);
//
// At every step some tokens that the mask allows are tried: the constraint has to take each of them. Owns its
// values.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "answer/constraint_factory.h"
#include "api/served_model.h"

namespace fathom::answer::tests {

struct WalkModel {
  api::ServedModel served;
  std::shared_ptr<ConstraintFactory> factory;
};
WalkModel walk_model(std::shared_ptr<const text::Tokenizer> tokenizer, text::ChatFormat format,
                     int vocab_size);

struct WalkOptions {
  uint64_t seed = 0;
  std::string prefix = {};  // what the output begins with
  int max_tokens = 4000;
  int prefer_ends = 40;  // after so many tokens the shortest way out is taken
};

struct WalkedCall {
  std::string name, arguments;
  bool is_complete = false;
};

struct Walked {
  std::string problem;  // empty: the output was allowed to end, and no mask was wrong
  std::string text, content, reasoning;
  std::vector<WalkedCall> calls;
};

Walked walk(const WalkModel& model, const api::GenerationRequest& request,
            const WalkOptions& options);

}  // namespace fathom::answer::tests
