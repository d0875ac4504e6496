#pragma once
// TokenConstraint: which tokens may come next in one sequence, after the tokens accepted so far. A
// grammar's matcher implements it; engine and scheduler know only this.
//
//   std::vector<uint64_t> words(num_mask_words(vocab_size));             // base/token_mask.h
//   constraint.fill_mask(words);
//   constraint.accept(sampled);
//
// One thread at a time uses an object. Which one may change between calls: masks are computed by workers.

#include <cstdint>
#include <memory>
#include <span>

namespace fathom::core {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets bit t of words[t / 64] for every token t that may come next, clears all others. When the text may
  // end here, the end-of-sequence tokens are among them. No bit at all: no token can go on from here, as the
  // vocabulary lacks what the text needs; the request fails.
  virtual void fill_mask(std::span<uint64_t> words) = 0;
  // Moves on. False = the token was not allowed (the state stays as it is).
  virtual bool accept(int32_t token) = 0;
  // So many tokens from here on may be any: nobody needs a mask before.
  virtual int num_free_tokens() const { return 0; }
  // Every token is allowed from here on, whatever comes: nobody needs a mask any more.
  virtual bool is_free() const { return false; }
  // Nothing can follow an end-of-sequence token, so it ends the request even where those are ignored.
  virtual bool ends_at_eos() const { return true; }
  // The same state in a new object, e.g. for the choices of one request.
  virtual std::unique_ptr<TokenConstraint> clone() const = 0;
};

}  // namespace fathom::core
