#pragma once
// Finds the first stop string in a text that arrives in pieces, without ever letting out a byte of it: what
// may still become a stop string is held back. The stop string that is complete first wins; of those that
// end at the same byte the longest. One automaton (Aho and Corasick, CACM 18(6), 1975) looks for all of
// them at once and reads every byte once.
//
//   auto stops = std::make_shared<const StopStrings>(std::vector<std::string>{"\n\n", "Question"});
//   StopMatcher matcher(stops);                        // one per text, the strings are shared
//   if (matcher.push(piece, out)) done(stops->strings()[matcher.matched()]);
//   ... matcher.finish(out);                           // the end of the text: what was held comes out
//
// StopStrings is immutable and thread-safe; a matcher belongs to one text and is not synchronised.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace fathom::text {

class StopStrings {
 public:
  // REQUIRES: no string is empty; fewer than 2^31 bytes in all.
  explicit StopStrings(std::vector<std::string> strings);

  const std::vector<std::string>& strings() const { return strings_; }

 private:
  friend class StopMatcher;
  // The strings as a tree of their bytes; node 0 is the empty prefix.
  struct Node {
    int32_t first_child = -1, next_sibling = -1;
    int32_t suffix = 0;       // the longest proper suffix of this prefix that is a prefix too
    int32_t depth = 0;        // bytes of the prefix
    int32_t string_idx = -1;  // the longest stop string that ends here; -1 = none
    unsigned char byte = 0;
  };
  int32_t child(int32_t node, unsigned char byte) const;
  int32_t next(int32_t node, unsigned char byte) const;
  void insert(int32_t string_idx);
  void link_suffixes();

  std::vector<std::string> strings_;
  std::vector<Node> nodes_;
};

class StopMatcher {
 public:
  // Null: there are no stop strings.
  explicit StopMatcher(std::shared_ptr<const StopStrings> strings) : strings_(std::move(strings)) {}

  // Appends to `out` what can no longer be part of a stop string. True: one is complete; `out` ends right
  // before it and what follows it is dropped. REQUIRES: no earlier push returned true.
  bool push(std::string_view text, std::string& out);
  // The text is over: appends what was held back.
  void finish(std::string& out);

  // Index in strings() of the one found; -1 = none yet.
  int matched() const { return matched_; }
  size_t num_held_bytes() const { return held_.size(); }

 private:
  std::shared_ptr<const StopStrings> strings_;
  int32_t node_ = 0;
  int matched_ = -1;
  std::string held_;  // the bytes of node_'s prefix
};

}  // namespace fathom::text
