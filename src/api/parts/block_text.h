#pragma once
// The text of a content block of Anthropic's form that is not plain text: documents and search results that hold text,
// what a server's tools found, references to tools. What has no text is named in brackets.
//
//   const BlockText read = text_of_block(block);      // {"type": "image", ...} -> {"[image]", is_unread}
//
// Blocks are read leniently: they are what other servers and newer clients write, and no form of them is an error.
// Pure, thread-safe.

#include <string>

#include "base/json_fwd.h"

namespace fathom::api {

struct BlockText {
  std::string text;        // empty: of what no prompt shows, as the thinking of earlier turns
  bool is_unread = false;  // the text is its name in brackets alone
};

// REQUIRES: block.is_object().
BlockText text_of_block(const json::Value& block);

}  // namespace fathom::api
